//! Plans of Clusters: `testdata/cluster/*.yaml` say what is given and what is to be done; the children are compared with
//! `testdata/cluster/children/*.yaml` (`UPDATE=1` rewrites those).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_broker_config::status::BrokerStatus;
use forebay_crds::Cluster;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::apply::{Failure, with_failures};
use super::build::{Defaults, broker_set_name};
use super::listeners::{NodeAddress, Nodes};
use super::observe::{ClaimSeen, Observed, PodSeen};
use super::plan::{Plan, desired, plan};
use super::racks::{NoRack, RackSeen};
use super::rebind::LostSeen;
use super::{disks, roll, scale};
use crate::kafka::brokers::{BrokersSeen, PartitionSeen};
use crate::kafka::log_dirs::{DirSeen, ReplicaSeen};
use crate::kafka::moves::MovesSeen;
use crate::kube::apply::Child;
use crate::kube::compare;
use crate::kube::events::Note;

fn testdata(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(folder)
}

fn defaults() -> Defaults {
    Defaults { broker_image: "forebay-broker:test".to_owned(), cluster_domain: "cluster.local".to_owned() }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// The Cluster of a case: what a case does not say is that of an ordinary one.
fn cluster(spec: &Value) -> Cluster {
    let mut object = json!({
        "apiVersion": "forebay.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "c", "namespace": "n", "uid": "cluster-uid", "generation": 3},
        "spec": {"replicas": 1, "disks": [{"name": "data", "size": "10Gi"}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// A child as the API server would have it: with defaults, a version, and the set's controller at rest.
fn live(child: &Child, revision: &str) -> Value {
    let mut value = child.value.clone();
    value["metadata"]["resourceVersion"] = "7".into();
    value["metadata"]["generation"] = 2.into();
    value["metadata"]["uid"] = format!("uid-of-{}", child.name).into();
    if child.resource.kind == "StatefulSet" {
        value["status"] = json!({"observedGeneration": 2, "updateRevision": revision});
        value["spec"]["revisionHistoryLimit"] = 10.into();
    }
    let kind = value["spec"]["type"].as_str().unwrap_or_default();
    if child.resource.kind == "Service" && ["NodePort", "LoadBalancer"].contains(&kind) {
        // Of broker n 31000 + n, and 31099 to begin with.
        let number: i32 = child.name.rsplit('-').next().and_then(|end| end.parse().ok()).unwrap_or(99);
        let port = &mut value["spec"]["ports"][0];
        if port["nodePort"].is_null() {
            port["nodePort"] = (31_000 + number).into();
        }
        value["status"] = json!({"loadBalancer": {"ingress": []}});
    }
    value
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    given: Given,
    plan: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
#[derive(Default)]
struct Given {
    spec: Value,
    /// What the Cluster's metadata has beside the ordinary.
    metadata: serde_json::Map<String, Value>,
    /// The spec by which the live children were made; none: no child exists.
    live_spec: Option<Value>,
    /// The live set's replicas, if not those of `live_spec`.
    live_replicas: Option<i32>,
    live_changes: BTreeMap<String, BTreeMap<String, Value>>,
    /// Children of `live_spec` that are not there.
    live_missing: Vec<String>,
    revision: String,
    pods: Vec<Pod>,
    brokers: Option<Brokers>,
    set_on_brokers: Option<BTreeMap<String, String>>,
    /// Addresses of nodes by their kind; none: nodes may not be read.
    nodes: BTreeMap<String, Option<BTreeMap<String, String>>>,
    claims: BTreeMap<String, [String; 2]>,
    /// The spec that was applied over `live_spec` meanwhile, if any.
    applied_spec: Option<Value>,
    /// It was applied before claims had the marks of their disks.
    applied_unmarked: bool,
    /// Claims by what has become of their disk.
    disk_marks: BTreeMap<String, String>,
    /// What brokers have on their disks.
    dirs: BTreeMap<i32, Vec<Dir>>,
    /// Claims by what has become of their broker.
    marks: BTreeMap<String, String>,
    /// Claims by how long ago their volume has grown, whose file system has not.
    grown_seconds_ago: BTreeMap<String, i64>,
    moves: Option<Moves>,
}

/// What the brokers say when they are asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Brokers {
    leader: i32,
    #[serde(default)]
    partitions: Vec<Partition>,
}

/// A log dir: bytes of the disk, bytes free on it, and bytes by partition (`TOPIC-N`) of replicas and of copies to be.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dir {
    path: String,
    total: u64,
    free: u64,
    #[serde(default)]
    replicas: BTreeMap<String, u64>,
    #[serde(default)]
    futures: BTreeMap<String, u64>,
}

impl Dir {
    pub(super) fn seen(&self) -> DirSeen {
        let replica = |(partition, bytes): (&String, &u64), is_future| {
            let (topic, index) = partition.rsplit_once('-').unwrap();
            ReplicaSeen { topic: topic.to_owned(), index: index.parse().unwrap(), bytes: *bytes, is_future }
        };
        let replicas = self.replicas.iter().map(|one| replica(one, false));
        let replicas = replicas.chain(self.futures.iter().map(|one| replica(one, true))).collect();
        DirSeen { path: self.path.clone(), room: Some((self.total, self.free)), replicas }
    }
}

/// What the brokers say of moves.
#[derive(Clone, Deserialize, Default)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Moves {
    moving: Vec<(String, i32)>,
    throttled: Vec<String>,
    bytes_per_second: Option<i64>,
    on_disks: BTreeMap<i32, usize>,
    at_work: BTreeMap<i32, Option<String>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Partition {
    topic: String,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
    min: usize,
}

impl Partition {
    fn seen(self, index: i32) -> PartitionSeen {
        let Self { topic, replicas, in_sync, min } = self;
        PartitionSeen { topic, index, replicas, in_sync, min_in_sync: min }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pod {
    ordinal: i32,
    revision: String,
    #[serde(default)]
    ready: bool,
    message: Option<String>,
    /// The node of its disk, which is gone.
    lost: Option<String>,
    unplaced_seconds: Option<i64>,
    /// The rack label that the pod has.
    rack: Option<String>,
    /// The rack label of its node, which it does not have yet.
    rack_to_come: Option<String>,
    /// Why its node has none.
    no_rack: Option<String>,
    /// Why the operator may not look for it.
    rack_forbidden: Option<String>,
    /// Why the operator could not look for it.
    rack_unknown: Option<String>,
    /// The pod says why it has no rack.
    #[serde(default)]
    is_told: bool,
    #[serde(default)]
    deleting: bool,
    #[serde(default)]
    disks: Vec<String>,
    made_seconds_ago: Option<i64>,
    node: Option<String>,
    #[serde(rename = "hostIp")]
    host_ip: Option<std::net::IpAddr>,
    status: Option<BrokerStatus>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    actions: Vec<String>,
    /// Events of what has become known, `!` before warnings; not looked at if not given.
    events: Option<Vec<String>>,
    conditions: BTreeMap<String, String>,
    /// Disks that are being removed.
    #[serde(default)]
    removing: Vec<String>,
    /// Listeners by name: what clients begin with, `-` for nothing.
    #[serde(default)]
    listeners: BTreeMap<String, String>,
}

fn rack_of(pod: &Pod) -> RackSeen {
    let no_rack = |why: String| NoRack { why, is_told: pod.is_told };
    let found = [
        pod.rack.clone().map(RackSeen::OnPod),
        pod.rack_to_come.clone().map(RackSeen::OnNode),
        pod.no_rack.clone().map(no_rack).map(RackSeen::Nowhere),
        pod.rack_forbidden.clone().map(no_rack).map(RackSeen::Forbidden),
        pod.rack_unknown.clone().map(RackSeen::Unknown),
    ];
    found.into_iter().flatten().next().unwrap_or_default()
}

fn pod_seen(pod: &Pod, name: String) -> PodSeen {
    PodSeen {
        uid: format!("uid-of-{name}"),
        name,
        ordinal: pod.ordinal,
        revision: pod.revision.clone(),
        ready: pod.ready,
        message: pod.message.clone(),
        lost: pod.lost.clone().map(|node| LostSeen {
            nodes: vec![node],
            claims: vec![(format!("data-c-broker-{}", pod.ordinal), "claim-uid".to_owned())],
        }),
        unplaced_since: pod.unplaced_seconds.map(|seconds| now() - SignedDuration::from_secs(seconds)),
        rack: rack_of(pod),
        deleting: pod.deleting,
        disks: pod.disks.clone(),
        created: pod.made_seconds_ago.map(|seconds| now() - SignedDuration::from_secs(seconds)),
        node: Some(pod.node.clone().unwrap_or_else(|| "node-1".to_owned())),
        host_ip: pod.host_ip,
        ..PodSeen::default()
    }
}

fn nodes_of(given: &Given) -> Nodes {
    let seen = |(kind, address): (&String, &String)| NodeAddress { kind: kind.clone(), address: address.clone() };
    let addresses = |found: &Option<BTreeMap<String, String>>| match found {
        Some(found) => Ok(found.iter().map(seen).collect()),
        None => Err("the operator may not read nodes".to_owned()),
    };
    given.nodes.iter().map(|(node, found)| (node.clone(), addresses(found))).collect()
}

fn claims_of(given: &Given) -> Vec<ClaimSeen> {
    given
        .claims
        .iter()
        .map(|(name, [requested, capacity])| ClaimSeen {
            name: name.clone(),
            uid: format!("uid-of-{name}"),
            volume: None,
            broker: given.marks.get(name).cloned(),
            disk: given.disk_marks.get(name).filter(|_| !given.applied_unmarked).cloned(),
            requested: requested.clone(),
            capacity: Some(capacity.clone()),
            unmounted_growth: given.grown_seconds_ago.get(name).map(|ago| now() - SignedDuration::from_secs(*ago)),
        })
        .collect()
}

fn observed(given: &Given) -> Observed {
    let mut observed = Observed::default();
    for pod in &given.pods {
        let name = format!("{}-{}", broker_set_name("c"), pod.ordinal);
        if let Some(status) = &pod.status {
            observed.reports.insert(name.clone(), Ok(status.clone()));
        }
        observed.pods.push(pod_seen(pod, name));
    }
    let before = observed.clone();
    if let Some(spec) = &given.live_spec {
        for mut child in desired(&cluster(spec), &defaults(), &before).unwrap() {
            if let (Some(replicas), "StatefulSet") = (given.live_replicas, child.resource.kind.as_str()) {
                child.value["spec"]["replicas"] = replicas.into();
                child.value = compare::with_hash(compare::without_hash(child.value));
            }
            let mut value = live(&child, &given.revision);
            for (pointer, new) in given.live_changes.get(&child.key()).into_iter().flatten() {
                *value.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = new.clone();
            }
            observed.children.insert(child.key(), value);
        }
    }
    let set = observed.children.get(&format!("StatefulSet/{}", broker_set_name("c")));
    let marks = set.map(|set| roll::marks_of(&set["spec"]["template"])).unwrap_or_default();
    observed.pods.iter_mut().for_each(|pod| pod.marks = marks.clone());
    observed.brokers = given.brokers.as_ref().map(|brokers| {
        let partitions = (0..).zip(brokers.partitions.iter().cloned());
        Ok(BrokersSeen {
            partitions: partitions.map(|(index, partition)| partition.seen(index)).collect(),
            quorum_leader: Some(brokers.leader),
            voters: vec![0, 1, 2],
        })
    });
    observed.moves = given.moves.clone().map(|moves| {
        Ok(MovesSeen {
            moving: moves.moving.into_iter().map(|partition| (partition, Vec::new())).collect(),
            throttled: moves.throttled.into_iter().collect(),
            bytes_per_second: moves.bytes_per_second,
            on_disks: moves.on_disks,
            at_work: moves.at_work,
        })
    });
    observed.nodes = nodes_of(given);
    observed.set_on_brokers = given.set_on_brokers.clone().map(Ok);
    observed.claims = claims_of(given);
    observed.dirs = given.dirs.iter().map(|(id, dirs)| (*id, Ok(dirs.iter().map(Dir::seen).collect()))).collect();
    if let Some(spec) = &given.applied_spec {
        for child in desired(&cluster(spec), &defaults(), &observed).unwrap() {
            observed.children.insert(child.key(), live(&child, &given.revision));
        }
    }
    observed.children.retain(|key, _| !given.live_missing.contains(key));
    for claim in &mut observed.claims {
        claim.disk = given.disk_marks.get(&claim.name).cloned();
    }
    for pod in &mut observed.pods {
        let claims = scale::claims_of(&cluster(&given.spec), &observed.claims, pod.ordinal);
        pod.holds_growth_of = disks::held_by(pod, &claims, now());
    }
    observed
}

fn planned(cluster: &Cluster, observed: &Observed) -> Plan {
    plan(cluster, desired(cluster, &defaults(), observed), observed, &defaults(), Duration::from_secs(30), now())
}

#[test]
fn every_case_gives_its_plan() {
    let mut seen = 0;
    for entry in std::fs::read_dir(testdata("cluster")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let case: Case = serde_yaml_ng::from_str(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut cluster = cluster(&case.given.spec);
        let tools: kube::core::ObjectMeta = serde_json::from_value(Value::Object(case.given.metadata.clone())).unwrap();
        (cluster.metadata.labels, cluster.metadata.annotations) = (tools.labels, tools.annotations);
        let plan = planned(&cluster, &observed(&case.given));
        let actions: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
        assert_eq!(actions, case.plan.actions, "{}", path.display());
        if let Some(events) = &case.plan.events {
            let told = |note: &Note| format!("{}{}", if note.warning { "!" } else { "" }, note.reason.as_str());
            assert_eq!(&plan.notes.iter().map(told).collect::<Vec<_>>(), events, "{}", path.display());
        }
        for (condition, expected) in &case.plan.conditions {
            let found = plan.status.conditions.iter().find(|c| c.type_ == *condition).unwrap();
            let found = format!("{} {}: {}", found.status, found.reason, found.message);
            assert_eq!(&found, expected, "{} {condition}", path.display());
        }
        assert_eq!(plan.status.removing_disks, case.plan.removing, "{}", path.display());
        for (listener, expected) in &case.plan.listeners {
            let found = plan.status.listeners.iter().find(|one| one.name == *listener).unwrap();
            let begins = found.bootstrap_servers.as_deref().unwrap_or("-");
            assert_eq!(begins, expected, "{} {listener}", path.display());
        }
        assert!(plan.status.conditions.iter().all(|condition| condition.observed_generation == Some(3)));
        assert_eq!(plan.status.observed_generation, Some(3));
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} cases");
}

#[test]
fn a_status_that_was_written_is_the_status_that_is_planned_next() {
    let given = Given {
        live_spec: Some(json!({})),
        revision: "r".into(),
        pods: vec![Pod {
            ordinal: 0,
            revision: "r".into(),
            ready: true,
            status: Some(BrokerStatus::default()),
            ..Pod::default()
        }],
        ..Given::default()
    };
    let mut cluster = cluster(&json!({}));
    let first = planned(&cluster, &observed(&given));
    cluster.status = Some(serde_json::from_value(serde_json::to_value(&first.status).unwrap()).unwrap());
    let second = plan(
        &cluster,
        desired(&cluster, &defaults(), &observed(&given)),
        &observed(&given),
        &defaults(),
        Duration::from_secs(30),
        Timestamp::from_second(1_900_000_000).unwrap(),
    );
    assert_eq!(first.status, second.status);
    assert!(second.actions.is_empty() && second.notes.is_empty(), "{second:?}");
}

#[test]
fn a_restart_that_was_asked_for_stays_in_the_template_when_the_annotation_goes() {
    let restarted_for = |cluster: &Cluster, observed: &Observed| {
        let children = desired(cluster, &defaults(), observed).unwrap();
        let set = children.into_iter().find(|child| child.resource.kind == "StatefulSet").unwrap();
        (roll::marks_of(&set.value["spec"]["template"]).restart, set)
    };
    let mut cluster = cluster(&json!({}));
    assert_eq!(restarted_for(&cluster, &Observed::default()).0, None);
    cluster.annotations_mut().insert("forebay.dev/restart".into(), "monday".into());
    let (restart, set) = restarted_for(&cluster, &Observed::default());
    assert_eq!(restart.as_deref(), Some("monday"));
    cluster.annotations_mut().clear();
    let observed = Observed { children: [(set.key(), live(&set, "r"))].into(), ..Observed::default() };
    assert_eq!(restarted_for(&cluster, &observed).0.as_deref(), Some("monday"));
}

#[test]
fn a_step_that_failed_is_in_its_condition_and_the_others_stay() {
    let cluster = cluster(&json!({}));
    let plan = planned(&cluster, &Observed::default());
    let failure = Failure {
        condition: forebay_crds::ConditionType::DisksInForce,
        reason: forebay_crds::Reason::DiskResizeRefused,
        message: "grow claim x: class does not allow it".to_owned(),
    };
    let before = plan.status.clone();
    let after = with_failures(plan.status, &[failure], Some(3), &forebay_crds::ClusterStatus::default(), now());
    let of = |status: &forebay_crds::ClusterStatus, name: &str| {
        status.conditions.iter().find(|c| c.type_ == name).map(|c| c.reason.clone()).unwrap()
    };
    assert_eq!(of(&after, "DisksInForce"), "DiskResizeRefused");
    assert_eq!(of(&after, "Ready"), of(&before, "Ready"));
    assert_eq!(after.conditions.len(), before.conditions.len());
}

#[test]
fn children_are_as_committed() {
    let rich = json!({
        "image": "registry.example/broker:1", "imagePullPolicy": "Never",
        "disks": [{"name": "fast", "size": "10Gi", "storageClassName": "nvme"}, {"name": "big", "size": "1Ti", "mountPath": "/data/big"}],
        "resources": {"limits": {"cpu": "2500m", "memory": "4Gi"}},
        "ulimits": {"nofile": 100_000},
        "config": {"log.segment.bytes": 536_870_912, "auto.create.topics.enable": "false"},
        "reclaimPolicy": "Delete",
        "pod": {"labels": {"team": "a", "forebay.dev/cluster": "mine"}, "tolerations": [{"operator": "Exists"}]},
        "metrics": {"scrapeAnnotations": false},
        "rack": {"nodeLabel": "topology.kubernetes.io/zone"},
    });
    let listeners = json!({
        "replicas": 3,
        "listeners": [
            {"name": "external", "port": 9094, "type": "NodePort", "bootstrap": {"nodePort": 30_094},
             "brokers": [{"id": 1, "nodePort": 30_001, "host": "one.example.com", "port": 443, "annotations": {"of": "one"}}]},
            {"name": "lb", "port": 9095, "type": "LoadBalancer", "loadBalancerClass": "metal",
             "loadBalancerSourceRanges": ["10.0.0.0/8"], "annotations": {"of": "all"}, "externalTrafficPolicy": "Local"},
            {"name": "pods", "port": 9096, "type": "Internal", "allowedFrom": [{"podSelector": {"matchLabels": {"app": "ledger"}}}]},
        ],
        "networkPolicy": {"monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    });
    let cases =
        [("plain", json!({})), ("rich", rich), ("replicated", json!({"replicas": 3})), ("listeners", listeners)];
    for (name, spec) in cases {
        let mut cluster = cluster(&spec);
        cluster.labels_mut().insert("argocd.argoproj.io/instance".into(), "app".into());
        let children = desired(&cluster, &defaults(), &Observed::default()).unwrap();
        let text: Vec<String> = children.iter().map(|child| serde_yaml_ng::to_string(&child.value).unwrap()).collect();
        let text = text.join("---\n");
        assert!(!text.contains("argocd"), "labels of tracking tools must not reach children");
        let path = testdata("cluster/children").join(format!("{name}.yaml"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is stale: UPDATE=1 cargo test -p forebay-operator", path.display());
    }
}
