//! The CEL rules refuse what would lose data, and say what to do instead. The API server runs the same rules.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use forebay_crds::{Cluster, ConsumerProfile, Topic};
use kube::core::cel::{validate_cel, validate_cel_update};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const CLUSTER: &str = "{apiVersion: forebay.dev/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {replicas: 1, \
    disks: [{name: data, size: 10Gi, storageClassName: fast}, {name: more, size: 1Ti}]}}";
const TOPIC: &str = "{apiVersion: forebay.dev/v1alpha1, kind: Topic, metadata: {name: t}, spec: {clusterRef: {name: c}, partitions: 4}}";
const PROFILE: &str = "{apiVersion: forebay.dev/v1alpha1, kind: ConsumerProfile, metadata: {name: p}, spec: {clusterRef: {name: c}, \
    topics: [t], clientFamily: java, goals: {workMeanMs: 1, workWorstMs: 2}}}";

fn edited(yaml: &str, pointer: &str, value: Value) -> Value {
    let mut object: Value = serde_yaml_ng::from_str(yaml).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        Value::Object(map) if value.is_null() => drop(map.remove(key)),
        Value::Object(map) => drop(map.insert(key.to_owned(), value)),
        _ => panic!("{pointer}"),
    }
    object
}

/// What the rules say to creating `yaml` with one field changed, and to changing that field later.
fn verdicts<T>(yaml: &str, pointer: &str, value: Value) -> (String, String)
where
    T: DeserializeOwned + serde::Serialize + kube::CustomResourceExt,
{
    let old: T = serde_yaml_ng::from_str(yaml).unwrap();
    let new: T = serde_json::from_value(edited(yaml, pointer, value)).unwrap();
    let text = |result: Result<(), kube::core::cel::ValidationErrors>| {
        result.err().map(|e| format!("{e:?}")).unwrap_or_default()
    };
    (text(validate_cel(&new)), text(validate_cel_update(&new, &old)))
}

fn refused_later<T: DeserializeOwned + serde::Serialize + kube::CustomResourceExt>(
    yaml: &str,
    pointer: &str,
    value: Value,
    words: &str,
) {
    let (at_creation, later) = verdicts::<T>(yaml, pointer, value);
    assert_eq!(at_creation, "", "{pointer}");
    assert!(later.contains(words), "{pointer}: {later:?} does not say {words:?}");
}

fn refused<T: DeserializeOwned + serde::Serialize + kube::CustomResourceExt>(
    yaml: &str,
    pointer: &str,
    value: Value,
    words: &str,
) {
    let (at_creation, _) = verdicts::<T>(yaml, pointer, value);
    assert!(at_creation.contains(words), "{pointer}: {at_creation:?} does not say {words:?}");
}

fn allowed<T: DeserializeOwned + serde::Serialize + kube::CustomResourceExt>(yaml: &str, pointer: &str, value: Value) {
    assert_eq!(verdicts::<T>(yaml, pointer, value), (String::new(), String::new()), "{pointer}");
}

#[test]
fn a_topic_is_not_renamed_moved_or_shrunk() {
    refused_later::<Topic>(TOPIC, "/spec/topicName", json!("u"), "no rename");
    refused_later::<Topic>(TOPIC, "/spec/clusterRef", json!({"name": "d"}), "second Topic");
    refused_later::<Topic>(TOPIC, "/spec/partitions", json!(3), "would be lost");
    refused::<Topic>(TOPIC, "/spec/topicName", json!("__consumer_offsets"), "belong to the brokers");
    refused::<Topic>(TOPIC, "/metadata/name", json!("t".repeat(250)), "249");
}

#[test]
fn a_topic_grows_and_may_spell_out_its_name() {
    allowed::<Topic>(TOPIC, "/spec/partitions", json!(5));
    allowed::<Topic>(TOPIC, "/spec/topicName", json!("t"));
}

#[test]
fn a_disk_does_not_shrink_or_move() {
    refused_later::<Cluster>(CLUSTER, "/spec/disks/0/size", json!("9Gi"), "can't shrink");
    refused_later::<Cluster>(CLUSTER, "/spec/disks/1/size", json!("1000G"), "can't shrink");
    refused_later::<Cluster>(CLUSTER, "/spec/disks/0/storageClassName", json!("slow"), "stays in its class");
    refused_later::<Cluster>(CLUSTER, "/spec/disks/0/storageClassName", Value::Null, "stays in its class");
    refused_later::<Cluster>(CLUSTER, "/spec/disks/1/storageClassName", json!("fast"), "stays in its class");
    refused_later::<Cluster>(CLUSTER, "/spec/disks/0/mountPath", json!("/data"), "by path");
    refused::<Cluster>(CLUSTER, "/spec/disks/0/size", json!("0"), "positive");
    refused::<Cluster>(CLUSTER, "/spec/disks/0/name", json!("tmp"), "taken");
}

#[test]
fn a_disk_is_mounted_in_a_folder_of_its_own() {
    let two =
        |path: &str| json!([{"name": "data", "size": "10Gi", "mountPath": path}, {"name": "more", "size": "1Ti"}]);
    for path in ["/data/../etc", "/data/..x/../y", "/./data", "/data//x"] {
        refused::<Cluster>(CLUSTER, "/spec/disks", two(path), "write the folder itself");
    }
    for path in ["/etc/forebay", "/proc/x", "/dev"] {
        refused::<Cluster>(CLUSTER, "/spec/disks", two(path), "of the system's own");
    }
    refused::<Cluster>(CLUSTER, "/spec/disks", two("/var/lib/forebay/more"), "a folder of its own");
    for path in ["/data/a..b", "/data/.hidden", "/etcetera", "/mnt/disk-1"] {
        assert_eq!(verdicts::<Cluster>(CLUSTER, "/spec/disks", two(path)).0, "", "{path}");
    }
}

