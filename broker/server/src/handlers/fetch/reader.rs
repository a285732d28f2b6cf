//! Who fetches, and what that lets it see: a follower all its leader has, a consumer what is safe, at the leader or at a replica near it.
//!
//! What must hold: a follower is believed only in its own leader epoch, and what it says is taken in once a request (`Look::First`); a
//! consumer that is sent to another replica (KIP-392) finds there what it asked for.

use std::sync::Arc;

use forebay_broker_partition::{EpochEnd, FetchSpec, Isolation, ReadError, ReadResult, ReplicaFetch, ReplicaRead};
use forebay_broker_wire::messages::fetch::{FetchPartition, FetchRequest};
use forebay_broker_wire::types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Str};
use tokio::time::Instant;

use super::limits::Found;
use crate::broker::Broker;
use crate::handlers::error_code::code_of_read;
use crate::handlers::request::RequestContext;
use crate::io::append::now_ms;
use crate::partitions::Hosted;

/// A follower names itself and its registration from this version on.
const REPLICA_STATE_FROM_VERSION: i16 = 15;
/// Consumers understand other replicas from this version on.
const FOLLOWERS_FROM_VERSION: i16 = 11;

#[derive(Debug)]
pub(super) enum Reader {
    Replica {
        id: BrokerId,
        broker_epoch: i64,
    },
    Consumer {
        isolation: Isolation,
        /// It may be answered by a follower.
        anywhere: bool,
        /// Where it is, if it says so and brokers are to care.
        rack: Option<Str>,
    },
}

/// Whether a request is looked at for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    First,
    Again,
}

/// What limits one partition's part of the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// `partition_max_bytes`.
    pub(super) limit_bytes: u64,
    /// What is left of it and of the whole.
    pub(super) max_bytes: u32,
    pub(super) min_one_batch: bool,
}

#[derive(Debug)]
pub(super) struct ReadPartition {
    pub(super) found: Found,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Read(ReadResult),
    /// The follower's log is not ours.
    Diverging(EpochEnd),
    /// A consumer should read from this replica.
    Nearer(BrokerId, ReadResult),
    /// What the log has instead.
    OutOfRange {
        log_start: Offset,
        log_end: Offset,
    },
    Failed(ErrorCode),
}

impl ReadPartition {
    pub(super) fn failed(bounds: Bounds, code: ErrorCode) -> Self {
        Self::at_once(bounds, Outcome::Failed(code))
    }

    /// Nothing to wait for.
    fn at_once(bounds: Bounds, outcome: Outcome) -> Self {
        let found = Found { limit_bytes: bounds.limit_bytes, bytes: 0, more: false, failed: true };
        Self { found, outcome }
    }

    /// `end` is as far as the reader may see.
    fn read(bounds: Bounds, offset: Offset, end: Offset, result: ReadResult) -> Self {
        let bytes = result.slice.as_ref().map_or(0, |slice| u64::from(slice.length));
        // Nothing although there is something: it does not fit.
        let more = result.slice.as_ref().map_or(offset < end, |slice| slice.more);
        let found = Found { limit_bytes: bounds.limit_bytes, bytes, more, failed: false };
        Self { found, outcome: Outcome::Read(result) }
    }

    fn error(bounds: Bounds, error: &ReadError) -> Self {
        let outcome = match error {
            ReadError::OutOfRange { log_start, log_end, .. } => {
                Outcome::OutOfRange { log_start: *log_start, log_end: *log_end }
            }
            error => Outcome::Failed(code_of_read(error)),
        };
        Self::at_once(bounds, outcome)
    }
}

impl Reader {
    pub(super) fn of(broker: &Broker, context: &RequestContext, request: &FetchRequest) -> Self {
        let (id, broker_epoch) = if context.api_version >= REPLICA_STATE_FROM_VERSION {
            (request.replica_state.replica_id, request.replica_state.replica_epoch)
        } else {
            (request.replica_id, -1)
        };
        if id >= 0 {
            return Self::Replica { id: BrokerId(id), broker_epoch };
        }
        let isolation =
            if request.isolation_level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
        let anywhere = context.api_version >= FOLLOWERS_FROM_VERSION;
        let rack = anywhere && broker.config.replica.rack_aware_reads && !request.rack_id.is_empty();
        Self::Consumer { isolation, anywhere, rack: rack.then(|| request.rack_id.clone()) }
    }

    pub(super) fn is_replica(&self) -> bool {
        matches!(self, Self::Replica { .. })
    }

