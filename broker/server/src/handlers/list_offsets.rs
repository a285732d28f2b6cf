//! ListOffsets: first, last, newest-timestamp and by-time offsets, each with the leader epoch it was written in.
//!
//! What must hold: an unknown special timestamp is an error of that partition, not a search by a negative time; looking
//! into log files is done on a blocking thread, since they may be cold; a partition that is named twice is not searched.

use std::sync::Arc;

use forebay_broker_partition::{FoundOffset, Isolation, ReadError, TimestampSpec};
use forebay_broker_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
    ListOffsetsTopicResponse,
};
use forebay_broker_wire::types::{ErrorCode, LeaderEpoch, PartitionIndex, Uuid};

use super::error_code::code_of_read;
use super::lookup::{Topic, find_topic};
use super::repeated::Repeated;
use super::request::RequestContext;
use crate::broker::Broker;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
/// Without tiered storage the earliest local offset is the earliest one.
const EARLIEST_LOCAL: i64 = -4;
/// Without tiered storage nothing is in it, and nothing waits to go there.
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

const LEADER_EPOCH_FROM_VERSION: i16 = 4;
/// Clients before this version understand a new leader's "not yet" only as that of a leader to come.
const OFFSET_NOT_AVAILABLE_FROM_VERSION: i16 = 5;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = if request.isolation_level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    let mut topics = Vec::with_capacity(request.topics.len());
    let repeated = Repeated::among(request.topics.iter().flat_map(named));
    for asked in &request.topics {
        let topic = find_topic(broker, &asked.name, Uuid::ZERO).map_err(|failure| failure.code);
        let mut partitions = Vec::with_capacity(asked.partitions.len());
        for partition in &asked.partitions {
            let found = match repeated.refuse((&*asked.name, partition.partition_index), "partition") {
                Ok(()) => find(broker, &topic, isolation, partition).await,
                Err(failure) => Err(failure.code),
            };
            let mut listed = answer(partition, found);
            if listed.error_code == ErrorCode::OffsetNotAvailable.code()
                && context.api_version < OFFSET_NOT_AVAILABLE_FROM_VERSION
            {
                listed.error_code = ErrorCode::LeaderNotAvailable.code();
            }
            if context.api_version < LEADER_EPOCH_FROM_VERSION {
                listed.leader_epoch = ListOffsetsPartitionResponse::default().leader_epoch;
            }
            partitions.push(listed);
        }
        topics.push(ListOffsetsTopicResponse { name: asked.name.clone(), partitions });
    }
    ListOffsetsResponse { topics, ..ListOffsetsResponse::default() }
}

fn named(topic: &ListOffsetsTopic) -> impl Iterator<Item = (&str, i32)> {
    topic.partitions.iter().map(|asked| (&*topic.name, asked.partition_index))
}

fn answer(asked: &ListOffsetsPartition, found: Result<Option<FoundOffset>, ErrorCode>) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        ..ListOffsetsPartitionResponse::default()
    };
    match found {
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            timestamp: found.timestamp_ms,
            offset: found.offset.0,
            leader_epoch: found.leader_epoch.map_or(-1, |epoch| epoch.0),
            ..response
        },
        // No record is that new: the protocol's way to say so is offset -1.
        Ok(None) => response,
        Err(code) => ListOffsetsPartitionResponse { error_code: code.code(), ..response },
    }
}

async fn find(
    broker: &Arc<Broker>,
    topic: &Result<Topic, ErrorCode>,
    isolation: Isolation,
    asked: &ListOffsetsPartition,
) -> Result<Option<FoundOffset>, ErrorCode> {
    let topic = topic.as_ref().map_err(|code| *code)?;
    let hosted = topic.partition(broker, PartitionIndex(asked.partition_index)).map_err(|failure| failure.code)?;
    let epoch = (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    let Some(spec) = spec(asked.timestamp)? else { return Ok(None) };
    let found: Result<_, ReadError> = match spec {
        TimestampSpec::Latest | TimestampSpec::Earliest => hosted.partition.list_offset(spec, isolation, epoch),
        TimestampSpec::Max | TimestampSpec::At(_) => {
            let search = move || hosted.partition.list_offset(spec, isolation, epoch);
            tokio::task::spawn_blocking(search).await.map_err(|_stopping| ErrorCode::NotLeaderOrFollower)?
        }
    };
    found.map_err(|error| code_of_read(&error))
}

/// `None` for what can't exist without tiered storage.
fn spec(timestamp: i64) -> Result<Option<TimestampSpec>, ErrorCode> {
    match timestamp {
        LATEST => Ok(Some(TimestampSpec::Latest)),
        EARLIEST | EARLIEST_LOCAL => Ok(Some(TimestampSpec::Earliest)),
        MAX_TIMESTAMP => Ok(Some(TimestampSpec::Max)),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
        0.. => Ok(Some(TimestampSpec::At(timestamp))),
        _ => Err(ErrorCode::InvalidRequest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_timestamps_are_told_apart_from_times() {
        assert_eq!(spec(-1), Ok(Some(TimestampSpec::Latest)));
        assert_eq!(spec(-4), Ok(Some(TimestampSpec::Earliest)));
        assert_eq!(spec(-5), Ok(None));
        assert_eq!(spec(0), Ok(Some(TimestampSpec::At(0))));
        assert_eq!(spec(-7), Err(ErrorCode::InvalidRequest));
    }
}
