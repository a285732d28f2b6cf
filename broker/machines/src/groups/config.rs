//! The limits that a group coordinator works within; the names are those of the broker's settings.

/// Settings of the coordinator. `Default` is Kafka's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.initial.rebalance.delay.ms`: how long the first rebalance of an empty group waits for more members.
    pub initial_rebalance_delay_ms: i64,
    /// `group.min.session.timeout.ms`
    pub min_session_timeout_ms: i64,
    /// `group.max.session.timeout.ms`
    pub max_session_timeout_ms: i64,
    /// `group.max.size`: members that one group may have.
    pub max_size: usize,
    /// `offset.metadata.max.bytes`: length of the text that a commit may carry.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval_ms: i64,
    /// The most that one group's record may take: what the offsets topic accepts in one batch, less its overhead.
    pub max_record_bytes: usize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            initial_rebalance_delay_ms: 3_000,
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            max_size: 2_147_483_647,
            offset_metadata_max_bytes: 4_096,
            offsets_retention_ms: 7 * 24 * 3_600 * 1_000,
            offsets_retention_check_interval_ms: 600_000,
            max_record_bytes: 1_000_000,
        }
    }
}
