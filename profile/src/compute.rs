//! Settings that meet the workload, computed around the explicit ones.
//!
//! Order, as in tuning by hand: records per poll from the work, then how long a fetch may gather from the latency, then
//! how much it gathers in that time, never more than a response can carry.

use crate::settings::{Explicit, Settings};
use crate::workload::{ClientFamily, GroupProtocol, Workload, as_f64, whole};

/// Time for request and response on the network, within a cluster.
pub(crate) const NETWORK_MS: f64 = 2.0;
/// `fetch.max.wait.ms` is slightly above the time that gathering takes: gathering is this share of it.
const GATHER_SHARE: f64 = 0.9;
/// Larger fetches bring no more throughput.
const FETCH_MIN_BYTES_MAX: i64 = 1 << 20;
/// Gathering fewer records than this is not worth any waiting.
const GATHER_RECORDS_MIN: f64 = 10.0;
/// The longest that one poll's records should take, so that commits and rebalances don't wait.
pub(crate) const POLL_WORK_MS_MAX: f64 = 10_000.0;
/// A poll's records may take this share of `max.poll.interval.ms`.
pub(crate) const POLL_INTERVAL_SAFETY: f64 = 3.0;
/// The shortest `fetch.max.wait.ms` that is chosen: below it an idle consumer polls all the time.
const WAIT_MS_MIN: i64 = 10;
const DEFAULT_PARTITION_FETCH_BYTES: i64 = 1 << 20;
const DEFAULT_FETCH_MAX_BYTES: i64 = 50 << 20;
const DEFAULT_QUEUE_KBYTES: i64 = 64 << 10;
/// What Kafka adds to 1 MiB in the default of `max.message.bytes`; the client's default leaves it out.
pub(crate) const LOG_OVERHEAD_BYTES: i64 = 12;

pub(crate) fn settings(workload: &Workload, explicit: &Explicit, group: &str) -> Settings {
    let classic = workload.protocol == GroupProtocol::Classic;
    let max_poll_records = explicit.get("max.poll.records").unwrap_or_else(|| poll_records(workload, explicit));
    let session_timeout_ms = session_timeout(workload, explicit);
    let heartbeat = explicit.get("heartbeat.interval.ms").unwrap_or_else(|| 3_000.min(session_timeout_ms / 3).max(1));
    let max_poll_interval_ms = explicit
        .get("max.poll.interval.ms")
        .unwrap_or_else(|| poll_interval(workload, max_poll_records, session_timeout_ms));
    let request_timeout_ms = explicit.get("request.timeout.ms").unwrap_or(30_000);
    let max_partition_fetch_bytes = explicit
        .get("max.partition.fetch.bytes")
        .unwrap_or_else(|| DEFAULT_PARTITION_FETCH_BYTES.max(workload.limits.max_message_bytes - LOG_OVERHEAD_BYTES));
    let librdkafka = workload.family == ClientFamily::Librdkafka;
    let queued_max_messages_kbytes =
        librdkafka.then(|| explicit.get("queued.max.messages.kbytes").unwrap_or_else(|| queue_kbytes(workload)));
    let fetch_max_bytes = explicit.get("fetch.max.bytes").unwrap_or_else(|| {
        fetch_max(workload, max_poll_records, queued_max_messages_kbytes, max_partition_fetch_bytes)
    });
    let ceiling = response_ceiling(workload, max_partition_fetch_bytes, fetch_max_bytes);
    let (fetch_min_bytes, fetch_max_wait_ms) = fetch_pair(workload, explicit, ceiling, request_timeout_ms);
    Settings {
        group_id: group.to_owned(),
        group_protocol: workload.protocol,
        fetch_min_bytes,
        fetch_max_wait_ms,
        max_partition_fetch_bytes,
        fetch_max_bytes,
        max_poll_records,
        max_poll_interval_ms,
        session_timeout_ms: (classic || explicit.has_any(&["session.timeout.ms"])).then_some(session_timeout_ms),
        heartbeat_interval_ms: (classic || explicit.has_any(&["heartbeat.interval.ms"])).then_some(heartbeat),
        request_timeout_ms,
        enable_auto_commit: explicit.auto_commit().unwrap_or(false),
        queued_max_messages_kbytes,
        queued_min_messages: librdkafka.then(|| explicit.get("queued.min.messages").unwrap_or(100_000)),
    }
}

/// The most that one response can carry: what the client asks for at once, the broker's own limit, and each partition's.
pub(crate) fn response_ceiling(workload: &Workload, max_partition_fetch_bytes: i64, fetch_max_bytes: i64) -> i64 {
    let partitions = workload.partitions_per_fetch().saturating_mul(max_partition_fetch_bytes);
    partitions.min(fetch_max_bytes).min(workload.limits.fetch_max_bytes)
}

/// The longest that a fetch may gather so that gathering, network and work stay within the latency.
pub(crate) fn gather_budget_ms(workload: &Workload) -> f64 {
    let left = workload.latency_ms - NETWORK_MS - workload.work_mean_ms.max(workload.utilisation() * NETWORK_MS);
    left / (1.0 + workload.utilisation())
}

