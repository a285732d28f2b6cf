//! Rules about one fetch: how much it waits for, how long, and what a response can carry.

use super::{Judged, Rule, RuleVerdict, Verdict, ms, size};
use crate::compute::{LOG_OVERHEAD_BYTES, gather_budget_ms, response_ceiling};
use crate::predict::fill_ms;
use crate::workload::{as_f64, whole};

/// `fetch.min.bytes ≤ min(fetch.max.bytes, partitions of one fetch × max.partition.fetch.bytes)`: above it, no amount of
/// data answers the fetch, and each one waits out `fetch.max.wait.ms`.
pub(super) fn ceiling(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let ceiling = response_ceiling(workload, settings.max_partition_fetch_bytes, settings.fetch_max_bytes);
    let partitions = workload.partitions_per_fetch();
    let limit = if ceiling == partitions.saturating_mul(settings.max_partition_fetch_bytes) {
        let (members, brokers) = (workload.active_members(), workload.brokers);
        let share = match (members, brokers) {
            (1, 1) => String::new(),
            _ => format!(" (of {}, over {members} members and {brokers} brokers)", workload.partitions),
        };
        let each = size(settings.max_partition_fetch_bytes);
        format!("{partitions} partitions{share} × max.partition.fetch.bytes {each} = {}", size(ceiling))
    } else {
        format!("fetch.max.bytes allows {}", size(ceiling))
    };
    let asked = settings.fetch_min_bytes;
    if asked <= ceiling {
        let message = format!("fetch.min.bytes {} is within what one response can carry: {limit}", size(asked));
        return RuleVerdict::ok(Rule::FetchCeiling, message);
    }
    let message = format!(
        "fetch.min.bytes {} is more than one response can carry: {limit}; an ordinary broker lets each fetch wait the whole \
         fetch.max.wait.ms of {} ms; the largest fetch.min.bytes that works is {}",
        size(asked),
        settings.fetch_max_wait_ms,
        size(ceiling)
    );
    let verdict = judged.broken(&["fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes"]);
    RuleVerdict::new(Rule::FetchCeiling, verdict, message).works("fetch.min.bytes", ceiling)
}

/// The pair is tuned together: `fetch.max.wait.ms` is slightly above the time that `fetch.min.bytes` needs.
pub(super) fn fill(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let fill = fill_ms(workload, settings.fetch_min_bytes);
    let wait_ms = as_f64(settings.fetch_max_wait_ms);
    let rate =
        format!("{:.0} records/s × {} B seen by one fetch", workload.fetch_records_per_second(), workload.record_bytes);
    if fill <= wait_ms {
        let message =
            format!("fetch.min.bytes {} comes together in {} ({rate})", size(settings.fetch_min_bytes), ms(fill));
        return RuleVerdict::ok(Rule::FetchFill, message);
    }
    let works = whole(workload.fetch_bytes_per_second() * wait_ms / 1000.0).max(1);
    let message = format!(
        "fetch.min.bytes {} needs {} ({rate}), longer than fetch.max.wait.ms {}: it has no effect and the wait alone sets the \
         latency; the largest that has one is {}",
        size(settings.fetch_min_bytes),
        ms(fill),
        settings.fetch_max_wait_ms,
        size(works)
    );
    RuleVerdict::warning(Rule::FetchFill, message).works("fetch.min.bytes", works)
}

/// Judged by the rate of the partitions of one fetch, not of the topic: a mix of hot and cold takes the cautious side.
pub(super) fn low_traffic(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let per_partition = workload.records_per_second / as_f64(workload.partitions);
    let fill = fill_ms(workload, settings.fetch_min_bytes);
    if settings.fetch_min_bytes <= workload.record_bytes || fill <= workload.latency_ms {
        let message =
            format!("{per_partition:.1} records/s per partition; fetch.min.bytes {}", size(settings.fetch_min_bytes));
        return RuleVerdict::ok(Rule::LowTraffic, message);
    }
    let message = format!(
        "{per_partition:.1} records/s per partition × {} B: fetch.min.bytes {} would take {}, so each fetch waits its whole \
         fetch.max.wait.ms; use fetch.min.bytes 1 and fetch.max.wait.ms 0 to 10",
        workload.record_bytes,
        size(settings.fetch_min_bytes),
        ms(fill)
    );
    RuleVerdict::warning(Rule::LowTraffic, message).works("fetch.min.bytes", 1)
}

