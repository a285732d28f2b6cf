//! What to expect from settings: stated so that a benchmark can prove it wrong.
//!
//! Latency: a fetch gathers until it has `fetch.min.bytes` or `fetch.max.wait.ms` is over, travels, and the records that
//! came together are worked on one after another. Memory: what one member can hold in fetched responses, in the
//! client's queue, and in the records of one poll.

use serde::Serialize;

use crate::compute::NETWORK_MS;
use crate::settings::Settings;
use crate::workload::{ClientFamily, Workload, as_f64};

/// What to expect.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Predicted {
    /// Time from a record's arrival until it has been processed, at the stated rate; none when lag grows without bound.
    pub latency_ms: Option<f64>,
    /// How long a fetch gathers.
    pub gather_ms: f64,
    /// The most that records can occupy in one member.
    pub memory_bytes: i64,
}

pub(crate) fn predict(workload: &Workload, settings: &Settings) -> Predicted {
    let gather_ms = gather_ms(workload, settings);
    let together = (workload.member_records_per_second() * (gather_ms + NETWORK_MS) / 1000.0).max(1.0);
    let latency_ms = gather_ms + NETWORK_MS + together * workload.work_mean_ms;
    Predicted {
        latency_ms: (workload.utilisation() < 1.0).then(|| (latency_ms * 10.0).round() / 10.0),
        gather_ms,
        memory_bytes: memory_bytes(workload, settings),
    }
}

/// Time to gather `fetch.min.bytes` at the rate that one fetch sees.
pub(crate) fn fill_ms(workload: &Workload, fetch_min_bytes: i64) -> f64 {
    if fetch_min_bytes <= workload.record_bytes {
        return 0.0; // the first record answers the fetch
    }
    as_f64(fetch_min_bytes) / workload.fetch_bytes_per_second().max(f64::MIN_POSITIVE) * 1000.0
}

fn gather_ms(workload: &Workload, settings: &Settings) -> f64 {
    let ceiling =
        crate::compute::response_ceiling(workload, settings.max_partition_fetch_bytes, settings.fetch_max_bytes);
    let wait_ms = as_f64(settings.fetch_max_wait_ms);
    if settings.fetch_min_bytes > ceiling {
        return wait_ms; // can't be met: an ordinary broker waits it out
    }
    fill_ms(workload, settings.fetch_min_bytes).min(wait_ms)
}

fn memory_bytes(workload: &Workload, settings: &Settings) -> i64 {
    // The first batch of a response is sent even when it is larger than every limit.
    let per_broker = settings
        .fetch_max_bytes
        .max(workload.limits.max_message_bytes)
        .min(workload.limits.fetch_max_bytes.max(workload.limits.max_message_bytes));
    let partitions = workload.partitions_per_member_max();
    let per_partition = settings.max_partition_fetch_bytes.max(workload.limits.max_message_bytes);
    let responses = workload.brokers.saturating_mul(per_broker).min(partitions.saturating_mul(per_partition));
    let queue = match workload.family {
        ClientFamily::Librdkafka => settings.queued_max_messages_kbytes.unwrap_or(0).saturating_mul(1024),
        ClientFamily::Java | ClientFamily::FranzGo => 0,
    };
    let polled = settings.max_poll_records.saturating_mul(workload.record_bytes);
    responses.saturating_add(queue).saturating_add(polled)
}
