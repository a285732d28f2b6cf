//! OffsetForLeaderEpoch: where an epoch ended, so that a consumer whose position is from an older leader can check it.

use std::sync::Arc;

use forebay_broker_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};
use forebay_broker_wire::types::{ErrorCode, LeaderEpoch, PartitionIndex, Uuid};

use super::error_code::code_of_read;
use super::lookup::{Topic, find_topic};
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|asked| {
        let topic = find_topic(broker, &asked.topic, Uuid::ZERO).map_err(|failure| failure.code);
        let partitions = asked.partitions.iter().map(|partition| end_of_epoch(broker, &topic, partition)).collect();
        OffsetForLeaderTopicResult { topic: asked.topic, partitions }
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..OffsetForLeaderEpochResponse::default() }
}

fn end_of_epoch(broker: &Broker, topic: &Result<Topic, ErrorCode>, asked: &OffsetForLeaderPartition) -> EpochEndOffset {
    let response = EpochEndOffset { partition: asked.partition, ..EpochEndOffset::default() };
    match find(broker, topic, asked) {
        Ok(Some((epoch, end))) => EpochEndOffset { leader_epoch: epoch.0, end_offset: end.0, ..response },
        // Not known: the defaults, epoch -1 and offset -1, say so.
        Ok(None) => response,
        Err(code) => EpochEndOffset { error_code: code.code(), ..response },
    }
}

fn find(
    broker: &Broker,
    topic: &Result<Topic, ErrorCode>,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, forebay_broker_wire::types::Offset)>, ErrorCode> {
    let topic = topic.as_ref().map_err(|code| *code)?;
    let hosted = topic.partition(broker, PartitionIndex(asked.partition)).map_err(|failure| failure.code)?;
    let current = (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    let found = hosted.partition.end_offset_for_epoch(LeaderEpoch(asked.leader_epoch), current);
    found.map_err(|error| code_of_read(&error))
}
