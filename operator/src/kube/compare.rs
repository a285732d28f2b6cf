//! Whether a child already is as desired: compared before any write, so that converged input makes none.
//!
//! Two checks. The annotation with the hash of what was last sent tells that the *desired* state has not changed; the
//! subset comparison tells that nobody changed the *live* one. The API server adds defaults and writes quantities its own
//! way (`1000m` becomes `1`), so a live object may hold more, and quantities are compared by value.

use forebay_crds::quantity::quantity;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Holds the hash of what was last sent.
pub(crate) const HASH_ANNOTATION: &str = "forebay.dev/applied-hash";

/// A short hash of a JSON value; `serde_json` keeps keys sorted, so equal values give equal hashes.
pub(crate) fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// `desired` with the hash of itself as an annotation.
pub(crate) fn with_hash(mut desired: Value) -> Value {
    let hash = hash(&desired);
    if let Some(metadata) = desired.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(HASH_ANNOTATION.to_owned(), hash.into());
        }
    }
    desired
}

/// The same without the annotation.
pub(crate) fn without_hash(mut desired: Value) -> Value {
    if let Some(metadata) = desired.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(HASH_ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    desired
}

/// Whether everything in `desired` is in `live`, which may hold more. Lists are compared as sets of such things, since
/// others may add to them.
pub(crate) fn is_within(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired.iter().all(|(key, value)| match live.get(key) {
            Some(live) => is_within(value, live),
            None => is_empty(value),
        }),
        (Value::Array(desired), Value::Array(live)) => {
            desired.iter().all(|item| live.iter().any(|other| is_within(item, other)))
        }
        (Value::String(desired), Value::String(live)) => desired == live || same_quantity(desired, live),
        (Value::Number(desired), Value::Number(live)) => desired.as_f64() == live.as_f64(),
        (desired, live) => desired == live,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn same_quantity(left: &str, right: &str) -> bool {
    match (quantity(left), quantity(right)) {
        (Some(left), Some(right)) => left == right,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_api_server_adds_and_rewrites_is_no_difference() {
        let desired =
            json!({"spec": {"ports": [{"port": 1}], "cpu": "1000m", "memory": "1Gi", "labels": {}, "count": 2}});
        let live = json!({"spec": {"ports": [{"port": 9}, {"port": 1, "protocol": "TCP"}], "cpu": "1", "memory": "1073741824", "x": 1, "count": 2.0}});
        assert!(is_within(&desired, &live));
    }

    #[test]
    fn what_somebody_changed_is_a_difference() {
        let desired = json!({"spec": {"ports": [{"port": 1}], "cpu": "1"}});
        assert!(!is_within(&desired, &json!({"spec": {"ports": [{"port": 2}], "cpu": "1"}})));
        assert!(!is_within(&desired, &json!({"spec": {"ports": [{"port": 1}], "cpu": "2"}})));
        assert!(!is_within(&desired, &json!({"spec": {"ports": [{"port": 1}]}})));
    }

    #[test]
    fn quantities_by_value() {
        for (left, right) in [("1000m", "1"), ("1Gi", "1024Mi"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("1e3", "x")] {
            assert_eq!(same_quantity(left, right), right != "x", "{left} {right}");
        }
    }

    #[test]
    fn the_hash_is_that_of_what_is_sent_and_the_same_for_the_same() {
        let sent = with_hash(json!({"metadata": {"name": "a"}, "data": {"x": "1"}}));
        assert_eq!(sent, with_hash(json!({"data": {"x": "1"}, "metadata": {"name": "a"}})));
        assert_ne!(sent["metadata"], with_hash(json!({"data": {"x": "2"}, "metadata": {"name": "a"}}))["metadata"]);
    }
}
