//! What travels over the simulated network.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use forebay_broker_machines::metadata::MetadataImage;
use forebay_broker_partition::{EpochEnd, FetchPosition, IsrAnswer, IsrProposal, ReplicaFetch};
use forebay_broker_wire::types::{BrokerId, Offset, Uuid};

/// Who sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Broker(BrokerId),
    Controller,
    Clients,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(id) => write!(f, "broker {id}"),
            Self::Controller => f.write_str("controller"),
            Self::Clients => f.write_str("clients"),
        }
    }
}

/// A message under way.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub(crate) from: Node,
    pub(crate) to: Node,
    /// An answer goes to the life of the process that asked: its connection ends with it.
    pub(crate) to_life: Option<u64>,
    pub(crate) message: Message,
}

#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// A process says that it is there, and on which disk; `incarnation` is new for each.
    Register {
        broker: BrokerId,
        directory: Uuid,
        life: u64,
        incarnation: u64,
    },
    Registered {
        incarnation: u64,
        broker_epoch: i64,
        image: Arc<MetadataImage>,
    },
    Heartbeat {
        broker: BrokerId,
        life: u64,
        broker_epoch: i64,
        image_version: i64,
        /// The disk takes no records.
        full: bool,
    },
    /// The controller knows a later registration, or none.
    NotRegistered {
        broker_epoch: i64,
    },
    Image(Arc<MetadataImage>),
    Propose {
        life: u64,
        broker_epoch: i64,
        number: u64,
        partition: usize,
        proposal: IsrProposal,
    },
    Proposed {
        number: u64,
        answer: IsrAnswer,
    },
    Fetch {
        life: u64,
        number: u64,
        partition: usize,
        fetch: ReplicaFetch,
        asked: FetchPosition,
    },
    Fetched {
        number: u64,
        partition: usize,
        asked: FetchPosition,
        answer: FetchAnswer,
    },
    Produce {
        number: u64,
        partition: usize,
        records: Bytes,
        all: bool,
    },
    Produced {
        number: u64,
        result: Result<Offset, &'static str>,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum FetchAnswer {
    Records { records: Bytes, high_watermark: Offset, log_start: Offset },
    Diverging(EpochEnd),
    OutOfRange { log_start: Offset, log_end: Offset },
    Refused,
}

impl Message {
    /// What the trace says of it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Register { broker, .. } => format!("register {broker}"),
            Self::Registered { broker_epoch, .. } => format!("registered as {broker_epoch}"),
            Self::Heartbeat { image_version, full, .. } => {
                format!("heartbeat at {image_version}{}", if *full { ", full" } else { "" })
            }
            Self::NotRegistered { broker_epoch } => format!("not registered as {broker_epoch}"),
            Self::Image(image) => format!("image {}", image.version()),
            Self::Propose { number, partition, proposal, .. } => {
                let IsrProposal { leader_epoch, partition_epoch, in_sync_replicas, .. } = proposal;
                format!(
                    "propose {number}: {partition} epoch {leader_epoch} state {partition_epoch} {in_sync_replicas:?}"
                )
            }
            Self::Proposed { number, answer } => format!("proposed {number}: {answer:?}"),
            Self::Fetch { number, partition, asked, .. } => {
                let (offset, epoch) = (asked.offset, asked.leader_epoch);
                format!("fetch {number}: {partition} from {offset} epoch {epoch}, last {:?}", asked.last_fetched_epoch)
            }
            Self::Fetched { number, answer, .. } => format!("fetched {number}: {answer}"),
            Self::Produce { number, partition, .. } => format!("produce {number}: {partition}"),
            Self::Produced { number, result } => format!("produced {number}: {result:?}"),
        }
    }
}

impl fmt::Display for FetchAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records { records, high_watermark, log_start } => {
                let first = records.get(..8).and_then(|base| base.try_into().ok()).map(i64::from_be_bytes);
                let length = records.len();
                write!(f, "{length} bytes from {first:?}, high watermark {high_watermark}, start {log_start}")
            }
            Self::Diverging(end) => write!(f, "parts at {} of epoch {}", end.end, end.epoch),
            Self::OutOfRange { log_start, log_end } => write!(f, "has only {log_start} to {log_end}"),
            Self::Refused => f.write_str("refused"),
        }
    }
}