fn fetch_pair(workload: &Workload, explicit: &Explicit, ceiling: i64, request_timeout_ms: i64) -> (i64, i64) {
    let budget_ms = whole(gather_budget_ms(workload)).max(WAIT_MS_MIN);
    let wait_ms_max = budget_ms.min(workload.style.wait_ms_max).min((request_timeout_ms / 2).max(1));
    let asked_wait = explicit.get("fetch.max.wait.ms");
    let bytes_per_ms = workload.fetch_bytes_per_second() / 1000.0;
    let gather_ms = as_f64(asked_wait.unwrap_or(wait_ms_max)) * GATHER_SHARE;
    let min_bytes = explicit.get("fetch.min.bytes").unwrap_or_else(|| {
        let records = workload.fetch_records_per_second() * gather_ms / 1000.0;
        if !workload.style.gathers || records < GATHER_RECORDS_MIN || gather_budget_ms(workload) < as_f64(WAIT_MS_MIN) {
            return 1;
        }
        let bytes = whole(bytes_per_ms * gather_ms);
        let rounded = if bytes >= 1024 { bytes / 1024 * 1024 } else { bytes };
        rounded.min(FETCH_MIN_BYTES_MAX).min(ceiling).max(1)
    });
    let wait_ms = asked_wait.unwrap_or_else(|| {
        if min_bytes <= 1 || bytes_per_ms <= 0.0 {
            return wait_ms_max;
        }
        let needed = whole(as_f64(min_bytes) / bytes_per_ms / GATHER_SHARE).saturating_add(1);
        needed.clamp(WAIT_MS_MIN.min(wait_ms_max), wait_ms_max)
    });
    (min_bytes, wait_ms)
}

fn poll_records(workload: &Workload, explicit: &Explicit) -> i64 {
    let within = |ms: f64| if workload.work_worst_ms > 0.0 { whole(ms / workload.work_worst_ms) } else { i64::MAX };
    let by_interval = explicit
        .get("max.poll.interval.ms")
        .map_or(i64::MAX, |interval_ms| within(as_f64(interval_ms) / POLL_INTERVAL_SAFETY));
    // What is left after the queue is shared by one response per broker and one poll, so that a response fills the poll.
    let queue = if workload.family == ClientFamily::Librdkafka { queue_kbytes(workload) * 1024 } else { 0 };
    let shares = workload.brokers + 1;
    let by_memory =
        workload.memory_limit_bytes.map_or(i64::MAX, |limit| (limit - queue) / shares / workload.record_bytes);
    let by_fetch = explicit.get("fetch.max.bytes").unwrap_or(DEFAULT_FETCH_MAX_BYTES) / workload.record_bytes;
    let most = workload.style.poll_records_max;
    most.min(within(POLL_WORK_MS_MAX)).min(by_interval).min(by_memory).min(by_fetch).max(1)
}

fn session_timeout(workload: &Workload, explicit: &Explicit) -> i64 {
    let (min, max) = (workload.limits.session_timeout_ms_min, workload.limits.session_timeout_ms_max.max(1));
    let chosen = explicit.get("session.timeout.ms").unwrap_or_else(|| 45_000.clamp(min.min(max), max));
    let by_interval = explicit.get("max.poll.interval.ms").filter(|_| !explicit.has_any(&["session.timeout.ms"]));
    by_interval.map_or(chosen, |interval_ms| chosen.min(interval_ms).max(min.min(max)))
}

fn poll_interval(workload: &Workload, max_poll_records: i64, session_timeout_ms: i64) -> i64 {
    let default = if workload.family == ClientFamily::FranzGo { 60_000 } else { 300_000 };
    let needed = as_f64(max_poll_records) * workload.work_worst_ms * POLL_INTERVAL_SAFETY;
    default.max(whole(needed.ceil())).max(session_timeout_ms).min(86_400_000)
}

fn queue_kbytes(workload: &Workload) -> i64 {
    let by_memory = workload.memory_limit_bytes.map_or(i64::MAX, |limit| limit / 2 / 1024);
    DEFAULT_QUEUE_KBYTES.min(by_memory).max(1)
}

/// The largest response per broker that leaves the poll's records and the queue their memory.
fn fetch_max(
    workload: &Workload,
    max_poll_records: i64,
    queue_kbytes: Option<i64>,
    max_partition_fetch_bytes: i64,
) -> i64 {
    let default = DEFAULT_FETCH_MAX_BYTES.max(max_partition_fetch_bytes).min(workload.limits.fetch_max_bytes);
    let default = default.max(workload.limits.max_message_bytes);
    let Some(limit) = workload.memory_limit_bytes else { return default };
    let polled = max_poll_records.saturating_mul(workload.record_bytes);
    let left = limit - polled - queue_kbytes.unwrap_or(0).saturating_mul(1024);
    (left / workload.brokers).clamp(workload.limits.max_message_bytes.min(default), default)
}
