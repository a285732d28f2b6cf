//! The settings, by Kafka's (Java) names, and the explicit ones that people ask for.
//!
//! Explicit settings are taken as they are: `rules` judges them, nothing corrects them. A name that no client knows is
//! refused with the nearest one, because a client would ignore it silently.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::rules::{Rule, RuleVerdict, Verdict};
use crate::workload::{ClientFamily, GroupProtocol};

/// Effective settings. Units are in the names that `entries` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// `group.id`
    pub group_id: String,
    /// `group.protocol`
    pub group_protocol: GroupProtocol,
    /// `fetch.min.bytes`
    pub fetch_min_bytes: i64,
    /// `fetch.max.wait.ms`
    pub fetch_max_wait_ms: i64,
    /// `max.partition.fetch.bytes`
    pub max_partition_fetch_bytes: i64,
    /// `fetch.max.bytes`
    pub fetch_max_bytes: i64,
    /// `max.poll.records`; for clients without it, the records that the application takes at once.
    pub max_poll_records: i64,
    /// `max.poll.interval.ms`; the rebalance timeout of clients without it.
    pub max_poll_interval_ms: i64,
    /// `session.timeout.ms`, where it is the client's.
    pub session_timeout_ms: Option<i64>,
    /// `heartbeat.interval.ms`, where it is the client's.
    pub heartbeat_interval_ms: Option<i64>,
    /// `request.timeout.ms`
    pub request_timeout_ms: i64,
    /// `enable.auto.commit`
    pub enable_auto_commit: bool,
    /// librdkafka's `queued.max.messages.kbytes`.
    pub queued_max_messages_kbytes: Option<i64>,
    /// librdkafka's `queued.min.messages`.
    pub queued_min_messages: Option<i64>,
}

impl Settings {
    /// Every setting with its name, as text, in a fixed order.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let protocol = match self.group_protocol {
            GroupProtocol::Classic => "classic",
            GroupProtocol::Consumer => "consumer",
        };
        let mut entries = vec![
            ("group.id", self.group_id.clone()),
            ("group.protocol", protocol.to_owned()),
            ("enable.auto.commit", self.enable_auto_commit.to_string()),
            ("fetch.min.bytes", self.fetch_min_bytes.to_string()),
            ("fetch.max.wait.ms", self.fetch_max_wait_ms.to_string()),
            ("fetch.max.bytes", self.fetch_max_bytes.to_string()),
            ("max.partition.fetch.bytes", self.max_partition_fetch_bytes.to_string()),
            ("max.poll.records", self.max_poll_records.to_string()),
            ("max.poll.interval.ms", self.max_poll_interval_ms.to_string()),
            ("request.timeout.ms", self.request_timeout_ms.to_string()),
        ];
        let optional = [
            ("session.timeout.ms", self.session_timeout_ms),
            ("heartbeat.interval.ms", self.heartbeat_interval_ms),
            ("queued.max.messages.kbytes", self.queued_max_messages_kbytes),
            ("queued.min.messages", self.queued_min_messages),
        ];
        entries.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?.to_string()))));
        entries
    }
}

/// A setting that people may state, with the values that every client of the families takes.
struct Known {
    name: &'static str,
    alias: Option<&'static str>,
    min: i64,
    max: i64,
    librdkafka_only: bool,
}

const fn known(name: &'static str, min: i64, max: i64) -> Known {
    Known { name, alias: None, min, max, librdkafka_only: false }
}

const INT_MAX: i64 = i32::MAX as i64;

const KNOWN: [Known; 11] = [
    known("fetch.min.bytes", 1, INT_MAX),
    Known { name: "fetch.max.wait.ms", alias: Some("fetch.wait.max.ms"), min: 0, max: 300_000, librdkafka_only: false },
    Known { alias: Some("fetch.message.max.bytes"), ..known("max.partition.fetch.bytes", 1, 1_000_000_000) },
    known("fetch.max.bytes", 1, INT_MAX - 512),
    known("max.poll.records", 1, INT_MAX),
    known("max.poll.interval.ms", 1, 86_400_000),
    known("session.timeout.ms", 1, 3_600_000),
    known("heartbeat.interval.ms", 1, 3_600_000),
    known("request.timeout.ms", 1, 900_000),
    Known { librdkafka_only: true, ..known("queued.max.messages.kbytes", 1, 2_097_151) },
    Known { librdkafka_only: true, ..known("queued.min.messages", 1, 10_000_000) },
];

const AUTO_COMMIT: &str = "enable.auto.commit";

/// The settings that people asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explicit {
    numbers: BTreeMap<&'static str, i64>,
    auto_commit: Option<bool>,
}

impl Explicit {
    /// Reads settings by name; what can't be read is refused, with what would be right.
    pub fn parse(settings: &BTreeMap<String, String>, family: ClientFamily) -> (Self, Vec<RuleVerdict>) {
        let (mut explicit, mut refused) = (Self::default(), Vec::new());
        for (name, value) in settings {
            if let Err(message) = explicit.take(name, value.trim(), family) {
                refused.push(RuleVerdict::new(Rule::SettingKnown, Verdict::Refused, message));
            }
        }
        (explicit, refused)
    }

    fn take(&mut self, name: &str, value: &str, family: ClientFamily) -> Result<(), String> {
        if name == AUTO_COMMIT {
            let parsed = value.parse().map_err(|_| format!("{AUTO_COMMIT} is {value:?}; it is true or false"))?;
            self.auto_commit = Some(parsed);
            return Ok(());
        }
        let Some(known) = KNOWN.iter().find(|known| known.name == name || known.alias == Some(name)) else {
            return Err(format!("{name} is not a setting that a profile checks; the nearest is {}", nearest(name)));
        };
        if known.librdkafka_only && family != ClientFamily::Librdkafka {
            return Err(format!("{name} is a setting of librdkafka; clientFamily is {}", family.as_str()));
        }
        let parsed: i64 = value.parse().map_err(|_| format!("{name} is {value:?}; it is a whole number"))?;
        if !(known.min..=known.max).contains(&parsed) {
            return Err(format!("{name} is {parsed}; it is between {} and {}", known.min, known.max));
        }
        self.numbers.insert(known.name, parsed);
        Ok(())
    }

    /// The value asked for.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.numbers.get(name).copied()
    }

    /// Whether one of the names was asked for.
    pub fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.numbers.contains_key(name))
    }

    /// `enable.auto.commit`, if asked for.
    pub fn auto_commit(&self) -> Option<bool> {
        self.auto_commit
    }
}

fn nearest(name: &str) -> &'static str {
    let names = KNOWN.iter().map(|known| known.name).chain([AUTO_COMMIT]);
    names.min_by_key(|known| edit_distance(name, known)).unwrap_or(AUTO_COMMIT)
}

/// Insertions, deletions and replacements that make one name of the other.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}
