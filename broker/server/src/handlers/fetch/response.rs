//! From what was read to the answer: error codes, offsets, and a file range for each partition that has records.

use std::sync::Arc;

use forebay_broker_machines::fetch_sessions;
use forebay_broker_partition::ReadResult;
use forebay_broker_wire::messages::fetch::{
    EpochEndOffset, FetchPartition, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use forebay_broker_wire::primitives::Records;
use forebay_broker_wire::types::{ErrorCode, PartitionIndex, Str, Uuid};

use super::reader::{Outcome, ReadPartition};
use super::sessions::TOPIC_IDS_FROM_VERSION;
use super::{Fetch, Wanted};
use crate::broker::Broker;
use crate::handlers::encode;
use crate::handlers::leader_hint::{self, LeaderHint};
use crate::handlers::request::{RequestContext, RequestError};
use crate::io::warm::is_cold;
use crate::net::send::{Answer, FileRange};

/// From this version on an answer says who leads instead.
const HINTS_FROM_VERSION: i16 = 16;

/// A whole-request error.
pub(super) fn refused(broker: &Broker, context: &RequestContext, error: ErrorCode) -> Result<Answer, RequestError> {
    let response = FetchResponse { error_code: error.code(), ..FetchResponse::default() };
    encode(broker, context, &response, Vec::new())
}

/// Brings in what is not in the page cache, so that sending it does not stop a network thread.
pub(super) async fn warm(broker: &Broker, wanted: &[Wanted], read: &[ReadPartition]) {
    for (wanted, read) in wanted.iter().zip(read) {
        let (Ok(hosted), Outcome::Read(result)) = (&wanted.hosted, &read.outcome) else { continue };
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
    fetch: &Fetch,
    read: Vec<ReadPartition>,
    session: &fetch_sessions::Answer,
) -> Result<Answer, RequestError> {
    let by_id = context.api_version >= TOPIC_IDS_FROM_VERSION;
    let mut responses: Vec<_> = fetch
        .topics
        .iter()
        .map(|topic| FetchableTopicResponse {
            topic: if by_id { Str::default() } else { topic.name.clone() },
            topic_id: if by_id { topic.id } else { Uuid::ZERO },
            ..FetchableTopicResponse::default()
        })
        .collect();
    let (mut files, mut hints) = (Vec::new(), Vec::new());
    for ((wanted, read), told) in fetch.wanted.iter().zip(read).zip(&session.told) {
        if !told || (fetch.reader.is_replica() && says_nothing(wanted, &read.outcome)) {
            continue;
        }
        let mut partition = partition_data(wanted, read.outcome, fetch.reader.is_replica(), &mut files);
        let elsewhere = [ErrorCode::NotLeaderOrFollower, ErrorCode::FencedLeaderEpoch];
        let wants_hint = elsewhere.iter().any(|code| code.code() == partition.error_code);
        if let Some(topic) = fetch.topics.get(wanted.topic)
            && wants_hint
            && context.api_version >= HINTS_FROM_VERSION
            && let Some(hint) =
                leader_hint::find(broker, &topic.name, topic.id, PartitionIndex(partition.partition_index))
        {
            partition.current_leader = leader_of(&hint);
            hints.push(hint);
        }
        if let Some(topic) = responses.get_mut(wanted.topic) {
            topic.partitions.push(partition);
        }
    }
    let nodes = leader_hint::nodes(broker, &context.listener, &hints).into_iter();
    let node_endpoints = nodes
        .map(|node| NodeEndpoint { node_id: node.id.0, host: node.host, port: node.port, rack: node.rack })
        .collect();
    responses.retain(|topic| !topic.partitions.is_empty());
    let response =
        FetchResponse { session_id: session.session_id, responses, node_endpoints, ..FetchResponse::default() };
    encode(broker, context, &response, files)
}

/// A follower that tells what it knows to be safe (from version 18 on) is told only what is new: with thousands of quiet partitions that is
/// next to nothing.
fn says_nothing(wanted: &Wanted, outcome: &Outcome) -> bool {
    let (asked, Outcome::Read(result)) = (&wanted.request, outcome) else { return false };
    let told = asked.high_watermark != FetchPartition::default().high_watermark;
    let safe = result.high_watermark.0.min(asked.fetch_offset) <= asked.high_watermark;
    told && safe && result.slice.is_none() && result.log_start_offset.0 <= asked.log_start_offset
}

fn leader_of(hint: &LeaderHint) -> LeaderIdAndEpoch {
    LeaderIdAndEpoch { leader_id: hint.leader.0, leader_epoch: hint.epoch.0 }
}

fn partition_data(wanted: &Wanted, outcome: Outcome, replica: bool, files: &mut Vec<FileRange>) -> PartitionData {
    let partition_index = wanted.request.partition;
    // Some clients take null records for a broken response.
    let empty = PartitionData {
        partition_index,
        high_watermark: -1,
        records: Some(Records::empty()),
        ..PartitionData::default()
    };
    match outcome {
        Outcome::Read(mut result) => {
            let records = result.slice.take().map(|slice| {
                if let Ok(hosted) = &wanted.hosted
                    && !replica
                {
                    hosted.topic_metrics.bytes_out.inc_by(u64::from(slice.length));
                }
                let token = u32::try_from(files.len()).unwrap_or(u32::MAX);
                let (position, length) = (slice.position, slice.length);
                files.push(FileRange { file: Arc::clone(slice.file()), position, length });
                Records::Region { token, length }
            });
            let records = records.or(empty.records.clone());
            PartitionData { records, ..with_offsets(empty, &result) }
        }
        Outcome::Nearer(broker, result) => {
            PartitionData { preferred_read_replica: broker.0, ..with_offsets(empty, &result) }
        }
        Outcome::Diverging(end) => {
            let diverging_epoch = EpochEndOffset { epoch: end.epoch.0, end_offset: end.end.0 };
            PartitionData { diverging_epoch, ..empty }
        }
        Outcome::OutOfRange { log_start, log_end } => PartitionData {
            error_code: ErrorCode::OffsetOutOfRange.code(),
            log_start_offset: log_start.0,
            // Followers of ours read this here, which saves them a ListOffsets; nobody else looks beside an error.
            last_stable_offset: if replica { log_end.0 } else { empty.last_stable_offset },
            ..empty
        },
        Outcome::Failed(code) => PartitionData { error_code: code.code(), ..empty },
    }
}

fn with_offsets(data: PartitionData, result: &ReadResult) -> PartitionData {
    PartitionData {
        high_watermark: result.high_watermark.0,
        last_stable_offset: result.last_stable_offset.0,
        log_start_offset: result.log_start_offset.0,
        ..data
    }
}
