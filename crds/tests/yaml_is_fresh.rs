//! `yaml/` is what the types give: `UPDATE=1 cargo test -p forebay-crds` rewrites it, and the chart's copy where there is one.

use std::path::Path;

fn folders() -> Vec<std::path::PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let chart = here.join("../charts/forebay/files/crds");
    let mut folders = vec![here.join("yaml")];
    folders.extend(chart.is_dir().then_some(chart));
    folders
}

#[test]
fn committed_yaml_is_what_the_types_give() {
    for (name, crd) in forebay_crds::crds() {
        let yaml = serde_yaml_ng::to_string(&crd).unwrap();
        let generated = format!("# Generated from crds/src by `UPDATE=1 cargo test -p forebay-crds`.\n{yaml}");
        for folder in folders() {
            let path = folder.join(name);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&path, &generated).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == generated, "{} is stale: UPDATE=1 cargo test -p forebay-crds", path.display());
        }
    }
}

fn assert_schema_is_plain(value: &serde_json::Value, path: &str) {
    let serde_json::Value::Object(map) = value else {
        if let serde_json::Value::Array(items) = value {
            items.iter().for_each(|item| assert_schema_is_plain(item, path));
        }
        return;
    };
    if path.ends_with(".properties") {
        map.iter().for_each(|(key, child)| assert_schema_is_plain(child, &format!("{path}.{key}")));
        return;
    }
    // A status is not stored by default: whoever reads an object without one is told that nothing has looked at it.
    let unobserved = serde_json::json!({"observedGeneration": -1});
    let is_status = path.ends_with(".yaml.properties.status");
    assert_eq!(
        map.get("default"),
        is_status.then_some(&unobserved),
        "{path}: a schema default would be stored for ever; a status must have one"
    );
    if let Some(format) = map.get("format").and_then(|format| format.as_str()) {
        assert!(!format.starts_with("uint"), "{path} has format {format}, about which the API server warns");
    }
    let choices = map.get("enum").and_then(|choices| choices.as_array());
    assert!(
        choices.into_iter().flatten().all(|choice| !choice.is_null()),
        "{path}: kubectl explain shows a choice that is none"
    );
    let described = map.contains_key("description") || path.ends_with("Properties") || path.ends_with(".items");
    assert!(
        described
            || !path.contains(".spec.properties") && !path.contains(".status.properties")
            || map.get("type").is_none(),
        "{path} has no description for kubectl explain"
    );
    map.iter().for_each(|(key, child)| assert_schema_is_plain(child, &format!("{path}.{key}")));
}

#[test]
fn schemas_have_docs_and_neither_defaults_nor_unsigned_formats() {
    for (name, crd) in forebay_crds::crds() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema).unwrap();
        assert_schema_is_plain(&schema, name);
    }
}