/// A fetch that waits as long as the request timeout is given up by the client.
pub(super) fn wait(judged: &Judged<'_>) -> RuleVerdict {
    let settings = judged.settings;
    let (wait_ms, timeout_ms) = (settings.fetch_max_wait_ms, settings.request_timeout_ms);
    let works = (timeout_ms / 2).max(0);
    let message = format!("fetch.max.wait.ms {wait_ms} against request.timeout.ms {timeout_ms}; up to {works} is safe");
    let verdict = match wait_ms {
        wait_ms if wait_ms >= timeout_ms => Verdict::Refused,
        wait_ms if wait_ms > works => Verdict::Warning,
        _ => Verdict::Ok,
    };
    RuleVerdict::new(Rule::FetchWait, verdict, message).works("fetch.max.wait.ms", works)
}

/// `min(fill, wait) + network + work of what came together ≤ latency`.
pub(super) fn latency(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, predicted) = (judged.workload, judged.predicted);
    let target = workload.latency_ms;
    let Some(latency_ms) = predicted.latency_ms else {
        let message = format!("no latency can be kept, {target} ms included: members do not keep up (rule capacity)");
        return RuleVerdict::new(Rule::Latency, Verdict::Unsatisfiable, message);
    };
    let parts = format!("{} of gathering, the network, and the work on what came together", ms(predicted.gather_ms));
    if latency_ms <= target {
        return RuleVerdict::ok(Rule::Latency, format!("{} expected ({parts}), {} wanted", ms(latency_ms), ms(target)));
    }
    let works = whole(gather_budget_ms(workload)).max(0);
    let names = ["fetch.min.bytes", "fetch.max.wait.ms"];
    let verdict = match (judged.explicit.has_any(&names), workload.latency_is_stated) {
        (false, _) => Verdict::Unsatisfiable,
        (true, true) => Verdict::Refused,
        (true, false) => Verdict::Warning,
    };
    let message = if judged.explicit.has_any(&names) && works > 0 {
        format!(
            "{} expected ({parts}), {} wanted; lower fetch.min.bytes, or fetch.max.wait.ms to at most {works}",
            ms(latency_ms),
            ms(target)
        )
    } else {
        format!(
            "{} expected ({parts}), {} wanted: a record alone takes {} of work and {} on the network; allow more latency or make the work faster",
            ms(latency_ms),
            ms(target),
            ms(workload.work_mean_ms),
            ms(crate::compute::NETWORK_MS)
        )
    };
    RuleVerdict::new(Rule::Latency, verdict, message).works("fetch.max.wait.ms", works)
}

/// The largest record batch fits into a partition's share; a larger one costs a fetch of its own and stalls old clients.
pub(super) fn record_ceiling(judged: &Judged<'_>) -> RuleVerdict {
    let (largest, share) = (judged.workload.limits.max_message_bytes, judged.settings.max_partition_fetch_bytes);
    let needed = largest - LOG_OVERHEAD_BYTES;
    if share >= needed {
        let message =
            format!("max.partition.fetch.bytes {} holds the largest batch (max.message.bytes {largest})", size(share));
        return RuleVerdict::ok(Rule::RecordCeiling, message);
    }
    let message = format!(
        "max.partition.fetch.bytes {} is less than the topic's max.message.bytes {largest}: each large batch costs a fetch of its \
         own; the smallest that holds it is {needed}",
        size(share)
    );
    RuleVerdict::warning(Rule::RecordCeiling, message).works("max.partition.fetch.bytes", needed)
}