    pub(super) fn read(
        &self,
        broker: &Broker,
        hosted: &Arc<Hosted>,
        request: &FetchPartition,
        bounds: Bounds,
        look: Look,
    ) -> ReadPartition {
        match self {
            Self::Replica { id, broker_epoch } => {
                let held_back = hosted.throttled().as_leader && is_held_back(broker, hosted, *id);
                let allowed = if held_back { Bounds { max_bytes: 0, min_one_batch: false, ..bounds } } else { bounds };
                let mut read = read_for_replica(hosted, (*id, *broker_epoch), request, allowed, look);
                if held_back {
                    // Later there will be something: not a reason to answer now.
                    read.found.more = false;
                } else if hosted.throttled().as_leader && !is_in_sync(hosted, *id) {
                    broker.replication.leader_throttle.take(read.found.bytes);
                }
                read
            }
            Self::Consumer { isolation, anywhere, rack } => {
                let spec = spec(request, bounds, *isolation);
                let read = if *anywhere { hosted.partition.read_here(&spec) } else { hosted.partition.read(&spec) };
                let result = match read {
                    Ok(result) => result,
                    Err(error) => return ReadPartition::error(bounds, &error),
                };
                let nearer = rack.as_deref().and_then(|rack| nearer(broker, hosted, spec.offset, rack));
                if let Some(replica) = nearer {
                    return ReadPartition::at_once(
                        bounds,
                        Outcome::Nearer(replica, ReadResult { slice: None, ..result }),
                    );
                }
                let committed = *isolation == Isolation::ReadCommitted;
                let end = if committed { result.last_stable_offset } else { result.high_watermark };
                ReadPartition::read(bounds, spec.offset, end, result)
            }
        }
    }
}

fn is_in_sync(hosted: &Hosted, replica: BrokerId) -> bool {
    hosted.partition.in_sync_replicas().is_some_and(|in_sync| in_sync.contains(&replica))
}

/// A replica that is not in sync waits while the rate for such is used up.
fn is_held_back(broker: &Broker, hosted: &Hosted, replica: BrokerId) -> bool {
    broker.replication.leader_throttle.wait(Instant::now()).is_some() && !is_in_sync(hosted, replica)
}

fn read_for_replica(
    hosted: &Hosted,
    (follower, broker_epoch): (BrokerId, i64),
    request: &FetchPartition,
    bounds: Bounds,
    look: Look,
) -> ReadPartition {
    let spec = spec(request, bounds, Isolation::LogEnd);
    let read = match look {
        Look::First => hosted.partition.read_for_replica(
            &ReplicaFetch {
                follower,
                broker_epoch,
                offset: spec.offset,
                log_start: Offset(request.log_start_offset),
                last_fetched_epoch: epoch(request.last_fetched_epoch),
                current_leader_epoch: LeaderEpoch(request.current_leader_epoch),
                max_bytes: spec.max_bytes,
                min_one_batch: spec.min_one_batch,
            },
            now_ms(),
        ),
        Look::Again => hosted.partition.read(&spec).map(ReplicaRead::Records),
    };
    match read {
        Ok(ReplicaRead::Records(result)) => {
            let end = hosted.partition.offsets().log_end;
            ReadPartition::read(bounds, spec.offset, end, result)
        }
        Ok(ReplicaRead::Diverging(end)) => ReadPartition::at_once(bounds, Outcome::Diverging(end)),
        Err(error) => ReadPartition::error(bounds, &error),
    }
}

fn spec(request: &FetchPartition, bounds: Bounds, isolation: Isolation) -> FetchSpec {
    FetchSpec {
        offset: Offset(request.fetch_offset),
        max_bytes: bounds.max_bytes,
        min_one_batch: bounds.min_one_batch,
        isolation,
        current_leader_epoch: epoch(request.current_leader_epoch),
    }
}

/// A replica in the consumer's rack that has what it asks for, unless this one is there too.
fn nearer(broker: &Broker, hosted: &Hosted, offset: Offset, rack: &str) -> Option<BrokerId> {
    if broker.config.rack.as_deref() == Some(rack) {
        return None;
    }
    let image = broker.metadata.image();
    let near = |id| image.brokers().any(|known| known.id == id && known.rack.as_deref() == Some(rack));
    hosted.partition.follower_for(offset, near)
}

fn epoch(on_the_wire: i32) -> Option<LeaderEpoch> {
    (on_the_wire >= 0).then_some(LeaderEpoch(on_the_wire))
}
