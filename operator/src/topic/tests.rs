//! Plans of Topics: `testdata/topic/*.yaml` say what is given and what is to be done.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_client::admin::{ConfigEntry, ConfigSource};
use forebay_crds::Topic;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::observe::{ClusterSeen, Observed, Placement};
use super::placement::{Host, Placed};
use super::plan::{Pace, Plan, Refused, plan};
use crate::kafka::{Replication, TopicSeen, TopicState};
use crate::stores::{ClusterKey, topic_name};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn pace() -> Pace {
    Pace { resync: Duration::from_secs(30), settled: Duration::from_secs(600) }
}

fn topic(given: &Given) -> Topic {
    let mut object = json!({
        "apiVersion": "forebay.dev/v1alpha1", "kind": "Topic",
        "metadata": {"name": "orders", "namespace": "n", "uid": "u", "generation": 2, "finalizers": ["forebay.dev/topic"]},
        "spec": {"clusterRef": {"name": "c"}, "partitions": 4},
    });
    for (key, value) in given.spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    if given.deleting {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    if given.without_finalizer {
        object["metadata"]["finalizers"] = json!([]);
    }
    if let Some(status) = &given.status {
        object["status"] = status.clone();
    }
    serde_json::from_value(object).unwrap()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    given: Given,
    plan: Expected,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Given {
    spec: Value,
    status: Option<Value>,
    deleting: bool,
    without_finalizer: bool,
    owner: Option<String>,
    namespace_is_terminating: bool,
    /// Brokers that could take replicas; each partition has its replicas on the first ones.
    brokers: Option<i32>,
    /// `missing`, `deleting`, `not allowed`, or why it can't be reached; none: reached.
    cluster: Option<String>,
    topic: Option<Seen>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    partitions: i32,
    #[serde(default)]
    replication: Option<i32>,
    /// Now, target, partitions that move: instead of `replication`.
    #[serde(default)]
    moves: Option<(i32, i32, i32)>,
    #[serde(default)]
    config: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    actions: Vec<String>,
    ready: Option<String>,
    events: Vec<String>,
}

fn observed(given: &Given, topic: &Topic) -> Observed {
    let entry = |(name, value): (&String, &String), source| ConfigEntry {
        name: name.clone(),
        value: Some(value.clone()),
        source,
        read_only: false,
        sensitive: false,
    };
    let seen = given.topic.as_ref().map_or(TopicSeen::Absent, |seen| {
        let mut configs: Vec<_> = seen.config.iter().map(|pair| entry(pair, ConfigSource::TopicConfig)).collect();
        configs.push(entry((&"max.message.bytes".into(), &"1048588".into()), ConfigSource::DefaultConfig));
        TopicSeen::Present(TopicState {
            topic_id: "AAAAAAAAAAAAAAAAAAAAAQ".into(),
            partitions: seen.partitions,
            replication: seen.moves.map_or_else(
                || {
                    let factor = seen.replication.unwrap_or(1);
                    Replication { now: factor, target_least: factor, target_most: factor, moving: 0 }
                },
                |(now, target, moving)| Replication { now, target_least: target, target_most: target, moving },
            ),
            leaders: vec![0],
            configs,
        })
    });
    Observed {
        cluster_key: ClusterKey { namespace: "n".into(), name: "c".into() },
        topic_name: topic_name(topic),
        cluster: match given.cluster.as_deref() {
            None => ClusterSeen::Reached(Arc::new(seen)),
            Some("missing") => ClusterSeen::Missing,
            Some("deleting") => ClusterSeen::Deleting,
            Some("not allowed") => ClusterSeen::NotAllowed,
            Some(why) => ClusterSeen::Unreachable(why.to_owned()),
        },
        owner: given.owner.clone(),
        placement: given.brokers.map(|count| {
            let (partitions, replicas) =
                given.topic.as_ref().map_or((0, 1), |t| (t.partitions, t.replication.unwrap_or(1)));
            let on: Vec<i32> = (0..replicas).collect();
            let placed = |index| Placed { index, replicas: on.clone(), in_sync: on.clone() };
            let hosts = (0..count).map(|id| Host { id, rack: None }).collect();
            Ok(Placement { partitions: (0..partitions).map(placed).collect(), hosts })
        }),
        namespace_is_terminating: given.namespace_is_terminating,
    }
}

fn ready(plan: &Plan) -> Option<String> {
    let condition = plan.status.as_ref()?.conditions.first()?;
    assert_eq!((condition.type_.as_str(), condition.observed_generation), ("Ready", Some(2)));
    Some(format!("{} {}: {}", condition.status, condition.reason, condition.message))
}

#[test]
fn every_case_gives_its_plan() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/topic");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let case: Case = serde_yaml_ng::from_str(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let topic = topic(&case.given);
        let plan = plan(&topic, &observed(&case.given, &topic), pace(), now());
        let actions: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
        assert_eq!(actions, case.plan.actions, "{}", path.display());
        assert_eq!(ready(&plan), case.plan.ready, "{}", path.display());
        let events: Vec<String> = plan.notes.iter().map(|note| note.reason.as_str().to_owned()).collect();
        assert_eq!(events, case.plan.events, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 15, "only {seen} cases");
}

#[test]
fn a_refused_deletion_says_the_way_out_and_a_refused_change_says_what_brokers_said() {
    let refused = Refused("delete topic orders: topic deletion is disabled (TOPIC_DELETION_DISABLED)".to_owned());
    for (deleting, reason, words) in
        [(true, "DeleteRefused", "reclaimPolicy to Retain"), (false, "KafkaError", "is disabled")]
    {
        let given = Given {
            deleting,
            topic: Some(Seen { partitions: 4, replication: None, moves: None, config: BTreeMap::new() }),
            ..Given::default()
        };
        let topic = topic(&given);
        let plan = plan(&topic, &observed(&given, &topic), pace(), now()).refused(&topic, &refused, now());
        let ready = ready(&plan).unwrap();
        assert!(
            ready.contains(reason) && ready.contains(words) && ready.contains("TOPIC_DELETION_DISABLED"),
            "{ready}"
        );
        assert_eq!(plan.requeue, crate::reconcile::Requeue::Backoff);
    }
}

#[test]
fn a_status_that_was_written_is_the_status_that_is_planned_next() {
    let mut given = Given {
        topic: Some(Seen { partitions: 4, replication: None, moves: None, config: BTreeMap::new() }),
        ..Given::default()
    };
    let object = topic(&given);
    let first = plan(&object, &observed(&given, &object), pace(), now());
    given.status = Some(serde_json::to_value(first.status.as_ref().unwrap()).unwrap());
    let object = topic(&given);
    let second = plan(&object, &observed(&given, &object), pace(), Timestamp::from_second(1_900_000_000).unwrap());
    assert_eq!(first.status, second.status);
    assert!(second.actions.is_empty() && second.notes.is_empty());
}
