//! From our errors to Kafka's codes: the one place where that is decided.
//!
//! What must hold: what a client can mend gets the code that says so, with words beside it where the protocol has room;
//! a disk that failed is KAFKA_STORAGE_ERROR, which clients retry, never UNKNOWN_SERVER_ERROR.

use forebay_broker_machines::groups::GroupError;
use forebay_broker_machines::metadata::{
    AlterConfigsError, CreatePartitionsError, CreateTopicError, DeleteTopicError, ElectLeadersError, ReassignError,
};
use forebay_broker_partition::{AppendError, InvalidBatch, ReadError, SequenceError, UpdateError};
use forebay_broker_storage::{AppendError as LogAppendError, DiskFull, LogError};
use forebay_broker_wire::records::BatchError;
use forebay_broker_wire::types::ErrorCode;

use crate::coordinators::Unavailable;
use crate::io::append::WriteError;
use crate::io::commit::NotCommitted;
use crate::metadata::SubmitError;

/// An answer that says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

pub(crate) fn code_of_group(error: &GroupError) -> ErrorCode {
    match error {
        GroupError::InvalidGroupId => ErrorCode::InvalidGroupId,
        GroupError::GroupNotFound { .. } => ErrorCode::GroupIdNotFound,
        GroupError::NonEmptyGroup { .. } => ErrorCode::NonEmptyGroup,
        GroupError::UnknownMember { .. } => ErrorCode::UnknownMemberId,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::FencedInstance { .. } => ErrorCode::FencedInstanceId,
        GroupError::IllegalGeneration { .. } => ErrorCode::IllegalGeneration,
        GroupError::InconsistentProtocol => ErrorCode::InconsistentGroupProtocol,
        GroupError::InvalidSessionTimeout { .. } => ErrorCode::InvalidSessionTimeout,
        GroupError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        GroupError::MaxSizeReached { .. } => ErrorCode::GroupMaxSizeReached,
        GroupError::SubscribedToTopic { .. } => ErrorCode::GroupSubscribedToTopic,
        GroupError::OffsetMetadataTooLarge { .. } => ErrorCode::OffsetMetadataTooLarge,
        // What Kafka's clients are told when a group outgrows a record; none of them has a better word for it.
        GroupError::AssignmentTooLarge { .. } => ErrorCode::UnknownServerError,
    }
}

pub(crate) fn code_of_unavailable(unavailable: Unavailable) -> ErrorCode {
    match unavailable {
        Unavailable::Loading => ErrorCode::CoordinatorLoadInProgress,
        Unavailable::NotCoordinator => ErrorCode::NotCoordinator,
        Unavailable::NotAvailable => ErrorCode::CoordinatorNotAvailable,
    }
}

pub(crate) fn code_of_create_topic(error: &CreateTopicError) -> ErrorCode {
    match error {
        CreateTopicError::InvalidName { .. } | CreateTopicError::Collides { .. } => ErrorCode::InvalidTopicException,
        CreateTopicError::AlreadyExists { .. } => ErrorCode::TopicAlreadyExists,
        CreateTopicError::Twice { .. } | CreateTopicError::CountsAndAssignment => ErrorCode::InvalidRequest,
        CreateTopicError::InvalidPartitions { .. } => ErrorCode::InvalidPartitions,
        CreateTopicError::TooManyPartitions { .. } => ErrorCode::PolicyViolation,
        CreateTopicError::InvalidReplicationFactor { .. } => ErrorCode::InvalidReplicationFactor,
        CreateTopicError::NoBroker => ErrorCode::BrokerNotAvailable,
        CreateTopicError::InvalidAssignment { .. } => ErrorCode::InvalidReplicaAssignment,
        CreateTopicError::InvalidConfig { .. } => ErrorCode::InvalidConfig,
    }
}

pub(crate) fn code_of_delete_topic(error: &DeleteTopicError) -> ErrorCode {
    match error {
        DeleteTopicError::UnknownName { .. } => ErrorCode::UnknownTopicOrPartition,
        DeleteTopicError::UnknownId { .. } => ErrorCode::UnknownTopicId,
        DeleteTopicError::Twice { .. } => ErrorCode::InvalidRequest,
    }
}

pub(crate) fn code_of_create_partitions(error: &CreatePartitionsError) -> ErrorCode {
    match error {
        CreatePartitionsError::UnknownTopic { .. } => ErrorCode::UnknownTopicOrPartition,
        CreatePartitionsError::NotMore { .. } => ErrorCode::InvalidPartitions,
        CreatePartitionsError::TooMany { .. } => ErrorCode::PolicyViolation,
        CreatePartitionsError::InvalidAssignment { .. } => ErrorCode::InvalidReplicaAssignment,
        CreatePartitionsError::TooFewBrokers { .. } => ErrorCode::InvalidReplicationFactor,
        CreatePartitionsError::Twice { .. } => ErrorCode::InvalidRequest,
    }
}

pub(crate) fn code_of_alter_configs(error: &AlterConfigsError) -> ErrorCode {
    match error {
        AlterConfigsError::UnknownTopic { .. } => ErrorCode::UnknownTopicOrPartition,
        AlterConfigsError::UnknownBroker { .. } => ErrorCode::BrokerNotAvailable,
        AlterConfigsError::Twice { .. } => ErrorCode::InvalidRequest,
        AlterConfigsError::InvalidConfig { .. } => ErrorCode::InvalidConfig,
    }
}

