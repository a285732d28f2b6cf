//! Topic: one Kafka topic of a Cluster, kept as declared.
//!
//! Renaming and taking partitions away would lose data: both are refused at admission, with the way out in the message.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{ClusterRef, ConfigMap, ReclaimPolicy};

/// A Kafka topic, kept as declared here: created, grown, its configuration put back when changed by hand.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "forebay.dev",
    version = "v1alpha1",
    kind = "Topic",
    namespaced,
    status = "TopicStatus",
    shortname = "ft",
    category = "forebay",
    derive = "PartialEq",
    doc = "A Kafka topic of a Cluster, kept as declared: created, grown, its configuration put back when changed by hand.",
    printcolumn(name = "Topic", type_ = "string", json_path = ".status.topicName"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Partitions", type_ = "integer", json_path = ".status.partitions"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicationFactor", priority = 1),
    printcolumn(name = "Moving", type_ = "integer", json_path = ".status.movingPartitions", priority = 1),
    printcolumn(name = "Reclaim", type_ = "string", json_path = ".status.reclaimPolicy"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("(has(self.spec.topicName) ? self.spec.topicName : self.metadata.name) == (has(oldSelf.spec.topicName) ? oldSelf.spec.topicName : oldSelf.metadata.name)")
        .message("topicName can't be changed: Kafka has no rename; create a second Topic and move the data")
        .field_path(".spec.topicName"),
    validation = Rule::new("has(self.spec.topicName) || self.metadata.name.size() <= 249")
        .message("a Kafka topic name has at most 249 characters; set spec.topicName to a shorter one")
)]
#[serde(rename_all = "camelCase")]
pub struct TopicSpec {
    /// The Cluster that has the topic. Can't be changed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterRef can't be changed: the topic would stay on the old cluster; create a second Topic"))]
    pub cluster_ref: ClusterRef,
    /// The topic's name in Kafka, for one that Kubernetes does not take (`Orders_v1`); `metadata.name` when left out. Can't be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    #[x_kube(validation = Rule::new("self != '.' && self != '..' && !self.startsWith('__')").message("topicName can't be '.', '..' or start with '__': such topics belong to the brokers"))]
    pub topic_name: Option<String>,
    /// Number of partitions; can only grow. Records of a key may go to another partition from then on.
    #[schemars(range(min = 1, max = 100_000))]
    #[x_kube(validation = Rule::new("self >= oldSelf").message("partitions can't be taken away: their records would be lost; create a second Topic with fewer"))]
    pub partitions: i32,
    /// Replicas of each partition; the brokers' `default.replication.factor` when left out, and then kept as it is. May be
    /// changed: partitions get replicas on other brokers or lose some, and `status.movingPartitions` says how many still do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32_767))]
    pub replication_factor: Option<i32>,
    /// Topic configuration by Kafka's names (`retention.ms`, `cleanup.policy`, …). Values are integers or strings; an unknown name is
    /// refused in the status with the nearest one that exists. The
    /// topic is kept as declared: a value set by hand is put back, a name set by hand and not listed here is removed.
    #[serde(default, skip_serializing_if = "ConfigMap::is_empty")]
    #[schemars(extend("maxProperties" = 100))]
    pub config: ConfigMap,
    /// `Delete` (used when left out): the topic and its records are deleted with this object. `Retain`: they stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// False when left out. True: the operator reports what differs but changes nothing on the brokers. Deleting this object then leaves the
    /// topic in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl TopicSpec {
    /// Why nobody could write with acks=all, when the spec itself says so.
    pub fn unwritable(&self) -> Option<String> {
        let factor = self.replication_factor?;
        let in_sync: i64 = self.config.get("min.insync.replicas")?.to_string().parse().ok()?;
        (in_sync > i64::from(factor)).then(|| {
            format!(
                "min.insync.replicas {in_sync} is above spec.replicationFactor {factor}: acks=all would be refused for ever; set it to at most {factor}, or more replicas"
            )
        })
    }

    /// The policy in force: `Delete` unless said otherwise.
    pub fn effective_reclaim_policy(&self) -> ReclaimPolicy {
        self.reclaim_policy.unwrap_or(ReclaimPolicy::Delete)
    }
}

/// What the operator has seen and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStatus {
    /// The generation of the spec that this status answers; -1 until an operator has looked at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The topic's name in Kafka.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_name: Option<String>,
    /// The topic's id in Kafka: another id means another topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    /// Partitions that the brokers have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<i32>,
    /// Replicas of each partition that the brokers have; while they change, those of the partition with the fewest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<i32>,
    /// Partitions on their way to other brokers; left out when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moving_partitions: Option<i32>,
    /// The reclaim policy in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// `Ready`: the topic is as declared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
