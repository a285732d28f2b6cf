//! Rules about what no fetch setting can change: members, partitions, memory, and the client library's own limits.

use super::{Judged, Rule, RuleVerdict, Verdict, size};
use crate::workload::{ClientFamily, as_f64, whole};

/// The largest response that franz-go reads, unless it is told otherwise.
const FRANZ_GO_BROKER_READ_BYTES_MAX: i64 = 100 << 20;

/// `members × 1/mean ≥ arrival rate`; otherwise lag grows without bound, whatever the settings.
pub(super) fn capacity(judged: &Judged<'_>) -> RuleVerdict {
    let workload = judged.workload;
    let (active, busy) = (workload.active_members(), workload.utilisation());
    if workload.work_mean_ms <= 0.0 {
        return RuleVerdict::ok(Rule::Capacity, "work per record takes no time");
    }
    let most = as_f64(active) * 1000.0 / workload.work_mean_ms;
    let figures = format!(
        "{active} members × 1000 / {} ms = {most:.0} records/s against {:.0} that arrive",
        workload.work_mean_ms, workload.records_per_second
    );
    let needed = whole((workload.records_per_second * workload.work_mean_ms / 1000.0).ceil()) + i64::from(busy == 1.0);
    if busy >= 1.0 {
        let partitions = if needed > workload.partitions {
            format!(" and as many partitions (there are {})", workload.partitions)
        } else {
            String::new()
        };
        let message = format!(
            "{figures}: lag grows without bound and no client setting helps; it takes at least {needed} members{partitions}, or faster work"
        );
        return RuleVerdict::new(Rule::Capacity, Verdict::Unsatisfiable, message);
    }
    if busy > 0.8 {
        let message = format!(
            "{figures}: {:.0} % busy, a burst takes long to work off; throttle or pause rather than take larger batches",
            busy * 100.0
        );
        return RuleVerdict::warning(Rule::Capacity, message);
    }
    RuleVerdict::ok(Rule::Capacity, format!("{figures}: {:.0} % busy", busy * 100.0))
}

/// Parallelism ends at the partitions.
pub(super) fn parallelism(judged: &Judged<'_>) -> RuleVerdict {
    let workload = judged.workload;
    let figures = format!("{} members, {} partitions", workload.members, workload.partitions);
    if workload.members <= workload.partitions {
        return RuleVerdict::ok(Rule::Parallelism, figures);
    }
    let idle = workload.members - workload.partitions;
    RuleVerdict::warning(Rule::Parallelism, format!("{figures}: {idle} members have nothing to read"))
}

/// `min(brokers × fetch.max.bytes, partitions × max.partition.fetch.bytes)`, the client's queue and one poll's records.
pub(super) fn memory(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let expected = judged.predicted.memory_bytes;
    let figures = format!(
        "{} at most in one member (responses of {} brokers or {} partitions, {} records of a poll{})",
        size(expected),
        workload.brokers,
        workload.partitions_per_member_max(),
        settings.max_poll_records,
        if workload.family == ClientFamily::Librdkafka { ", the queue" } else { "" }
    );
    let Some(limit) = workload.memory_limit_bytes else {
        return RuleVerdict::ok(Rule::Memory, format!("{figures}; no limit given"));
    };
    if expected <= limit {
        return RuleVerdict::ok(Rule::Memory, format!("{figures}, within {}", size(limit)));
    }
    let names = ["fetch.max.bytes", "max.partition.fetch.bytes", "max.poll.records", "queued.max.messages.kbytes"];
    let polled = settings.max_poll_records.saturating_mul(workload.record_bytes);
    let queue = settings.queued_max_messages_kbytes.unwrap_or(0).saturating_mul(1024);
    let works = (limit - polled - queue) / workload.brokers;
    if judged.explicit.has_any(&names) && works >= workload.limits.max_message_bytes {
        let message =
            format!("{figures}, more than {}; the largest fetch.max.bytes that fits is {}", size(limit), size(works));
        return RuleVerdict::new(Rule::Memory, Verdict::Refused, message).works("fetch.max.bytes", works);
    }
    let message = format!(
        "{figures}, more than {}: each broker may send one batch of max.message.bytes {}; allow at least {}",
        size(limit),
        size(workload.limits.max_message_bytes),
        size(expected)
    );
    RuleVerdict::new(Rule::Memory, judged.broken(&names), message)
}

/// What a client library refuses at start, or silently caps.
pub(super) fn client_limits(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let (asked, broker) = (settings.fetch_max_bytes, workload.limits.fetch_max_bytes);
    if workload.family == ClientFamily::FranzGo && asked > FRANZ_GO_BROKER_READ_BYTES_MAX {
        let message = format!(
            "fetch.max.bytes {} is above what franz-go reads from a broker; the largest that works is {}",
            size(asked),
            size(FRANZ_GO_BROKER_READ_BYTES_MAX)
        );
        return RuleVerdict::new(Rule::ClientLimits, Verdict::Refused, message)
            .works("fetch.max.bytes", FRANZ_GO_BROKER_READ_BYTES_MAX);
    }
    let largest = workload.limits.max_message_bytes;
    if workload.family == ClientFamily::Librdkafka && asked < largest {
        let message = format!(
            "librdkafka refuses a fetch.max.bytes {} below message.max.bytes {}; the smallest that works is the latter",
            size(asked),
            size(largest)
        );
        return RuleVerdict::new(Rule::ClientLimits, judged.broken(&["fetch.max.bytes"]), message)
            .works("fetch.max.bytes", largest);
    }
    if asked > broker.max(largest) {
        let message = format!(
            "fetch.max.bytes {} is above the brokers' own {}: they send at most that",
            size(asked),
            size(broker)
        );
        return RuleVerdict::warning(Rule::ClientLimits, message).works("fetch.max.bytes", broker);
    }
    RuleVerdict::ok(
        Rule::ClientLimits,
        format!("fetch.max.bytes {} is within the limits of {} and the brokers", size(asked), workload.family.as_str()),
    )
}
