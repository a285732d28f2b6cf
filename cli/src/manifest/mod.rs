//! The manifests: files of YAML documents, each a Cluster, a Topic or a ConsumerProfile, as `kubectl apply` takes them.
//!
//! Everything wrong in all files is told at once, each by file, document and field. What is accepted here fits the schemas that
//! the API server would check, and names only things that exist.

mod check;
pub(crate) use check::topic_name;
mod schema;
mod strict;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use forebay_broker_config::nearest;
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use serde::Deserialize;
use serde_json::Value;

use schema::Schemas;
use strict::Strict;

/// The one group and version there is.
const API_VERSION: &str = "forebay.dev/v1alpha1";
const KINDS: [&str; 3] = ["Cluster", "Topic", "ConsumerProfile"];

/// What the files declare.
#[derive(Debug)]
pub(crate) struct Manifests {
    /// The one Cluster.
    pub(crate) cluster: Cluster,
    /// Topics, in the order of the files.
    pub(crate) topics: Vec<Topic>,
    /// ConsumerProfiles, in the order of the files.
    pub(crate) profiles: Vec<ConsumerProfile>,
}

/// Where a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    file: String,
    /// Counted from 1.
    document: usize,
    /// Kind and name, as far as they can be read.
    object: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)?;
        if self.object.is_empty() { Ok(()) } else { write!(f, " ({})", self.object) }
    }
}

/// One thing wrong with the manifests.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("{file}: {source}")]
    Read { file: String, source: std::io::Error },
    #[error("{place}: can't be read: {source}")]
    Yaml { place: Place, source: serde_yaml_ng::Error },
    #[error("{place}: {field}: {problem}")]
    Field { place: Place, field: String, problem: String },
    #[error("{0}")]
    Whole(String),
}

/// Everything wrong, one a line.
#[derive(Debug)]
pub(crate) struct ManifestErrors(pub(crate) Vec<ManifestError>);

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ManifestErrors {}

/// Reads and checks all files.
pub(crate) fn read(files: &[PathBuf]) -> Result<Manifests, ManifestErrors> {
    let mut errors = Vec::new();
    let mut texts = Vec::new();
    for file in files {
        match std::fs::read_to_string(file) {
            Ok(text) => texts.push((shown(file), text)),
            Err(source) => errors.push(ManifestError::Read { file: shown(file), source }),
        }
    }
    if errors.is_empty() { parse(&texts) } else { Err(ManifestErrors(errors)) }
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

/// Reads and checks texts, each with the name of its file.
pub(crate) fn parse(texts: &[(String, String)]) -> Result<Manifests, ManifestErrors> {
    let schemas = Schemas::of_crds();
    let mut found = check::Found::default();
    let mut errors = Vec::new();
    for (file, text) in texts {
        for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
            let mut place = Place { file: file.clone(), document: index + 1, object: String::new() };
            match Strict::deserialize(document).map(|Strict(value)| value) {
                Ok(Value::Null) => {} // an empty document, such as one of comments
                Ok(value) => {
                    place.object = object(&value);
                    one(&place, value, &schemas, &mut found, &mut errors);
                }
                Err(source) => {
                    errors.push(ManifestError::Yaml { place, source });
                    break; // where the next document begins is not known
                }
            }
        }
    }
    let unreadable = !errors.is_empty();
    // A Cluster that could not be read is not missing too.
    errors.extend(found.check().into_iter().filter(|error| !unreadable || !matches!(error, ManifestError::Whole(_))));
    match found.cluster() {
        Some(cluster) if errors.is_empty() => {
            Ok(Manifests { cluster, topics: strip(found.topics), profiles: strip(found.profiles) })
        }
        _ => Err(ManifestErrors(errors)),
    }
}

fn strip<T>(placed: Vec<(Place, T)>) -> Vec<T> {
    placed.into_iter().map(|(_, object)| object).collect()
}

/// Whether the API server would take an object of this name.
fn is_kubernetes_name(name: &str) -> bool {
    let part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [part.as_bytes().first(), part.as_bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(|end| plain(*end)))
            && part.bytes().all(|byte| plain(byte) || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

fn object(value: &Value) -> String {
    let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
    [text("/kind"), text("/metadata/name")].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Checks one document and puts it where it belongs.
fn one(place: &Place, value: Value, schemas: &Schemas, found: &mut check::Found, errors: &mut Vec<ManifestError>) {
    let mut problems = Vec::new();
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(schema) = schemas.of(&kind) {
        match value.get("apiVersion").and_then(Value::as_str) {
            Some(API_VERSION) => {}
            _ => problems.push(("apiVersion".to_owned(), format!("must be {API_VERSION}"))),
        }
        match value.pointer("/metadata/name").and_then(Value::as_str) {
            None | Some("") => problems.push(("metadata.name".to_owned(), "is missing".to_owned())),
            Some(name) if !is_kubernetes_name(name) => {
                let wanted = "must be lower-case letters, digits, '-' and '.', begin and end with a letter or digit, and have at most 253 characters";
                problems.push(("metadata.name".to_owned(), format!("{name:?} is no name in Kubernetes: {wanted}")));
            }
            Some(_) => {}
        }
        problems.extend(schema::check(&value, schema));
    } else {
        let near = nearest(&kind, KINDS.into_iter()).map(|near| format!("; did you mean {near:?}?"));
        let known = format!("{kind:?} is not one of {}{}", KINDS.join(", "), near.unwrap_or_default());
        problems.push(("kind".to_owned(), known));
    }
    if problems.is_empty()
        && let Err(problem) = found.take(&kind, place.clone(), value)
    {
        problems.push(("spec".to_owned(), problem));
    }
    let fields = problems.into_iter();
    errors.extend(fields.map(|(field, problem)| ManifestError::Field { place: place.clone(), field, problem }));
}
