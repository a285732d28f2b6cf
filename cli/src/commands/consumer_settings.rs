//! Consumer settings in Java's names, from a file: what `consume` takes from them, and what is wrong with them.
//!
//! What must hold: a name that no consumer has and a value that Java would refuse are told, all at once; a setting that exists and that this
//! command has no use for is taken without a word, since a profile's file is made for others.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::bail;
use forebay_broker_client::{FetchConfig, GroupConfig};
use forebay_broker_config::{Settings, nearest};

const INT_MAX: i64 = i32::MAX as i64;
/// What is taken, with what it can be.
const NUMBERS: [(&str, RangeInclusive<i64>); 6] = [
    ("fetch.min.bytes", 0..=INT_MAX),
    ("fetch.max.bytes", 0..=INT_MAX),
    ("max.partition.fetch.bytes", 0..=INT_MAX),
    ("fetch.max.wait.ms", 0..=INT_MAX),
    ("session.timeout.ms", 1..=INT_MAX),
    ("heartbeat.interval.ms", 1..=INT_MAX),
];
const WORDS: [(&str, &[&str]); 2] =
    [("isolation.level", &["read_committed", "read_uncommitted"]), ("auto.offset.reset", &["earliest", "latest"])];
const TEXTS: [&str; 2] = ["group.id", "group.instance.id"];
/// What consumers have besides.
const OTHERS: [&str; 39] = [
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "bootstrap.servers",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "config.providers",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "enable.metrics.push",
    "exclude.internal.topics",
    "group.protocol",
    "group.remote.assignor",
    "interceptor.classes",
    "key.deserializer",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.protocol",
    "security.providers",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
    "value.deserializer",
];
/// These name many more.
const PREFIXES: [&str; 3] = ["sasl.", "ssl.", "config.providers."];

/// Refuses what no consumer would take.
pub(super) fn check(settings: &Settings) -> anyhow::Result<()> {
    let wrong: Vec<String> = settings.iter().filter_map(|(name, value)| fault(name, value)).collect();
    if !wrong.is_empty() {
        bail!(wrong.join("\n"));
    }
    let member = member(settings, "", "");
    let (session_ms, heartbeat_ms) = (member.session_timeout.as_millis(), member.heartbeat_interval.as_millis());
    if heartbeat_ms >= session_ms {
        bail!("heartbeat.interval.ms={heartbeat_ms}: must be less than session.timeout.ms={session_ms}");
    }
    Ok(())
}

fn fault(name: &str, value: &str) -> Option<String> {
    if let Some((_, range)) = NUMBERS.iter().find(|(known, _)| *known == name) {
        let fits = value.parse().is_ok_and(|number| range.contains(&number));
        return (!fits).then(|| format!("{name}={value}: must be a number from {} to {}", range.start(), range.end()));
    }
    if let Some((_, words)) = WORDS.iter().find(|(known, _)| *known == name) {
        return (!words.contains(&value)).then(|| format!("{name}={value}: must be {}", words.join(" or ")));
    }
    if TEXTS.contains(&name) {
        return value.is_empty().then(|| format!("{name}: is empty"));
    }
    if OTHERS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let known =
        NUMBERS.iter().map(|(name, _)| *name).chain(WORDS.iter().map(|(name, _)| *name)).chain(TEXTS).chain(OTHERS);
    let near = nearest(name, known).map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
    Some(format!("unknown consumer setting '{name}'{near}"))
}

/// A number of settings that were checked.
fn number<T: std::str::FromStr>(settings: &Settings, name: &str) -> Option<T> {
    settings.get(name)?.parse().ok()
}

pub(super) fn fetch(settings: &Settings) -> FetchConfig {
    let default = FetchConfig::default();
    FetchConfig {
        min_bytes: number(settings, "fetch.min.bytes").unwrap_or(default.min_bytes),
        max_bytes: number(settings, "fetch.max.bytes").unwrap_or(default.max_bytes),
        max_partition_bytes: number(settings, "max.partition.fetch.bytes").unwrap_or(default.max_partition_bytes),
        max_wait: number(settings, "fetch.max.wait.ms").map_or(default.max_wait, Duration::from_millis),
        read_committed: settings.get("isolation.level").is_some_and(|level| level == "read_committed"),
    }
}

pub(super) fn member(settings: &Settings, group: &str, topic: &str) -> GroupConfig {
    let default = GroupConfig::new(group, &[topic]);
    let wait = |name: &str, default| number(settings, name).map_or(default, Duration::from_millis);
    GroupConfig {
        fetch: fetch(settings),
        instance_id: settings.get("group.instance.id").cloned(),
        from_earliest: settings.get("auto.offset.reset").is_none_or(|reset| reset != "latest"),
        session_timeout: wait("session.timeout.ms", default.session_timeout),
        heartbeat_interval: wait("heartbeat.interval.ms", default.heartbeat_interval),
        ..default
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_config::parse_properties;

    use super::*;

    #[test]
    fn the_settings_of_a_profile_are_taken() {
        let text = "fetch.min.bytes=65536\nfetch.max.wait.ms=50\nisolation.level=read_committed\nmax.poll.records=5\n";
        let settings = parse_properties(text).unwrap();
        check(&settings).unwrap();
        let config = fetch(&settings);
        assert_eq!(
            (config.min_bytes, config.max_wait, config.read_committed),
            (65_536, Duration::from_millis(50), true)
        );
    }

    #[track_caller]
    fn refused(text: &str, wanted: &str) {
        assert_eq!(check(&parse_properties(text).unwrap()).unwrap_err().to_string(), wanted);
    }

    #[test]
    fn what_no_consumer_would_take_is_told() {
        refused("fetch.min.bytes=much\n", "fetch.min.bytes=much: must be a number from 0 to 2147483647");
        refused("fetch.min.bytes=-4\n", "fetch.min.bytes=-4: must be a number from 0 to 2147483647");
        refused("isolation.level=some\n", "isolation.level=some: must be read_committed or read_uncommitted");
        refused("auto.offset.reset=none\n", "auto.offset.reset=none: must be earliest or latest");
        refused("fetch.min.byte=4\n", "unknown consumer setting 'fetch.min.byte'; did you mean 'fetch.min.bytes'?");
        refused("group.id=\nx=1\n", "group.id: is empty\nunknown consumer setting 'x'");
        let both = "session.timeout.ms=3000\nheartbeat.interval.ms=3000\n";
        refused(both, "heartbeat.interval.ms=3000: must be less than session.timeout.ms=3000");
    }
}
