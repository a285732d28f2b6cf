//! Rules about the group: session, heartbeat, commits.

use super::{Judged, Rule, RuleVerdict, Verdict};
use crate::workload::{ClientFamily, GroupProtocol};

/// Session within the broker's bounds, heartbeat at most a third of it, poll interval not below it. In the new protocol
/// both belong to the broker.
pub(super) fn session(judged: &Judged<'_>) -> Vec<RuleVerdict> {
    let (workload, settings) = (judged.workload, judged.settings);
    let refused = |message: String| RuleVerdict::new(Rule::Session, Verdict::Refused, message);
    if workload.protocol == GroupProtocol::Consumer {
        let names = ["session.timeout.ms", "heartbeat.interval.ms"];
        let stated: Vec<&str> = names.into_iter().filter(|name| judged.explicit.get(name).is_some()).collect();
        if stated.is_empty() {
            let message = "session timeout and heartbeat are the broker's in the consumer protocol; neither is set";
            return vec![RuleVerdict::ok(Rule::Session, message)];
        }
        return vec![refused(format!(
            "{} can't be set: in the consumer protocol it is the broker's",
            stated.join(" and ")
        ))];
    }
    let (Some(session_ms), Some(heartbeat_ms)) = (settings.session_timeout_ms, settings.heartbeat_interval_ms) else {
        return Vec::new();
    };
    let (min, max) = (workload.limits.session_timeout_ms_min, workload.limits.session_timeout_ms_max);
    let mut verdicts = Vec::new();
    if !(min..=max).contains(&session_ms) {
        let works = session_ms.clamp(min.min(max), max);
        let message = format!("session.timeout.ms {session_ms} is outside the brokers' {min} to {max}");
        verdicts.push(refused(message).works("session.timeout.ms", works));
    }
    if heartbeat_ms > session_ms / 3 {
        let message = format!(
            "heartbeat.interval.ms {heartbeat_ms} is more than a third of session.timeout.ms {session_ms}; the largest that works is {}",
            session_ms / 3
        );
        verdicts.push(refused(message).works("heartbeat.interval.ms", session_ms / 3));
    }
    if settings.max_poll_interval_ms < session_ms {
        let message = format!(
            "max.poll.interval.ms {} is below session.timeout.ms {session_ms}; the smallest that works is {session_ms}",
            settings.max_poll_interval_ms
        );
        let verdict = if workload.family == ClientFamily::Librdkafka { Verdict::Refused } else { Verdict::Warning };
        verdicts.push(RuleVerdict::new(Rule::Session, verdict, message).works("max.poll.interval.ms", session_ms));
    }
    if verdicts.is_empty() {
        let message = format!(
            "session.timeout.ms {session_ms}, heartbeat.interval.ms {heartbeat_ms}; with group.instance.id set to a stable name (the pod's) a restart causes no rebalance"
        );
        verdicts.push(RuleVerdict::ok(Rule::Session, message));
    }
    verdicts
}

/// Work first, then commit, once a batch: a commit by timer may cover records that were not worked on.
pub(super) fn commit(judged: &Judged<'_>) -> RuleVerdict {
    if judged.settings.enable_auto_commit {
        let message = "enable.auto.commit true commits by timer: a crash loses or repeats what was under way; use false and commit once a batch, after the work";
        return RuleVerdict::warning(Rule::Commit, message);
    }
    RuleVerdict::ok(Rule::Commit, "enable.auto.commit is false: commit once a batch, after the work")
}
