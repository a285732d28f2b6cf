//! The rules. Each judges workload, settings and prediction, and answers with a verdict and the numbers behind it.
//!
//! A rule never changes a setting. What an explicit setting breaks is *refused*; what no setting can make hold is
//! *unsatisfiable*; what works but not as meant is a *warning*.

mod fetch;
mod group;
mod poll;
mod resources;

use std::fmt;

use serde::Serialize;

use crate::predict::Predicted;
use crate::settings::{Explicit, Settings};
use crate::workload::Workload;

/// A rule's id: stable, as people filter by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// An explicit setting exists for this client and its value can be read.
    SettingKnown,
    /// `fetch.min.bytes` is at most what one response can carry.
    FetchCeiling,
    /// `fetch.min.bytes` comes together within `fetch.max.wait.ms` at the rate that one fetch sees.
    FetchFill,
    /// Few records a second: no waiting for company.
    LowTraffic,
    /// `fetch.max.wait.ms` stays well below the request timeout.
    FetchWait,
    /// Gathering, network and work stay within the latency.
    Latency,
    /// A poll's records, each at its worst, take at most a third of `max.poll.interval.ms`.
    PollInterval,
    /// A poll's records, each at its worst, take at most 10 s.
    PollWork,
    /// `max.poll.records` and the size of a fetch fit each other.
    PollBytes,
    /// `max.partition.fetch.bytes` holds the largest record batch.
    RecordCeiling,
    /// Members keep up with the arrival rate.
    Capacity,
    /// Members are at most as many as partitions.
    Parallelism,
    /// Fetched records fit into the memory limit.
    Memory,
    /// Limits of the client library itself.
    ClientLimits,
    /// Session timeout, heartbeat and poll interval fit each other and the broker.
    Session,
    /// Offsets are committed after the work, by the application.
    Commit,
}

impl Rule {
    /// The id that people read.
    pub fn id(self) -> &'static str {
        match self {
            Self::SettingKnown => "setting-known",
            Self::FetchCeiling => "fetch-ceiling",
            Self::FetchFill => "fetch-fill",
            Self::LowTraffic => "low-traffic",
            Self::FetchWait => "fetch-wait",
            Self::Latency => "latency",
            Self::PollInterval => "poll-interval",
            Self::PollWork => "poll-work",
            Self::PollBytes => "poll-bytes",
            Self::RecordCeiling => "record-ceiling",
            Self::Capacity => "capacity",
            Self::Parallelism => "parallelism",
            Self::Memory => "memory",
            Self::ClientLimits => "client-limits",
            Self::Session => "session",
            Self::Commit => "commit",
        }
    }
}

/// How a rule judges, the gravest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

impl Verdict {
    /// The word that people read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Refused => "refused",
            Self::Unsatisfiable => "unsatisfiable",
        }
    }
}

/// What one rule says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleVerdict {
    /// Which rule.
    pub rule: Rule,
    /// How it judges.
    pub verdict: Verdict,
    /// The numbers, and what would work.
    pub message: String,
    /// The value at which the rule just holds, where there is one setting to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub works: Option<Works>,
}

/// The value at which a rule just holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Works {
    /// The setting to change.
    pub setting: &'static str,
    /// The largest value that works, or the smallest for a lower bound.
    pub value: i64,
}

impl RuleVerdict {
    pub(crate) fn new(rule: Rule, verdict: Verdict, message: impl Into<String>) -> Self {
        Self { rule, verdict, message: message.into(), works: None }
    }

    pub(crate) fn ok(rule: Rule, message: impl Into<String>) -> Self {
        Self::new(rule, Verdict::Ok, message)
    }

    pub(crate) fn warning(rule: Rule, message: impl Into<String>) -> Self {
        Self::new(rule, Verdict::Warning, message)
    }

    pub(crate) fn works(mut self, setting: &'static str, value: i64) -> Self {
        self.works = Some(Works { setting, value });
        self
    }
}

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) settings: &'a Settings,
    pub(crate) explicit: &'a Explicit,
    pub(crate) predicted: &'a Predicted,
}

impl Judged<'_> {
    /// An explicit setting that breaks a rule is refused; without one, no setting could have held it.
    pub(crate) fn broken(&self, names: &[&str]) -> Verdict {
        if self.explicit.has_any(names) { Verdict::Refused } else { Verdict::Unsatisfiable }
    }
}

/// All verdicts, in the order of the rules.
pub(crate) fn judge(judged: &Judged<'_>) -> Vec<RuleVerdict> {
    let mut verdicts = vec![
        fetch::ceiling(judged),
        fetch::fill(judged),
        fetch::low_traffic(judged),
        fetch::wait(judged),
        fetch::latency(judged),
        fetch::record_ceiling(judged),
    ];
    verdicts.extend([poll::interval(judged), poll::work(judged), poll::bytes(judged)]);
    verdicts.extend([resources::capacity(judged), resources::parallelism(judged), resources::memory(judged)]);
    verdicts.push(resources::client_limits(judged));
    verdicts.extend(group::session(judged));
    verdicts.push(group::commit(judged));
    verdicts
}

/// A size for people: exact, and in the unit that is easy to read.
pub(crate) fn size(bytes: i64) -> impl fmt::Display {
    struct Size(i64);
    impl fmt::Display for Size {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            const UNITS: [(i64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
            match UNITS.iter().find(|(unit, _)| self.0 >= *unit) {
                None => write!(f, "{} B", self.0),
                Some((unit, name)) if self.0 % unit == 0 => write!(f, "{} ({} {name})", self.0, self.0 / unit),
                Some((unit, name)) => {
                    let tenths = (self.0 % unit) * 10 / unit;
                    write!(f, "{} ({}.{tenths} {name})", self.0, self.0 / unit)
                }
            }
        }
    }
    Size(bytes)
}

/// A time for people.
pub(crate) fn ms(value: f64) -> impl fmt::Display {
    struct Ms(f64);
    impl fmt::Display for Ms {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                v if !v.is_finite() || v >= 1e12 => f.write_str("for ever"),
                v if v >= 10_000.0 => write!(f, "{:.0} s", v / 1000.0),
                v if v >= 10.0 || v.fract() == 0.0 => write!(f, "{v:.0} ms"),
                v => write!(f, "{v:.2} ms"),
            }
        }
    }
    Ms(value)
}
