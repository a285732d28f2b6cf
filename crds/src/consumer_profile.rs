//! ConsumerProfile: what a consumer group has to achieve, answered with client settings and a verdict per rule.
//!
//! Explicit settings are checked, never corrected: a setting that can't work is refused with the largest value that does,
//! and the ConfigMap that applications read stays as it was.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{ClusterRef, ConfigMap};

/// Goals of one consumer group; the operator computes the client settings and writes them to ConfigMap `<name>-consumer`.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "forebay.dev",
    version = "v1alpha1",
    kind = "ConsumerProfile",
    plural = "consumerprofiles",
    namespaced,
    status = "ConsumerProfileStatus",
    shortname = "fcp",
    category = "forebay",
    derive = "PartialEq",
    doc = "Goals of one consumer group. The operator computes client settings that meet them, says by which rules, and writes them to ConfigMap <name>-consumer.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Client", type_ = "string", json_path = ".spec.clientFamily"),
    printcolumn(name = "Latency-ms", type_ = "number", json_path = ".status.predicted.latencyMs"),
    printcolumn(name = "Memory", type_ = "integer", json_path = ".status.predicted.memoryBytes", priority = 1),
    printcolumn(name = "ConfigMap", type_ = "string", json_path = ".status.configMapName"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 240").message("a ConsumerProfile's name has at most 240 characters: its ConfigMap is <name>-consumer")
)]
#[x_kube(validation = Rule::new("has(self.preset) || has(self.goals)").message("give a preset, goals, or both: without them there is nothing to compute from"))]
#[serde(rename_all = "camelCase")]
pub struct ConsumerProfileSpec {
    /// The Cluster that has the topics. Can't be changed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterRef can't be changed; create a second ConsumerProfile"))]
    pub cluster_ref: ClusterRef,
    /// The Kafka topics that the group subscribes to, by their names in Kafka. Partitions are read from the brokers.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "set"), inner(length(min = 1, max = 249)))]
    pub topics: Vec<String>,
    /// The consumer group's id; `metadata.name` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249))]
    pub group: Option<String>,
    /// The client library that the members use, as settings and limits differ: `java`; `librdkafka` and what is built on it
    /// (confluent-kafka for Python, Go and .NET, rust-rdkafka, kcat); `franz-go`.
    pub client_family: ClientFamily,
    /// The group protocol that the members use. `classic` (used when left out): session timeout and heartbeat interval are the client's.
    /// `consumer` (KIP-848): they are the broker's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_protocol: Option<GroupProtocol>,
    /// A well-known workload; `goals` override what it assumes. `projection`: a database write per record, batches of 500.
    /// `reconciliation`: in-memory work, large fetches, latency does not matter. `low-traffic`: some tens of records a second, each at once.
    /// `latency-critical`: answered as soon as one record is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// The workload in numbers. What is left out comes from the preset; without one 1000 ms, 500 records a second of 1000 bytes, work of
    /// 1 ms and 10 ms at worst. `status.workload` has what was computed for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goals: Option<Goals>,
    /// Explicit settings by Kafka's (Java) names, for example `fetch.min.bytes`. They are checked against the rules and
    /// refused when they can't work; the rest is computed around them. Values are integers or strings.
    #[serde(default, skip_serializing_if = "ConfigMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub settings: ConfigMap,
}

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
pub enum ClientFamily {
    /// Apache's Java client.
    #[serde(rename = "java")]
    Java,
    /// librdkafka and what is built on it: confluent-kafka for Python, Go and .NET, rust-rdkafka, kcat.
    #[serde(rename = "librdkafka")]
    Librdkafka,
    /// franz-go.
    #[serde(rename = "franz-go")]
    FranzGo,
}

/// The protocol by which members agree on who reads what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
#[serde(rename_all = "lowercase")]
pub enum GroupProtocol {
    /// JoinGroup and SyncGroup: session timeout and heartbeat interval are the client's.
    Classic,
    /// KIP-848: session timeout and heartbeat interval are the broker's.
    Consumer,
}

/// A well-known workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// A database write per record (about 0.3 ms): batches of 500, some tens of milliseconds of waiting.
    Projection,
    /// In-memory work, latency does not matter: large fetches, 5000 records a poll.
    Reconciliation,
    /// Some tens of records a second: every record at once, no waiting for company.
    LowTraffic,
    /// Latency before throughput: answered as soon as one record is there.
    LatencyCritical,
}

/// A consumer group's workload in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.workMeanMs) || !has(self.workWorstMs) || self.workMeanMs <= self.workWorstMs").message("workMeanMs can't be above workWorstMs"))]
pub struct Goals {
    /// Acceptable time from a record's arrival at the broker until it has been processed, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub latency_ms: Option<i64>,
    /// Records a second that arrive, over all topics of the profile; fractions are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub records_per_second: Option<f64>,
    /// Mean size of a record (key, value and headers), in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub record_bytes: Option<i64>,
    /// Mean time that one member spends on one record, in milliseconds; fractions are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub work_mean_ms: Option<f64>,
    /// Worst time that one member spends on one record, in milliseconds; fractions are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub work_worst_ms: Option<f64>,
    /// Members of the group; 1 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub members: Option<i32>,
    /// Memory that one member may use for fetched records, a quantity of bytes, for example `256Mi`; not judged when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Quantity>,
}

/// What was computed, by which rules, and what to expect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerProfileStatus {
    /// The generation of the spec that this status answers; -1 until an operator has looked at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The ConfigMap that applications read: keys `java.properties`, `librdkafka.properties`, `franz-go.json`. A key is
    /// there when the settings hold for that client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,
    /// The workload that was computed for: goals over preset over defaults, partitions and brokers as read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<EffectiveWorkload>,
    /// The effective settings by Kafka's (Java) names, as judged for `spec.clientFamily`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The rules, each with its verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<RuleVerdict>,
    /// What to expect: a benchmark can prove it wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// `Ready`: settings meet the goals and are in the ConfigMap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The workload that the settings were computed for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveWorkload {
    /// Partitions of all topics together.
    pub partitions: i32,
    /// Brokers that lead them.
    pub brokers: i32,
    /// Partitions that one member reads from one broker: what one fetch can cover.
    pub partitions_per_fetch: i32,
    /// Members of the group.
    pub members: i32,
    /// Acceptable latency, in milliseconds.
    pub latency_ms: i64,
    /// Records a second, over all topics.
    pub records_per_second: f64,
    /// Mean size of a record, in bytes.
    pub record_bytes: i64,
    /// Mean time per record, in milliseconds.
    pub work_mean_ms: f64,
    /// Worst time per record, in milliseconds.
    pub work_worst_ms: f64,
    /// Memory that one member may use for records, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<i64>,
}

/// What one rule says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleVerdict {
    /// The rule's id, as in the ConsumerProfile guide.
    pub rule: String,
    /// What it says.
    pub verdict: Verdict,
    /// The numbers, and what would work.
    pub message: String,
}

/// How a rule judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// It holds.
    Ok,
    /// It works, but not as meant.
    Warning,
    /// An explicit setting breaks it.
    Refused,
    /// No setting can make it hold.
    Unsatisfiable,
}

/// What to expect from the settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Predicted {
    /// Time from a record's arrival until it has been processed, in milliseconds, at the stated rate; absent when members
    /// do not keep up and lag grows without bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// The most that fetched records can occupy in one member, in bytes.
    pub memory_bytes: i64,
}
