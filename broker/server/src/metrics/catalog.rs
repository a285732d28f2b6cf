//! Every metric of the broker: name, help and labels, in one place, because dashboards and alerts are written against them.
//!
//! What must hold: labels are bounded (topics, groups, directories, APIs and error names are; client ids are not and
//! never become labels); a name once released keeps its meaning.

/// One metric as a scraper sees it.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

const fn metric(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, help, labels }
}

const TOPIC: &[&str] = &["topic"];
const PARTITION: &[&str] = &["topic", "partition"];
const GROUP_PARTITION: &[&str] = &["consumergroup", "topic", "partition"];

pub(crate) const TOPIC_BYTES_IN: Metric =
    metric("forebay_topic_bytes_in_total", "Bytes of record batches taken from producers.", TOPIC);
pub(crate) const TOPIC_BYTES_OUT: Metric =
    metric("forebay_topic_bytes_out_total", "Bytes of record batches sent to consumers.", TOPIC);
pub(crate) const TOPIC_MESSAGES_IN: Metric =
    metric("forebay_topic_messages_in_total", "Records taken from producers.", TOPIC);
pub(crate) const TOPIC_COLD_READS: Metric = metric(
    "forebay_topic_cold_reads_total",
    "Fetched ranges that were not in the page cache and were read from disk first.",
    TOPIC,
);
pub(crate) const REQUEST_DURATION: Metric = metric(
    "forebay_request_duration_seconds",
    "Time from a request's arrival to its answer, the wait of a long poll included.",
    &["api"],
);
pub(crate) const REQUESTS: Metric = metric("forebay_requests_total", "Requests answered.", &["api"]);
pub(crate) const REQUEST_ERRORS: Metric = metric(
    "forebay_request_errors_total",
    "Error codes in answers, one for each field that holds one.",
    &["api", "error"],
);
pub(crate) const CONNECTIONS: Metric = metric("forebay_connections", "Open client connections.", &[]);
pub(crate) const CONNECTIONS_TOTAL: Metric = metric("forebay_connections_total", "Client connections accepted.", &[]);
pub(crate) const FETCH_SESSIONS: Metric = metric("forebay_fetch_sessions", "Fetch sessions open.", &[]);
pub(crate) const FETCH_SESSION_EVICTIONS: Metric =
    metric("forebay_fetch_session_evictions_total", "Fetch sessions that had to make room for others.", &[]);
pub(crate) const IN_FLIGHT_BYTES: Metric = metric(
    "forebay_in_flight_bytes",
    "Bytes of requests received and not answered yet (bounded by queued.max.request.bytes).",
    &[],
);
pub(crate) const PARTITIONS: Metric = metric("forebay_partitions", "Partitions open on this broker.", &[]);
pub(crate) const UNDER_REPLICATED_PARTITIONS: Metric = metric(
    "forebay_under_replicated_partitions",
    "Partitions led by this broker that have fewer replicas in sync than they should have.",
    &[],
);
pub(crate) const UNDER_MIN_ISR_PARTITIONS: Metric = metric(
    "forebay_under_min_isr_partitions",
    "Partitions led by this broker that refuse acks=all, because fewer than min.insync.replicas are in sync.",
    &[],
);
pub(crate) const OFFLINE_REPLICAS: Metric = metric(
    "forebay_offline_replicas",
    "Replicas that this broker should have and can't serve: their logs are damaged, could not be opened, or are on a disk that has failed, hangs or is missing.",
    &[],
);
pub(crate) const OFFLINE_PARTITIONS: Metric = metric(
    "forebay_offline_partitions",
    "Partitions that nobody leads; said by the active controller, 0 elsewhere.",
    &[],
);
pub(crate) const ACTIVE_CONTROLLER: Metric =
    metric("forebay_active_controller", "1 on the broker that is the controller.", &[]);
pub(crate) const LEADER_ELECTIONS: Metric =
    metric("forebay_leader_elections_total", "Elections that this broker won.", &[]);
