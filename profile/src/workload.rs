//! The workload: goals over preset over defaults, with the partitions, brokers and limits that were read.
//!
//! What must always hold: every derived rate takes the conservative side, because a fetch goes to one broker and covers
//! only the partitions that one member has there.

use serde::{Deserialize, Serialize};

use crate::Request;

/// A client library: settings, defaults and limits differ between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientFamily {
    /// Apache's Java client.
    #[serde(rename = "java")]
    Java,
    /// librdkafka and what is built on it.
    #[serde(rename = "librdkafka")]
    Librdkafka,
    /// franz-go.
    #[serde(rename = "franz-go")]
    FranzGo,
}

impl ClientFamily {
    /// All families.
    pub const ALL: [Self; 3] = [Self::Java, Self::Librdkafka, Self::FranzGo];

    /// The name that people write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Librdkafka => "librdkafka",
            Self::FranzGo => "franz-go",
        }
    }
}

/// How members agree on who reads what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupProtocol {
    /// Session timeout and heartbeat interval are the client's.
    Classic,
    /// KIP-848: both are the broker's.
    Consumer,
}

/// A well-known workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// A database write per record.
    Projection,
    /// In-memory work; latency does not matter.
    Reconciliation,
    /// Some tens of records a second.
    LowTraffic,
    /// Latency before throughput.
    LatencyCritical,
}

/// What a preset assumes and how far its settings may go.
#[derive(Clone, Copy, Debug)]
struct Assumptions {
    latency_ms: f64,
    records_per_second: f64,
    record_bytes: i64,
    work_mean_ms: f64,
    work_worst_ms: f64,
    style: Style,
}

/// How far settings may go in gathering records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Style {
    /// False: a fetch is answered as soon as one record is there.
    pub gathers: bool,
    /// Longest `fetch.max.wait.ms`.
    pub wait_ms_max: i64,
    /// Largest `max.poll.records`.
    pub poll_records_max: i64,
}

const GENERAL: Assumptions = Assumptions {
    latency_ms: 1000.0,
    records_per_second: 500.0,
    record_bytes: 1000,
    work_mean_ms: 1.0,
    work_worst_ms: 10.0,
    style: Style { gathers: true, wait_ms_max: 500, poll_records_max: 500 },
};

impl Preset {
    fn assumptions(self) -> Assumptions {
        match self {
            Self::Projection => Assumptions {
                latency_ms: 200.0,
                records_per_second: 2000.0,
                record_bytes: 200,
                work_mean_ms: 0.3,
                work_worst_ms: 3.0,
                style: Style { gathers: true, wait_ms_max: 50, poll_records_max: 500 },
            },
            Self::Reconciliation => Assumptions {
                latency_ms: 5000.0,
                records_per_second: 50_000.0,
                record_bytes: 200,
                work_mean_ms: 0.01,
                work_worst_ms: 0.1,
                style: Style { gathers: true, wait_ms_max: 1000, poll_records_max: 5000 },
            },
            Self::LowTraffic => Assumptions {
                latency_ms: 500.0,
                records_per_second: 20.0,
                record_bytes: 200,
                work_mean_ms: 1.0,
                work_worst_ms: 10.0,
                style: Style { gathers: false, wait_ms_max: 10, poll_records_max: 500 },
            },
            Self::LatencyCritical => Assumptions {
                latency_ms: 50.0,
                records_per_second: 1000.0,
                record_bytes: 200,
                work_mean_ms: 0.1,
                work_worst_ms: 1.0,
                style: Style { gathers: false, wait_ms_max: 50, poll_records_max: 100 },
            },
        }
    }
}

/// The workload in numbers, as far as stated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Goals {
    /// Acceptable time from a record's arrival until it has been processed.
    pub latency_ms: Option<f64>,
    /// Records a second, over all topics.
    pub records_per_second: Option<f64>,
    /// Mean size of a record.
    pub record_bytes: Option<i64>,
    /// Mean time per record.
    pub work_mean_ms: Option<f64>,
    /// Worst time per record.
    pub work_worst_ms: Option<f64>,
    /// Members of the group.
    pub members: Option<i64>,
    /// Memory that one member may use for records.
    pub memory_limit_bytes: Option<i64>,
}

/// What the brokers say about the topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// Partitions of all topics together.
    pub partitions: i64,
    /// Brokers that lead them.
    pub brokers: i64,
    /// Limits of brokers and topics.
    pub limits: BrokerLimits,
}

/// Limits of brokers and topics that client settings run into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerLimits {
    /// Largest `max.message.bytes` of the topics.
    pub max_message_bytes: i64,
    /// The brokers' own `fetch.max.bytes`.
    pub fetch_max_bytes: i64,
    /// The brokers' `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i64,
    /// The brokers' `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i64,
}

