//! The settings in each client's own words.
//!
//! What must always hold: the same settings give the same bytes (a ConfigMap changes only when settings do), and no name
//! is written that the client refuses.

use serde_json::json;

use crate::settings::Settings;
use crate::workload::{ClientFamily, GroupProtocol};

/// The name of the file for one client.
pub fn file_name(family: ClientFamily) -> &'static str {
    match family {
        ClientFamily::Java => "java.properties",
        ClientFamily::Librdkafka => "librdkafka.properties",
        ClientFamily::FranzGo => "franz-go.json",
    }
}

/// The text of the file for one client.
pub fn render(family: ClientFamily, settings: &Settings) -> String {
    match family {
        ClientFamily::Java => java(settings),
        ClientFamily::Librdkafka => librdkafka(settings),
        ClientFamily::FranzGo => franz_go(settings),
    }
}

fn java(settings: &Settings) -> String {
    let mut lines =
        vec!["# consumer settings for Apache's Java client; set group.instance.id to the pod's name".to_owned()];
    let of_librdkafka = |name: &str| name.starts_with("queued.");
    let entries = settings.entries().into_iter().filter(|(name, _)| !of_librdkafka(name));
    lines.extend(entries.map(|(name, value)| format!("{name}={}", escaped(&value))));
    if settings.group_protocol == GroupProtocol::Classic {
        lines.push(
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor".to_owned(),
        );
    }
    lines.join("\n") + "\n"
}

fn librdkafka(settings: &Settings) -> String {
    let mut lines = vec![
        "# consumer settings for librdkafka; set group.instance.id to the pod's name".to_owned(),
        format!("# take at most {} records at once (consume_batch or a counted loop)", settings.max_poll_records),
    ];
    for (name, value) in settings.entries() {
        match name {
            // Not a setting of librdkafka, or refused by it: the comment above, and the line below.
            "max.poll.records" | "request.timeout.ms" => {}
            // Versions before 2.4 don't know the name, and classic is what they speak.
            "group.protocol" if settings.group_protocol == GroupProtocol::Classic => {}
            "fetch.max.wait.ms" => lines.push(format!("fetch.wait.max.ms={value}")),
            _ => lines.push(format!("{name}={value}")),
        }
    }
    lines.push(format!("receive.message.max.bytes={}", settings.fetch_max_bytes.saturating_add(512)));
    lines.push(format!("socket.timeout.ms={}", settings.request_timeout_ms.max(10)));
    if settings.group_protocol == GroupProtocol::Classic {
        lines.push("partition.assignment.strategy=cooperative-sticky".to_owned());
    }
    lines.join("\n") + "\n"
}

fn franz_go(settings: &Settings) -> String {
    let mut options = json!({
        "group": settings.group_id,
        "balancer": "cooperative-sticky",
        "disableAutoCommit": !settings.enable_auto_commit,
        "fetchMinBytes": settings.fetch_min_bytes,
        "fetchMaxWaitMs": settings.fetch_max_wait_ms,
        "fetchMaxBytes": settings.fetch_max_bytes,
        "fetchMaxPartitionBytes": settings.max_partition_fetch_bytes,
        "pollRecords": settings.max_poll_records,
        "rebalanceTimeoutMs": settings.max_poll_interval_ms,
    });
    if let (Some(session_ms), Some(heartbeat_ms)) = (settings.session_timeout_ms, settings.heartbeat_interval_ms) {
        options["sessionTimeoutMs"] = session_ms.into();
        options["heartbeatIntervalMs"] = heartbeat_ms.into();
    }
    format!("{options:#}\n")
}

/// A value in a Java properties file: a backslash starts an escape there.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\")
}