pub(crate) const ISR_SHRINKS: Metric = metric(
    "forebay_isr_shrinks_total",
    "Changes after which a partition led by this broker had fewer replicas in sync.",
    &[],
);
pub(crate) const ISR_EXPANDS: Metric = metric(
    "forebay_isr_expands_total",
    "Changes after which a partition led by this broker had more replicas in sync.",
    &[],
);
pub(crate) const LOG_DIR_BYTES: Metric = metric(
    "forebay_log_dir_bytes",
    "Bytes of a log directory: used by logs; free and total on its file system.",
    &["dir", "kind"],
);
pub(crate) const LOG_DIR_POISONED: Metric = metric(
    "forebay_log_dir_poisoned",
    "1 when the directory takes no writes until a restart: a write or flush failed, or it could not be used at the start.",
    &["dir"],
);
pub(crate) const LOG_DIR_HUNG: Metric = metric(
    "forebay_log_dir_hung",
    "1 while what is written to the directory does not end: others lead and keep in sync what is there.",
    &["dir"],
);
pub(crate) const LOG_DIR_FULL: Metric = metric(
    "forebay_log_dir_full",
    "1 while the directory's disk is too full for clients' records: others lead and keep in sync what is there, if they have room.",
    &["dir"],
);
pub(crate) const LOG_DIR_MISSING_LOGS: Metric = metric(
    "forebay_log_dir_missing_logs",
    "Partitions whose logs had vanished from the directory when the broker started: their records are not here.",
    &["dir"],
);
pub(crate) const LOG_DIR_INCONSISTENT_LOGS: Metric = metric(
    "forebay_log_dir_inconsistent_logs",
    "Logs that were refused when they were opened, or lack records that no crash can have taken: the broker's log says which and what to do.",
    &["dir"],
);
pub(crate) const FLUSH_DURATION: Metric =
    metric("forebay_flush_duration_seconds", "Duration of one fdatasync of a log.", &["dir"]);
pub(crate) const THREAD_POOL_BUSY: Metric = metric(
    "forebay_thread_pool_busy_ratio",
    "Share of a pool's time spent working since the scrape before, 0 to 1.",
    &["pool"],
);
pub(crate) const IN_FORCE: Metric =
    metric("forebay_in_force", "Settings as they are in force, read back.", &["setting"]);
pub(crate) const GROUPS: Metric = metric("forebay_groups", "Consumer groups by state.", &["state"]);
pub(crate) const CONSUMER_LAG: Metric = metric(
    "kafka_consumergroup_lag",
    "Records between a group's committed offset and the end of the partition; never negative.",
    GROUP_PARTITION,
);
pub(crate) const CONSUMER_OFFSET: Metric =
    metric("kafka_consumergroup_current_offset", "Offset a group has committed.", GROUP_PARTITION);
pub(crate) const CONSUMER_LAG_SECONDS: Metric = metric(
    "forebay_consumergroup_lag_seconds",
    "Age of the oldest record that a group has not committed; 0 when it has committed all.",
    GROUP_PARTITION,
);
pub(crate) const CONSUMER_NO_OFFSET: Metric = metric(
    "forebay_consumergroup_no_offset",
    "1 where a group reads a topic's other partitions but has committed no offset for this one.",
    GROUP_PARTITION,
);
pub(crate) const PARTITION_END_OFFSET: Metric =
    metric("kafka_topic_partition_current_offset", "End offset of a partition.", PARTITION);
pub(crate) const PARTITION_START_OFFSET: Metric =
    metric("kafka_topic_partition_oldest_offset", "First offset of a partition that is still there.", PARTITION);
pub(crate) const BUILD_INFO: Metric = metric("forebay_build_info", "1, labelled with the version.", &["version"]);
pub(crate) const PROCESS_CPU: Metric =
    metric("process_cpu_seconds_total", "User and system CPU time spent in seconds.", &[]);
pub(crate) const PROCESS_START: Metric =
    metric("process_start_time_seconds", "Start time of the process since the Unix epoch in seconds.", &[]);
pub(crate) const PROCESS_RESIDENT: Metric =
    metric("process_resident_memory_bytes", "Resident memory size in bytes.", &[]);
pub(crate) const PROCESS_VIRTUAL: Metric = metric("process_virtual_memory_bytes", "Virtual memory size in bytes.", &[]);
pub(crate) const PROCESS_FDS: Metric = metric("process_open_fds", "Number of open file descriptors.", &[]);
pub(crate) const PROCESS_FDS_MAX: Metric = metric("process_max_fds", "Maximum number of open file descriptors.", &[]);
pub(crate) const PROCESS_THREADS: Metric = metric("process_threads", "Number of threads.", &[]);

