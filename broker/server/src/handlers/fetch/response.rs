//! From what was read to the answer: error codes, offsets, and a file range for each partition that has records.

use std::sync::Arc;

use forebay_broker_partition::ReadResult;
use forebay_broker_wire::messages::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};
use forebay_broker_wire::primitives::Records;
use forebay_broker_wire::types::{ErrorCode, Str, Uuid};

use super::limits::Found;
use super::{Wanted, WantedTopic};
use crate::broker::Broker;
use crate::handlers::encode;
use crate::handlers::request::{RequestContext, RequestError};
use crate::io::warm::is_cold;
use crate::net::send::{Answer, FileRange};

/// Topics have only their id from this version on.
const TOPIC_IDS_FROM_VERSION: i16 = 13;

pub(super) struct ReadPartition {
    pub(super) found: Found,
    pub(super) result: Result<ReadResult, ErrorCode>,
}

impl ReadPartition {
    pub(super) fn failed(found: Found, code: ErrorCode) -> Self {
        Self { found: Found { failed: true, ..found }, result: Err(code) }
    }
}

/// A whole-request error.
pub(super) fn refused(broker: &Broker, context: &RequestContext, error: ErrorCode) -> Result<Answer, RequestError> {
    let response = FetchResponse { error_code: error.code(), ..FetchResponse::default() };
    encode(broker, context, &response, Vec::new())
}

/// Brings in what is not in the page cache, so that sending it does not stop a network thread.
pub(super) async fn warm(broker: &Broker, wanted: &[Wanted], read: &[ReadPartition]) {
    for (wanted, read) in wanted.iter().zip(read) {
        let (Ok(hosted), Ok(result)) = (&wanted.hosted, &read.result) else { continue };
        let Some(slice) = &result.slice else { continue };
        let range = FileRange { file: Arc::clone(slice.file()), position: slice.position, length: slice.length };
        if is_cold(&range, slice.recent) {
            hosted.topic_metrics.cold_reads.inc();
            broker.warmer.warm(range).await;
        }
    }
}

pub(super) fn answer(
    broker: &Broker,
    context: &RequestContext,
    topics: &[WantedTopic],
    wanted: &[Wanted],
    read: Vec<ReadPartition>,
) -> Result<Answer, RequestError> {
    let by_id = context.api_version >= TOPIC_IDS_FROM_VERSION;
    let mut responses: Vec<_> = topics
        .iter()
        .map(|topic| FetchableTopicResponse {
            topic: if by_id { Str::default() } else { topic.name.clone() },
            topic_id: if by_id { topic.id } else { Uuid::ZERO },
            ..FetchableTopicResponse::default()
        })
        .collect();
    let mut files = Vec::new();
    for (wanted, read) in wanted.iter().zip(read) {
        let partition = partition_data(wanted, read.result, &mut files);
        if let Some(topic) = responses.get_mut(wanted.topic) {
            topic.partitions.push(partition);
        }
    }
    encode(broker, context, &FetchResponse { responses, ..FetchResponse::default() }, files)
}

fn partition_data(wanted: &Wanted, result: Result<ReadResult, ErrorCode>, files: &mut Vec<FileRange>) -> PartitionData {
    let partition_index = wanted.request.partition;
    let result = match result {
        Ok(result) => result,
        Err(code) => {
            return PartitionData {
                partition_index,
                error_code: code.code(),
                high_watermark: -1,
                records: Some(Records::empty()),
                ..PartitionData::default()
            };
        }
    };
    let records = match result.slice {
        Some(slice) => {
            if let Ok(hosted) = &wanted.hosted {
                hosted.topic_metrics.bytes_out.inc_by(u64::from(slice.length));
            }
            let token = u32::try_from(files.len()).unwrap_or(u32::MAX);
            files.push(FileRange { file: Arc::clone(slice.file()), position: slice.position, length: slice.length });
            Records::Region { token, length: slice.length }
        }
        // Some clients take null for a broken response.
        None => Records::empty(),
    };
    PartitionData {
        partition_index,
        high_watermark: result.high_watermark.0,
        last_stable_offset: result.last_stable_offset.0,
        log_start_offset: result.log_start_offset.0,
        records: Some(records),
        ..PartitionData::default()
    }
}