#[test]
fn a_disk_may_go_while_another_comes() {
    let data = json!({"name": "data", "size": "10Gi", "storageClassName": "fast"});
    allowed::<Cluster>(CLUSTER, "/spec/disks", json!([data]));
    allowed::<Cluster>(CLUSTER, "/spec/disks", json!([data, {"name": "new", "size": "1Ti"}]));
    for name in ["cordoned.log.dirs", "replica.alter.log.dirs.io.max.bytes.per.second"] {
        refused::<Cluster>(CLUSTER, "/spec/config", json!({name: "1"}), name);
    }
}

#[test]
fn a_disk_grows_and_another_is_added() {
    allowed::<Cluster>(CLUSTER, "/spec/disks/0/size", json!("20Gi"));
    allowed::<Cluster>(CLUSTER, "/spec/disks/1/size", json!("1024Gi"));
    let three = json!([{"name": "data", "size": "10Gi", "storageClassName": "fast"}, {"name": "more", "size": "1Ti"}, {"name": "new", "size": "1Gi"}]);
    allowed::<Cluster>(CLUSTER, "/spec/disks", three);
}

#[test]
fn a_cluster_keeps_the_operators_names_out_of_config() {
    refused::<Cluster>(CLUSTER, "/spec/config", json!({"log.dirs": "/tmp"}), "spec.disks");
    allowed::<Cluster>(CLUSTER, "/spec/config", json!({"log.segment.bytes": 1_073_741_824_i64}));
    refused::<Cluster>(CLUSTER, "/metadata/name", json!("c".repeat(41)), "40");
    refused::<Cluster>(CLUSTER, "/metadata/name", json!("c.d"), "DNS label");
}

#[test]
fn a_profile_has_something_to_compute_from() {
    refused::<ConsumerProfile>(PROFILE, "/spec/goals", Value::Null, "nothing to compute from");
    refused::<ConsumerProfile>(PROFILE, "/spec/goals/workMeanMs", json!(3), "workWorstMs");
    refused_later::<ConsumerProfile>(PROFILE, "/spec/clusterRef", json!({"name": "d"}), "second ConsumerProfile");
    allowed::<ConsumerProfile>(PROFILE, "/spec/topics", json!(["t", "u"]));
}

const LISTENERS: &str = "{apiVersion: forebay.dev/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {replicas: 3, \
    disks: [{name: data, size: 10Gi}], listeners: [{name: external, port: 9094, type: NodePort}, \
    {name: lb, port: 9095, type: LoadBalancer, loadBalancerClass: metal}, {name: pods, port: 9096, type: Internal}]}}";

#[test]
fn a_listener_keeps_away_from_the_brokers_own_ports_and_names() {
    for port in [9092, 9093, 9644] {
        refused::<Cluster>(LISTENERS, "/spec/listeners/0/port", json!(port), "for example 9094");
    }
    refused::<Cluster>(LISTENERS, "/spec/listeners/0/port", json!(9095), "each needs one of its own");
    refused::<Cluster>(LISTENERS, "/spec/listeners/0/name", json!("controller"), "for example external");
    allowed::<Cluster>(LISTENERS, "/spec/listeners/0/port", json!(9097));
}

#[test]
fn a_listener_takes_only_what_its_type_has_a_use_for() {
    let advertised = json!({"host": "b{broker}.example.com"});
    refused::<Cluster>(
        LISTENERS,
        "/spec/listeners/2/advertised",
        advertised.clone(),
        "choose type NodePort or LoadBalancer",
    );
    refused::<Cluster>(LISTENERS, "/spec/listeners/0/loadBalancerClass", json!("metal"), "choose that type");
    refused::<Cluster>(LISTENERS, "/spec/listeners/1/preferredNodeAddress", json!("Hostname"), "choose that type");
    allowed::<Cluster>(LISTENERS, "/spec/listeners/0/advertised", advertised);
    allowed::<Cluster>(LISTENERS, "/spec/listeners/0/preferredNodeAddress", json!("Hostname"));
    allowed::<Cluster>(LISTENERS, "/spec/listeners/1/loadBalancerSourceRanges", json!(["10.0.0.0/8"]));
}

#[test]
fn all_brokers_are_not_told_by_one_address() {
    let of = |advertised: Value| verdicts::<Cluster>(LISTENERS, "/spec/listeners/0/advertised", advertised).0;
    assert!(of(json!({"host": "proxy", "port": 443})).contains("give firstPort instead of port"));
    assert!(of(json!({"port": 443, "firstPort": 444})).contains("give one of them"));
    for right in [
        json!({"host": "proxy", "firstPort": 30000}),
        json!({"host": "b{broker}.x", "port": 443}),
        json!({"host": "proxy"}),
    ] {
        assert_eq!(of(right), "");
    }
}

#[test]
fn a_load_balancers_class_stays_and_a_listener_may_go() {
    refused_later::<Cluster>(LISTENERS, "/spec/listeners/1/loadBalancerClass", json!("other"), "then remove this one");
    refused_later::<Cluster>(LISTENERS, "/spec/listeners/1/loadBalancerClass", Value::Null, "then remove this one");
    allowed::<Cluster>(
        LISTENERS,
        "/spec/listeners",
        json!([{"name": "lb", "port": 9095, "type": "LoadBalancer", "loadBalancerClass": "metal"}]),
    );
    allowed::<Cluster>(LISTENERS, "/spec/listeners", json!([]));
}