pub(crate) fn code_of_election(error: &ElectLeadersError) -> ErrorCode {
    match error {
        ElectLeadersError::UnknownPartition { .. } => ErrorCode::UnknownTopicOrPartition,
        ElectLeadersError::NotNeeded { .. } => ErrorCode::ElectionNotNeeded,
        ElectLeadersError::PreferredNotAvailable { .. } => ErrorCode::PreferredLeaderNotAvailable,
        ElectLeadersError::NoneAvailable { .. } => ErrorCode::EligibleLeadersNotAvailable,
    }
}

pub(crate) fn code_of_reassign(error: &ReassignError) -> ErrorCode {
    match error {
        ReassignError::UnknownPartition { .. } => ErrorCode::UnknownTopicOrPartition,
        ReassignError::NoReassignment { .. } => ErrorCode::NoReassignmentInProgress,
        ReassignError::InvalidAssignment { .. } | ReassignError::OnlyNewInSync => ErrorCode::InvalidReplicaAssignment,
        ReassignError::ReplicationFactor { .. } => ErrorCode::InvalidReplicationFactor,
    }
}

/// A reply of another kind than the command's: never, unless the two ends are of different releases.
pub(crate) fn no_answer() -> Failure {
    Failure::new(ErrorCode::UnknownServerError, "the controller gave no answer")
}

/// Refuses new partitions. Not a code that clients take for something that passes: they would try in silence.
pub(super) fn no_room(full: &DiskFull) -> Failure {
    Failure::new(ErrorCode::PolicyViolation, format!("there is no room for new partitions: {full}"))
}

/// A command that was not decided, or whose decision could not be kept: nothing has changed, and it may be tried again.
pub(crate) fn failure_of_submit(error: &SubmitError) -> Failure {
    let code = match error {
        SubmitError::NotDurable { .. } => ErrorCode::KafkaStorageError,
        // Not a code that clients take for something that passes: they would try in silence.
        SubmitError::NoRoom { .. } => ErrorCode::PolicyViolation,
        SubmitError::Busy | SubmitError::Undecided { .. } => ErrorCode::RequestTimedOut,
    };
    Failure::new(code, error.to_string())
}

pub(crate) fn code_of_update(error: &UpdateError) -> ErrorCode {
    match error {
        UpdateError::Closed(_) | UpdateError::NotLeader(_) => ErrorCode::NotLeaderOrFollower,
        UpdateError::Log(LogError::OutOfRange { .. }) => ErrorCode::OffsetOutOfRange,
        UpdateError::Log(LogError::Poisoned(_) | LogError::Disk(_)) => ErrorCode::KafkaStorageError,
    }
}

pub(crate) fn code_of_write(error: &WriteError) -> ErrorCode {
    match error {
        WriteError::Append(AppendError::Log(error)) => code_of_append(error),
        // Closed here means that its topic is being deleted, or that this broker is going down. A leader that has not settled is not told of
        // as one: OUT_OF_ORDER_SEQUENCE_NUMBER would end an idempotent producer whose earlier batch was passed on in the meantime.
        WriteError::Append(AppendError::Closed(_) | AppendError::NotLeader(_) | AppendError::Unsettled { .. })
        | WriteError::Stopping => ErrorCode::NotLeaderOrFollower,
        // Clients look for another leader then.
        WriteError::Flush(_) | WriteError::Hung { .. } => ErrorCode::KafkaStorageError,
    }
}

pub(crate) fn code_of_commit(error: NotCommitted) -> ErrorCode {
    match error {
        NotCommitted::NotEnoughReplicas => ErrorCode::NotEnoughReplicasAfterAppend,
        NotCommitted::NotLeader => ErrorCode::NotLeaderOrFollower,
        NotCommitted::Timeout => ErrorCode::RequestTimedOut,
    }
}

fn code_of_append(error: &LogAppendError) -> ErrorCode {
    match error {
        LogAppendError::Invalid(invalid) => match invalid {
            // Sending the same again helps only against damage on the way, which a checksum finds.
            InvalidBatch::Empty
            | InvalidBatch::InvalidRecord { .. }
            | InvalidBatch::Records(_)
            | InvalidBatch::Corrupt { source: BatchError::InvalidCount { .. }, .. } => ErrorCode::InvalidRecord,
            InvalidBatch::Corrupt { .. } => ErrorCode::CorruptMessage,
            InvalidBatch::Magic { .. } => ErrorCode::UnsupportedForMessageFormat,
            InvalidBatch::TooLarge { .. } => ErrorCode::MessageTooLarge,
            InvalidBatch::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
            InvalidBatch::Timestamp { .. } => ErrorCode::InvalidTimestamp,
        },
        LogAppendError::Sequence(SequenceError::InvalidProducerEpoch { .. }) => ErrorCode::InvalidProducerEpoch,
        LogAppendError::Sequence(SequenceError::OutOfOrder { .. }) => ErrorCode::OutOfOrderSequenceNumber,
        LogAppendError::NotNext { .. } => ErrorCode::UnknownServerError,
        LogAppendError::DiskFull(_) | LogAppendError::OutOfFiles { .. } | LogAppendError::Poisoned(_) => {
            ErrorCode::KafkaStorageError
        }
    }
}

pub(crate) fn code_of_read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
        ReadError::UnknownLeaderEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::OffsetNotAvailable { .. } => ErrorCode::OffsetNotAvailable,
        ReadError::Closed(_) | ReadError::NotLeader(_) => ErrorCode::NotLeaderOrFollower,
        ReadError::Disk(_) => ErrorCode::KafkaStorageError,
    }
}
