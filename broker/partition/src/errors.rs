//! Why a partition does not do as it was asked.

use forebay_broker_storage::{AppendError as LogAppendError, LogError, LogName, SequenceError};
use forebay_broker_wire::types::LeaderEpoch;

/// The partition is closed on this broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("partition {name} is closed on this broker")]
pub struct Closed {
    /// Topic and index.
    pub name: LogName,
}

/// Another broker leads the partition, or none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this broker does not lead partition {name} (leader epoch {epoch})")]
pub struct NotLeader {
    /// Topic and index.
    pub name: LogName,
    /// The newest epoch known here.
    pub epoch: LeaderEpoch,
}

/// Why a request was not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Another broker leads.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The partition is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The log did not take it.
    #[error(transparent)]
    Log(#[from] LogAppendError),
    /// A producer's earlier batch is missing, and may be on its way to here from an earlier leader.
    #[error("this broker has led partition {name} for a moment only, and an earlier batch may be on its way: {error}")]
    Unsettled {
        /// Topic and index.
        name: LogName,
        /// What is said after that moment.
        error: SequenceError,
    },
}

/// Why a change of the partition failed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The partition is closed.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// Another broker leads.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The log failed or refused.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl AppendError {
    /// What the log refuses while its leader settles may be right soon: clients are to send it again, in its order.
    pub(crate) fn of_log(error: LogAppendError, name: &LogName, settling: bool) -> Self {
        match error {
            LogAppendError::Sequence(error @ SequenceError::OutOfOrder { .. }) if settling => {
                Self::Unsettled { name: name.clone(), error }
            }
            error => Self::Log(error),
        }
    }
}
