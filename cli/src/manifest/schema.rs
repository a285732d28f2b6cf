//! A document against its kind's schema: the part of OpenAPI that the CRDs use. Unknown fields are errors here, where the API
//! server would drop them with a warning, because nobody sees what was dropped.

use std::collections::BTreeMap;

use forebay_broker_config::nearest;
use serde_json::Value;

/// Problems by field path.
pub(super) type Problems = Vec<(String, String)>;

/// The kinds' schemas, by kind.
pub(super) struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// From the definitions that are installed in Kubernetes.
    pub(super) fn of_crds() -> Self {
        let schemas = forebay_crds::crds().into_iter().filter_map(|(_, crd)| {
            let crd = serde_json::to_value(crd).ok()?;
            let kind = crd.pointer("/spec/names/kind")?.as_str()?.to_owned();
            Some((kind, crd.pointer("/spec/versions/0/schema/openAPIV3Schema")?.clone()))
        });
        Self(schemas.collect())
    }

    pub(super) fn of(&self, kind: &str) -> Option<&Value> {
        self.0.get(kind)
    }
}

/// Checks a whole document. Metadata is Kubernetes' own and not in the schema; the status is nobody's to write and is ignored.
pub(super) fn check(document: &Value, schema: &Value) -> Problems {
    let mut problems = Problems::new();
    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
    for name in document.as_object().into_iter().flat_map(|fields| fields.keys()) {
        if !known.contains(&name.as_str()) {
            problems.push((name.clone(), unknown(name, known.into_iter())));
        }
    }
    match (document.get("spec"), schema.pointer("/properties/spec")) {
        (Some(spec), Some(schema)) => value("spec", spec, schema, &mut problems),
        (None, _) => problems.push(("spec".to_owned(), "is missing".to_owned())),
        (Some(_), None) => {}
    }
    problems
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(near) => format!("unknown field; did you mean {near:?}?"),
        None => "unknown field".to_owned(),
    }
}

fn value(path: &str, given: &Value, schema: &Value, problems: &mut Problems) {
    let flag = |name| schema.get(name).and_then(Value::as_bool) == Some(true);
    if given.is_null() && flag("nullable") {
        return;
    }
    if flag("x-kubernetes-int-or-string") {
        if !(given.is_string() || given.is_i64() || given.is_u64()) {
            let instead = match given {
                Value::Array(_) => "; write a list as one string, with commas between",
                Value::Bool(_) | Value::Number(_) => "; put quotes around it",
                _ => "",
            };
            problems.push((path.to_owned(), format!("{} must be an integer or a string{instead}", brief(given))));
        }
        return;
    }
    match (schema.get("type").and_then(Value::as_str), given) {
        (Some("object"), Value::Object(fields)) => object(path, fields, schema, problems),
        (Some("array"), Value::Array(items)) => array(path, items, schema, problems),
        (Some("string"), Value::String(text)) => string(path, text, schema, problems),
        (Some("integer"), Value::Number(n)) if n.is_i64() || n.is_u64() => number(path, given, schema, problems),
        (Some("number"), Value::Number(_)) => number(path, given, schema, problems),
        (Some("boolean"), Value::Bool(_)) | (None, _) => {}
        (Some(wanted), _) => {
            problems.push((path.to_owned(), format!("{} must be {}", brief(given), with_article(wanted))));
        }
    }
}

fn brief(given: &Value) -> String {
    match given {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    }
}

fn with_article(kind: &str) -> String {
    match kind {
        "object" => "an object".to_owned(),
        "array" => "a list".to_owned(),
        "integer" => "an integer".to_owned(),
        other => format!("a {other}"),
    }
}

fn object(path: &str, fields: &serde_json::Map<String, Value>, schema: &Value, problems: &mut Problems) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    for (name, given) in fields {
        let at = format!("{path}.{name}");
        match (properties.and_then(|known| known.get(name)), additional) {
            (Some(schema), _) => value(&at, given, schema, problems),
            (None, Some(schema)) if schema.is_object() => value(&at, given, schema, problems),
            (None, _) if properties.is_some() => {
                let known = properties.into_iter().flat_map(|known| known.keys().map(String::as_str));
                problems.push((at, unknown(name, known)));
            }
            (None, _) => {}
        }
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name)) {
        problems.push((format!("{path}.{name}"), "is missing".to_owned()));
    }
}

fn array(path: &str, items: &[Value], schema: &Value, problems: &mut Problems) {
    let length = items.len() as u64;
    if schema.get("minItems").and_then(Value::as_u64).is_some_and(|least| length < least) {
        problems.push((path.to_owned(), "must not be empty".to_owned()));
    }
    if let Some(schema) = schema.get("items") {
        for (index, item) in items.iter().enumerate() {
            value(&format!("{path}[{index}]"), item, schema, problems);
        }
    }
}

fn string(path: &str, text: &str, schema: &Value, problems: &mut Problems) {
    let limit = |name| schema.get(name).and_then(Value::as_u64);
    let words: Vec<&str> =
        schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let problem = if !words.is_empty() && !words.contains(&text) {
        let near = nearest(text, words.iter().copied()).map(|near| format!("; did you mean {near:?}?"));
        format!("{text:?} is not one of {}{}", words.join(", "), near.unwrap_or_default())
    } else if limit("minLength").is_some_and(|least| (text.len() as u64) < least) {
        "must not be empty".to_owned()
    } else if let Some(most) = limit("maxLength").filter(|most| text.chars().count() as u64 > *most) {
        format!("has {} characters, at most {most} are allowed", text.chars().count())
    } else if let Some(pattern) = schema.get("pattern").and_then(Value::as_str).filter(|p| !matches(p, text)) {
        format!("{text:?} does not match {pattern}")
    } else {
        return;
    };
    problems.push((path.to_owned(), problem));
}

/// A pattern that can't be compiled refuses nothing: the API server has the last word on those.
fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).map_or(true, |regex| regex.is_match(text))
}

fn number(path: &str, given: &Value, schema: &Value, problems: &mut Problems) {
    let bound = |name| schema.get(name).and_then(Value::as_f64);
    let Some(n) = given.as_f64() else { return };
    if let Some(least) = bound("minimum").filter(|least| n < *least) {
        problems.push((path.to_owned(), format!("{given} is too small, the least is {least}")));
    }
    if let Some(most) = bound("maximum").filter(|most| n > *most) {
        problems.push((path.to_owned(), format!("{given} is too large, the most is {most}")));
    }
}