pub(crate) const QUORUM_LEADER: Metric =
    metric("forebay_quorum_leader", "1 on the broker that leads the metadata quorum, and so is the controller.", &[]);
pub(crate) const QUORUM_LED: Metric = metric(
    "forebay_quorum_led",
    "1 when this broker knows a leader of the metadata quorum; without one nothing can be changed.",
    &[],
);
pub(crate) const QUORUM_TERM: Metric =
    metric("forebay_quorum_term", "The metadata quorum's term; grows with each election.", &[]);
pub(crate) const QUORUM_VOTERS: Metric = metric("forebay_quorum_voters", "Brokers that vote on metadata.", &[]);
pub(crate) const QUORUM_LEARNERS: Metric =
    metric("forebay_quorum_learners", "Brokers that have the metadata and do not vote.", &[]);
pub(crate) const QUORUM_HIGH_WATERMARK: Metric =
    metric("forebay_quorum_high_watermark", "End of what is committed in the metadata log, as this broker knows.", &[]);
pub(crate) const QUORUM_LAG: Metric = metric(
    "forebay_quorum_lag",
    "Entries of the metadata log that the member which misses most does not have yet; on the leader only.",
    &[],
);

/// All of them, for the reference and for tests.
pub const ALL: &[Metric] = &[
    TOPIC_BYTES_IN,
    TOPIC_BYTES_OUT,
    TOPIC_MESSAGES_IN,
    TOPIC_COLD_READS,
    REQUEST_DURATION,
    REQUESTS,
    REQUEST_ERRORS,
    CONNECTIONS,
    CONNECTIONS_TOTAL,
    FETCH_SESSIONS,
    FETCH_SESSION_EVICTIONS,
    IN_FLIGHT_BYTES,
    PARTITIONS,
    UNDER_REPLICATED_PARTITIONS,
    UNDER_MIN_ISR_PARTITIONS,
    OFFLINE_REPLICAS,
    OFFLINE_PARTITIONS,
    ACTIVE_CONTROLLER,
    LEADER_ELECTIONS,
    ISR_SHRINKS,
    ISR_EXPANDS,
    LOG_DIR_BYTES,
    LOG_DIR_POISONED,
    LOG_DIR_HUNG,
    LOG_DIR_FULL,
    LOG_DIR_MISSING_LOGS,
    LOG_DIR_INCONSISTENT_LOGS,
    FLUSH_DURATION,
    QUORUM_LEADER,
    QUORUM_LED,
    QUORUM_TERM,
    QUORUM_VOTERS,
    QUORUM_LEARNERS,
    QUORUM_HIGH_WATERMARK,
    QUORUM_LAG,
    THREAD_POOL_BUSY,
    IN_FORCE,
    GROUPS,
    CONSUMER_LAG,
    CONSUMER_OFFSET,
    CONSUMER_LAG_SECONDS,
    CONSUMER_NO_OFFSET,
    PARTITION_END_OFFSET,
    PARTITION_START_OFFSET,
    BUILD_INFO,
    PROCESS_CPU,
    PROCESS_START,
    PROCESS_RESIDENT,
    PROCESS_VIRTUAL,
    PROCESS_FDS,
    PROCESS_FDS_MAX,
    PROCESS_THREADS,
];

/// The page `docs/reference/metrics.md`.
#[must_use]
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Metrics of the broker\n\nGenerated from `broker/server/src/metrics/catalog.rs`; do not edit. \
         Served at `/metrics` of `forebay.http.listener`.\n\n| metric | labels | what it says |\n| --- | --- | --- |\n",
    );
    for metric in ALL {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        page.push_str(&format!("| `{}` | {} | {} |\n", metric.name, labels.join(", "), metric.help));
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_reference_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, reference_page()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == reference_page(),
            "docs/reference/metrics.md is stale: UPDATE=1 cargo test -p forebay-broker-server rewrites it"
        );
    }

    #[test]
    fn every_metric_has_its_own_name_a_help_and_valid_labels() {
        let names: HashSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.help.ends_with('.'), "{} explains itself in a sentence", metric.name);
            let valid = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(valid(metric.name) && metric.labels.iter().all(|label| valid(label)), "{}", metric.name);
        }
    }
}