impl Default for BrokerLimits {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            max_message_bytes: 1_048_588,
            fetch_max_bytes: 57_671_680,
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
        }
    }
}

/// The workload that settings are computed for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// The client library.
    pub family: ClientFamily,
    /// The group protocol.
    pub protocol: GroupProtocol,
    /// How far settings may go.
    pub style: Style,
    /// Acceptable latency.
    pub latency_ms: f64,
    /// Whether the latency was stated as a goal, and not only assumed by a preset.
    pub latency_is_stated: bool,
    /// Records a second, over all topics.
    pub records_per_second: f64,
    /// Mean size of a record.
    pub record_bytes: i64,
    /// Mean time per record.
    pub work_mean_ms: f64,
    /// Worst time per record.
    pub work_worst_ms: f64,
    /// Members of the group.
    pub members: i64,
    /// Memory that one member may use for records.
    pub memory_limit_bytes: Option<i64>,
    /// Partitions of all topics together.
    pub partitions: i64,
    /// Brokers that lead them.
    pub brokers: i64,
    /// Limits of brokers and topics.
    pub limits: BrokerLimits,
}

impl Workload {
    /// Goals over preset over defaults.
    pub fn resolve(request: &Request) -> Self {
        let assumed = request.preset.map_or(GENERAL, Preset::assumptions);
        let goals = &request.goals;
        let (work_mean_ms, work_worst_ms) = work(goals, &assumed);
        Self {
            family: request.family,
            protocol: request.protocol,
            style: assumed.style,
            latency_ms: goals.latency_ms.unwrap_or(assumed.latency_ms).max(1.0),
            latency_is_stated: goals.latency_ms.is_some(),
            records_per_second: goals.records_per_second.unwrap_or(assumed.records_per_second).max(0.0),
            record_bytes: goals.record_bytes.unwrap_or(assumed.record_bytes).max(1),
            work_mean_ms,
            work_worst_ms,
            members: goals.members.unwrap_or(1).max(1),
            memory_limit_bytes: goals.memory_limit_bytes,
            partitions: request.subscription.partitions.max(1),
            brokers: request.subscription.brokers.max(1),
            limits: request.subscription.limits.clone(),
        }
    }

    /// Members that have partitions: parallelism ends at the partitions.
    pub fn active_members(&self) -> i64 {
        self.members.min(self.partitions)
    }

    /// The most partitions that one member has.
    pub fn partitions_per_member_max(&self) -> i64 {
        (self.partitions + self.active_members() - 1) / self.active_members()
    }

    /// The fewest partitions that one member is sure to have on a broker it fetches from: what one fetch can cover.
    pub fn partitions_per_fetch(&self) -> i64 {
        (self.partitions / self.active_members() / self.brokers).max(1)
    }

    /// Records a second for one member.
    pub fn member_records_per_second(&self) -> f64 {
        self.records_per_second / as_f64(self.active_members())
    }

    /// Records a second that one fetch can gather: those of its partitions on one broker.
    pub fn fetch_records_per_second(&self) -> f64 {
        self.records_per_second * as_f64(self.partitions_per_fetch()) / as_f64(self.partitions)
    }

    /// Bytes a second that one fetch can gather.
    pub fn fetch_bytes_per_second(&self) -> f64 {
        self.fetch_records_per_second() * as_f64(self.record_bytes)
    }

    /// The share of its time that a member spends on records; from 1 on, lag grows without bound.
    pub fn utilisation(&self) -> f64 {
        self.member_records_per_second() * self.work_mean_ms / 1000.0
    }
}

/// Mean and worst time per record; what is not stated follows from the other, or from the preset.
fn work(goals: &Goals, assumed: &Assumptions) -> (f64, f64) {
    match (goals.work_mean_ms, goals.work_worst_ms) {
        (Some(mean), Some(worst)) => (mean, worst.max(mean)),
        (Some(mean), None) => (mean, assumed.work_worst_ms.max(mean * 10.0)),
        (None, Some(worst)) => (assumed.work_mean_ms.min(worst), worst),
        (None, None) => (assumed.work_mean_ms, assumed.work_worst_ms),
    }
}

/// Counts and sizes are far below 2⁵³, up to where an f64 is exact.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
pub(crate) fn as_f64(value: i64) -> f64 {
    value as f64
}

/// The whole part of a figure, within what an i64 holds.
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, which is what is wanted")]
pub(crate) fn whole(value: f64) -> i64 {
    value.floor() as i64
}
