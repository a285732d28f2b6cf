//! DeleteRecords: what lies before an offset goes, at once for readers, on disk as soon as whole segments are concerned.

use std::sync::Arc;

use forebay_broker_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopic, DeleteRecordsTopicResult,
};
use forebay_broker_wire::types::{ErrorCode, Offset, PartitionIndex, Uuid};

use super::error_code::{Failure, code_of_update};
use super::lookup::find_topic;
use super::repeated::Repeated;
use super::request::RequestContext;
use crate::broker::Broker;
use crate::io::append::now_ms;

/// "All that is there", by the protocol.
const HIGH_WATERMARK: i64 = -1;
/// No offset to tell.
const NO_OFFSET: i64 = -1;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let asked = request.topics.clone();
    let working = Arc::clone(broker);
    let work = tokio::task::spawn_blocking(move || {
        let repeated = Repeated::among(request.topics.iter().flat_map(named));
        request.topics.iter().map(|topic| delete(&working, topic, &repeated)).collect()
    });
    let topics = work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "deleting records failed");
        asked.into_iter().map(unknown).collect()
    });
    DeleteRecordsResponse { topics, ..DeleteRecordsResponse::default() }
}

fn named(topic: &DeleteRecordsTopic) -> impl Iterator<Item = (&str, i32)> {
    topic.partitions.iter().map(|asked| (&*topic.name, asked.partition_index))
}

fn delete(broker: &Broker, topic: &DeleteRecordsTopic, repeated: &Repeated<(&str, i32)>) -> DeleteRecordsTopicResult {
    let partitions = topic.partitions.iter().map(|partition| {
        let once = repeated.refuse((&*topic.name, partition.partition_index), "partition");
        let result = once.and_then(|()| delete_before(broker, topic, partition));
        if let Err(failure) = &result {
            tracing::debug!(topic = %topic.name, partition = partition.partition_index, failure.message, "records not deleted");
        }
        answer(partition, result)
    });
    DeleteRecordsTopicResult { partitions: partitions.collect(), name: topic.name.clone() }
}

fn delete_before(
    broker: &Broker,
    topic: &DeleteRecordsTopic,
    asked: &DeleteRecordsPartition,
) -> Result<Offset, Failure> {
    let found = find_topic(broker, &topic.name, Uuid::ZERO)?;
    let hosted = found.partition(broker, PartitionIndex(asked.partition_index))?;
    if !hosted.partition.config().delete {
        let message =
            format!("cleanup.policy of topic '{}' does not contain delete: its records cannot be deleted", topic.name);
        return Err(Failure::new(ErrorCode::PolicyViolation, message));
    }
    let before = match asked.offset {
        HIGH_WATERMARK => None,
        offset => Some(Offset(offset)),
    };
    let start = hosted.partition.delete_records(before, now_ms());
    start.map_err(|error| Failure::new(code_of_update(&error), error.to_string()))
}

fn answer(asked: &DeleteRecordsPartition, result: Result<Offset, Failure>) -> DeleteRecordsPartitionResult {
    DeleteRecordsPartitionResult {
        partition_index: asked.partition_index,
        low_watermark: result.as_ref().map_or(NO_OFFSET, |start| start.0),
        error_code: result.err().map_or(0, |failure| failure.code.code()),
    }
}

fn unknown(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult {
    let failed = |asked| answer(asked, Err(Failure::new(ErrorCode::UnknownServerError, "the task failed")));
    DeleteRecordsTopicResult { partitions: topic.partitions.iter().map(failed).collect(), name: topic.name }
}
