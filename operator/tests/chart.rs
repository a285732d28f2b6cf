//! What the chart renders, read by the types of the API at the oldest level supported: a field that the API does not know would
//! be dropped in silence, or refused, and here it is named.
#![expect(clippy::panic, reason = "all of this file is a test")]

use std::path::Path;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The object as its type understands it.
fn understood<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<K>(object.clone())?)
}

fn as_the_api_has_it(object: &Value) -> Option<Result<Value, serde_json::Error>> {
    let kind = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    Some(match kind {
        ("apps/v1", "DaemonSet") => understood::<DaemonSet>(object),
        ("apps/v1", "Deployment") => understood::<Deployment>(object),
        ("v1", "ConfigMap") => understood::<ConfigMap>(object),
        ("v1", "Pod") => understood::<Pod>(object),
        ("v1", "Service") => understood::<Service>(object),
        ("v1", "ServiceAccount") => understood::<ServiceAccount>(object),
        ("networking.k8s.io/v1", "NetworkPolicy") => understood::<NetworkPolicy>(object),
        ("policy/v1", "PodDisruptionBudget") => understood::<PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => understood::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => understood::<ClusterRoleBinding>(object),
        ("rbac.authorization.k8s.io/v1", "Role") => understood::<Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => understood::<RoleBinding>(object),
        ("monitoring.coreos.com/v1", "PodMonitor" | "ServiceMonitor" | "PrometheusRule") => return None,
        (version, kind) => panic!("{version} {kind}: add its type here"),
    })
}

/// Paths of what is in `written` and was not understood.
fn lost(path: &str, written: &Value, understood: &Value, found: &mut Vec<String>) {
    match (written, understood) {
        (Value::Object(written), _) => {
            for (key, value) in written {
                lost(&format!("{path}.{key}"), value, &understood[key], found);
            }
        }
        (Value::Array(written), _) => {
            for (index, value) in written.iter().enumerate() {
                lost(&format!("{path}[{index}]"), value, &understood[index], found);
            }
        }
        (Value::Null, _) => {}
        (written, understood) if written == understood => {}
        _ => found.push(format!("{path}: {written} became {understood}")),
    }
}

#[test]
fn the_api_knows_every_field_that_the_chart_renders() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/forebay/golden");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let object = Value::deserialize(document).unwrap();
            let Some(understood) = as_the_api_has_it(&object) else { continue };
            let name = format!("{}: {} {}", path.display(), object["kind"], object["metadata"]["name"]);
            let understood = understood.unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut found = Vec::new();
            lost("", &object, &understood, &mut found);
            assert!(found.is_empty(), "{name}: {found:?}");
            seen += 1;
        }
    }
    assert!(seen >= 30, "only {seen} objects");
}

#[test]
fn a_field_that_the_api_does_not_know_is_named() {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"port": 1, "ports": [{"port": 80}]},
    });
    let mut found = Vec::new();
    lost("", &object, &as_the_api_has_it(&object).unwrap().unwrap(), &mut found);
    assert_eq!(found, [".spec.port: 1 became null"]);
}
