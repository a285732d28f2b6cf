//! What a partition's replication is asked to be, and the mistakes that tests make it commit.

/// When this replica counts a record as reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitRule {
    /// As soon as it is written.
    Written,
    /// Only when it is flushed (`flush.messages=1`).
    Flushed,
}

/// Settings that replication obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// When this replica counts a record as reached.
    pub rule: CommitRule,
    /// `min.insync.replicas`; a partition with fewer replicas wants all of them.
    pub min_insync_replicas: usize,
    /// `replica.lag.time.max.ms`: a follower that has not been at the log's end for so long leaves the ISR.
    pub lag_time_max_ms: i64,
    /// Only the simulation sets it, to see that its checkers find the mistake.
    pub mutation: Option<Mutation>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rule: CommitRule::Written, min_insync_replicas: 1, lag_time_max_ms: 30_000, mutation: None }
    }
}

/// A mistake made on purpose: each one loses or mixes up records, and the simulation must say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A leader takes for safe what it has itself, whatever its followers have.
    CommitWithoutFollowers,
    /// A leader does not wait for a follower whose entry into the ISR is proposed but not answered.
    IgnoreProposedMembers,
    /// A leader proposes a follower that has not reached the high watermark.
    ExpandBeforeCaughtUp,
    /// A follower keeps what its leader does not have.
    SkipTruncation,
    /// A follower believes answers that were meant for an earlier position.
    BelieveLateAnswers,
    /// With `flush.messages=1`, a follower asks for more before what it has is flushed.
    FetchBeforeFlush,
    /// The controller lets a new leader go on in the old one's epoch.
    ReuseEpoch,
    /// The controller takes a fenced broker, or an earlier life of a broker, into the ISR.
    CountFencedFollower,
    /// The controller takes a change that was decided on an older state of the partition.
    IgnorePartitionEpoch,
    /// The controller elects a replica that is not in sync.
    ElectOutOfSync,
    /// The controller takes a broker that lost its disk for one that has kept its logs.
    TrustEmptyLog,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::CommitWithoutFollowers,
        Self::IgnoreProposedMembers,
        Self::ExpandBeforeCaughtUp,
        Self::SkipTruncation,
        Self::BelieveLateAnswers,
        Self::FetchBeforeFlush,
        Self::ReuseEpoch,
        Self::CountFencedFollower,
        Self::IgnorePartitionEpoch,
        Self::ElectOutOfSync,
        Self::TrustEmptyLog,
    ];
}
