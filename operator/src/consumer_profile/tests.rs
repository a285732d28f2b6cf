//! Plans of ConsumerProfiles: from the manifests in `examples/`, and by table: `testdata/profile/*.yaml` say what is given and what is to
//! be done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_client::admin::{ConfigEntry, ConfigSource};
use forebay_crds::ConsumerProfile;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::observe::{Brokers, Observed};
use super::plan::{Plan, plan};
use crate::kafka::{Replication, TopicSeen, TopicState};
use crate::stores::ClusterKey;
use crate::topic::ClusterSeen;

const EXAMPLES: &str = include_str!("../../../examples/profiles.yaml");

fn example(name: &str) -> ConsumerProfile {
    let documents = serde_yaml_ng::Deserializer::from_str(EXAMPLES);
    let objects = documents.map(|document| Value::deserialize(document).unwrap());
    let mut object = objects.into_iter().find(|object| object["metadata"]["name"] == name).unwrap();
    object["metadata"]["namespace"] = "n".into();
    object["metadata"]["uid"] = "u".into();
    object["metadata"]["generation"] = 1.into();
    serde_json::from_value(object).unwrap()
}

fn observed(partitions: i32, max_message_bytes: &str) -> Observed {
    let config = ConfigEntry {
        name: "max.message.bytes".into(),
        value: Some(max_message_bytes.into()),
        source: ConfigSource::DefaultConfig,
        read_only: false,
        sensitive: false,
    };
    let state = TopicState {
        topic_id: "id".into(),
        partitions,
        replication: Replication { now: 1, target_least: 1, target_most: 1, moving: 0 },
        leaders: vec![0],
        configs: vec![config],
    };
    let topics = BTreeMap::from([("orders".to_owned(), Arc::new(TopicSeen::Present(state)))]);
    Observed {
        cluster_key: ClusterKey { namespace: "n".into(), name: "quickstart".into() },
        cluster: ClusterSeen::Reached(Brokers { config: BTreeMap::new(), topics }),
        config_map: None,
    }
}

fn planned(profile: &ConsumerProfile, observed: &Observed) -> Plan {
    plan(profile, observed, Duration::from_secs(30), Timestamp::from_second(1_800_000_000).unwrap()).unwrap()
}

fn ready(plan: &Plan) -> String {
    let condition = &plan.status.conditions[0];
    format!("{} {}: {}", condition.status, condition.reason, condition.message)
}

