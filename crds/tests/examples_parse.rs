//! The manifests in `examples/` are valid: they decode, without unknown fields, and pass their own CEL rules.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

use forebay_crds::{Cluster, ConsumerProfile, Topic};
use kube::core::cel::{validate_cel, validate_cel_update};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// `5000` and `5000.0` are the same number to the API server.
fn with_plain_numbers(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(with_plain_numbers).collect(),
        Value::Object(map) => map.into_iter().map(|(key, child)| (key, with_plain_numbers(child))).collect(),
        other => other,
    }
}

fn check<T>(given: &serde_json::Value)
where
    T: DeserializeOwned + serde::Serialize + kube::CustomResourceExt,
{
    let object: T = serde_json::from_value(given.clone()).unwrap_or_else(|error| panic!("{error}: {given}"));
    let mut back = serde_json::to_value(&object).unwrap();
    back.as_object_mut().unwrap().remove("status");
    assert_eq!(with_plain_numbers(back), with_plain_numbers(given.clone()), "a field was dropped or renamed");
    validate_cel(&object).unwrap_or_else(|errors| panic!("{errors:?}: {given}"));
    validate_cel_update(&object, &object).unwrap_or_else(|errors| panic!("{errors:?}: {given}"));
}

#[test]
fn every_example_decodes_and_passes_its_rules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        for document in serde_yaml_ng::Deserializer::from_str(&std::fs::read_to_string(&path).unwrap()) {
            let given = serde_json::Value::deserialize(document).unwrap();
            match given["kind"].as_str().unwrap() {
                "Cluster" => check::<Cluster>(&given),
                "Topic" => check::<Topic>(&given),
                "ConsumerProfile" => check::<ConsumerProfile>(&given),
                other => panic!("{}: kind {other} is not ours", path.display()),
            }
            seen += 1;
        }
    }
    assert!(seen >= 9, "only {seen} examples were found");
}
