//! Rules about one poll: how many records the application takes at once, and how long it may work on them.

use super::{Judged, Rule, RuleVerdict, ms, size};
use crate::compute::{POLL_INTERVAL_SAFETY, POLL_WORK_MS_MAX};
use crate::workload::{ClientFamily, as_f64, whole};

/// `max.poll.records × worst time per record ≤ max.poll.interval.ms / 3`. By the worst time, not the mean: one slow poll
/// is enough to be thrown out of the group. The session timeout is no cure: heartbeats go on while the application works.
pub(super) fn interval(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let work = as_f64(settings.max_poll_records) * workload.work_worst_ms;
    let allowed = as_f64(settings.max_poll_interval_ms) / POLL_INTERVAL_SAFETY;
    let limit = match workload.family {
        ClientFamily::FranzGo => "the rebalance timeout (max.poll.interval.ms)",
        ClientFamily::Java | ClientFamily::Librdkafka => "max.poll.interval.ms",
    };
    let product =
        format!("{} records × {} at worst = {}", settings.max_poll_records, ms(workload.work_worst_ms), ms(work));
    if work <= allowed {
        let message = format!("{product}, within a third of {limit} {}", settings.max_poll_interval_ms);
        return RuleVerdict::ok(Rule::PollInterval, message);
    }
    let records = whole(allowed / workload.work_worst_ms);
    let needed_ms = whole((work * POLL_INTERVAL_SAFETY).ceil());
    let fewer = if records >= 1 { format!("at most {records} records a poll, or ") } else { String::new() };
    let message = format!(
        "{product}, more than a third of {limit} {} ({}): {fewer}an interval of at least {needed_ms} ms, or workers that the \
         poll loop hands records to; session.timeout.ms does not help",
        settings.max_poll_interval_ms,
        ms(allowed)
    );
    let verdict = judged.broken(&["max.poll.records", "max.poll.interval.ms"]);
    let refused = RuleVerdict::new(Rule::PollInterval, verdict, message);
    if records >= 1 {
        refused.works("max.poll.records", records)
    } else {
        refused.works("max.poll.interval.ms", needed_ms)
    }
}

/// Within the interval, but so long that commits come late and a rebalance waits for it.
pub(super) fn work(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let work = as_f64(settings.max_poll_records) * workload.work_worst_ms;
    let records =
        if workload.work_worst_ms > 0.0 { whole(POLL_WORK_MS_MAX / workload.work_worst_ms) } else { i64::MAX };
    let product =
        format!("{} records × {} = {} at worst", settings.max_poll_records, ms(workload.work_worst_ms), ms(work));
    if work <= POLL_WORK_MS_MAX {
        return RuleVerdict::ok(Rule::PollWork, format!("{product} a poll"));
    }
    if records < 1 {
        let message = format!(
            "{product}: one record takes longer than 10 s; hand it to a worker and pause the partition meanwhile"
        );
        return RuleVerdict::warning(Rule::PollWork, message);
    }
    let message =
        format!("{product} a poll, and a rebalance waits for it: at most {records} records, or hand them to workers");
    RuleVerdict::warning(Rule::PollWork, message).works("max.poll.records", records)
}

/// Records per poll far below one fetch only slice it; above `fetch.max.bytes` one fetch can't fill the poll.
pub(super) fn bytes(judged: &Judged<'_>) -> RuleVerdict {
    let (workload, settings) = (judged.workload, judged.settings);
    let polled = settings.max_poll_records.saturating_mul(workload.record_bytes);
    let product =
        format!("max.poll.records {} × {} B = {}", settings.max_poll_records, workload.record_bytes, size(polled));
    if polled > settings.fetch_max_bytes && settings.max_poll_records > 1 {
        let records = (settings.fetch_max_bytes / workload.record_bytes).max(1);
        let message = format!(
            "{product} is above fetch.max.bytes {}: one fetch fills at most {records} records",
            size(settings.fetch_max_bytes)
        );
        return RuleVerdict::warning(Rule::PollBytes, message).works("max.poll.records", records);
    }
    let far_below = settings.fetch_min_bytes / 10;
    if polled < far_below && judged.explicit.has_any(&["max.poll.records", "fetch.min.bytes"]) {
        let message = format!(
            "{product} is far below fetch.min.bytes {}: the client slices each fetch into many quick polls, and nothing changes on the network",
            size(settings.fetch_min_bytes)
        );
        return RuleVerdict::warning(Rule::PollBytes, message)
            .works("max.poll.records", settings.fetch_min_bytes / workload.record_bytes);
    }
    RuleVerdict::ok(Rule::PollBytes, format!("{product} a poll"))
}