/// The object after a pass: its status written, its ConfigMap applied.
fn after(profile: &ConsumerProfile, observed: &Observed, plan: Plan) -> (ConsumerProfile, Observed) {
    let (mut profile, mut observed) = (profile.clone(), observed.clone());
    profile.status = Some(plan.status);
    observed.config_map = plan.config_map.map(|child| child.value).or(observed.config_map);
    (profile, observed)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    given: Given,
    plan: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Given {
    spec: Value,
    partitions: i32,
    /// Settings that were accepted before, with the ConfigMap that has them.
    accepted_spec: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Expected {
    /// Whether the ConfigMap is written.
    config_map: bool,
    ready: String,
    events: Vec<String>,
    /// What the status says of settings; absent: none of that name.
    settings: BTreeMap<String, String>,
}

fn profile(spec: &Value) -> ConsumerProfile {
    let mut object = serde_json::json!({
        "apiVersion": "forebay.dev/v1alpha1", "kind": "ConsumerProfile",
        "metadata": {"name": "billing", "namespace": "n", "uid": "u", "generation": 2},
        "spec": {"clusterRef": {"name": "quickstart"}, "topics": ["orders"], "clientFamily": "java"},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn every_case_gives_its_plan() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/profile");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let case: Case = serde_yaml_ng::from_str(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut observed = observed(case.given.partitions, "1048588");
        let mut profile = profile(&case.given.spec);
        if let Some(before) = &case.given.accepted_spec {
            let before = self::profile(before);
            let (before, seen) = after(&before, &observed, planned(&before, &observed));
            (profile.status, observed) = (before.status, seen);
        }
        let plan = planned(&profile, &observed);
        assert_eq!(ready(&plan), case.plan.ready, "{}", path.display());
        assert_eq!(plan.config_map.is_some(), case.plan.config_map, "{}", path.display());
        let told = |note: &crate::kube::events::Note| {
            format!("{}{}", if note.warning { "!" } else { "" }, note.reason.as_str())
        };
        assert_eq!(plan.notes.iter().map(told).collect::<Vec<_>>(), case.plan.events, "{}", path.display());
        for (name, value) in &case.plan.settings {
            let found = plan.status.settings.get(name).map(String::as_str);
            assert_eq!(found, Some(value.as_str()).filter(|value| *value != "-"), "{} {name}", path.display());
        }
        assert_eq!(plan.status.observed_generation, Some(2));
        assert_eq!(plan.status.conditions[0].observed_generation, Some(2));
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} cases");
}

#[test]
fn presets_and_numbers_get_a_config_map_with_a_file_per_client() {
    for name in ["projection", "reconciliation", "low-traffic", "latency-critical", "by-numbers"] {
        let plan = planned(&example(name), &observed(4, "1048588"));
        assert!(ready(&plan).starts_with("True "), "{name}: {}", ready(&plan));
        let data = plan.config_map.unwrap().value["data"].clone();
        for file in ["java.properties", "librdkafka.properties", "franz-go.json"] {
            assert!(data[file].as_str().is_some_and(|text| text.contains(name)), "{name} {file}: {data}");
        }
        assert!(plan.status.predicted.is_some() && !plan.status.settings.is_empty());
    }
}

#[test]
fn set_d_is_refused_and_gets_no_config_map() {
    let plan = planned(&example("refused"), &observed(4, "1048588"));
    assert!(plan.config_map.is_none() && plan.status.settings.is_empty() && plan.status.config_map_name.is_none());
    let ready = ready(&plan);
    assert!(ready.starts_with("False SettingsRefused: fetch-ceiling: "), "{ready}");
    assert!(ready.contains("4 partitions × ") && ready.contains("works is 4194304 (4 MiB)"), "{ready}");
}

#[test]
fn a_refusal_leaves_the_config_map_and_the_settings_as_they_were() {
    let mut profile = example("reconciliation");
    let first = observed(4, "1048588");
    let (accepted, seen) = after(&profile, &first, planned(&profile, &first));
    profile = accepted;
    let settings = profile.status.as_ref().unwrap().settings.clone();
    profile.spec.settings = example("refused").spec.settings;
    let plan = planned(&profile, &seen);
    assert!(plan.config_map.is_none());
    assert_eq!(plan.status.settings, settings);
    assert!(ready(&plan).starts_with("False SettingsRefused"));
    assert_eq!(plan.notes.len(), 1);
}

#[test]
fn nothing_changes_while_nothing_changes_and_the_config_map_follows_the_partitions() {
    let profile = example("reconciliation");
    let first = observed(1, "1048588");
    let (profile, seen) = after(&profile, &first, planned(&profile, &first));
    let again = planned(&profile, &seen);
    assert!(again.config_map.is_none() && again.notes.is_empty());
    assert_eq!(Some(&again.status), profile.status.as_ref());
    let grown = Observed { config_map: seen.config_map, ..observed(4, "8388608") };
    assert!(
        planned(&profile, &grown).config_map.is_some(),
        "the largest batch has grown, so has the share of a partition"
    );
}

#[test]
fn what_is_missing_is_named() {
    let profile = example("projection");
    let mut seen = observed(4, "1048588");
    seen.cluster = ClusterSeen::Missing;
    assert_eq!(ready(&planned(&profile, &seen)), "False ClusterNotFound: Cluster n/quickstart does not exist");
    let topics = BTreeMap::from([("orders".to_owned(), Arc::new(TopicSeen::Absent))]);
    seen.cluster = ClusterSeen::Reached(Brokers { config: BTreeMap::new(), topics });
    assert_eq!(
        ready(&planned(&profile, &seen)),
        "False TopicNotFound: topic orders does not exist: its partitions are not known"
    );
    let mut other = observed(4, "1048588");
    other.config_map = Some(serde_json::json!({"metadata": {"name": "projection-consumer"}}));
    assert!(ready(&planned(&profile, &other)).starts_with("False ResourceConflict: ConfigMap/projection-consumer"));
}
