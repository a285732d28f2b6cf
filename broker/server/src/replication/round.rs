//! One fetch: the request for many partitions, and what the answer says of each.

use std::collections::HashMap;
use std::time::Duration;

use forebay_broker_client::{Connection, RequestError};
use forebay_broker_config::BrokerConfig;
use forebay_broker_partition::{EpochEnd, FetchPosition, LeaderAnswer};
use forebay_broker_wire::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState,
};
use forebay_broker_wire::primitives::Records;
use forebay_broker_wire::types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex};

use super::apply::What;
use crate::partitions::Key;

/// How a follower says that it fetches outside a session.
const NO_SESSION: i32 = -1;

/// A partition and where its log ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) key: Key,
    pub(super) position: FetchPosition,
    /// What it knows to be safe.
    pub(super) high_watermark: Offset,
    /// What comes counts for the rate of replicas that are not in sync.
    pub(super) throttled: bool,
}

/// What an answer says of one partition.
#[derive(Debug)]
pub(super) enum Told {
    /// Nothing that was not known.
    Nothing,
    Do(What),
    /// Asked in the wrong place, or too early, or in vain.
    Refused(ErrorCode),
}

/// The request, in the order of `asks`.
pub(super) fn request(config: &BrokerConfig, broker_epoch: i64, asks: &[Ask], wait: Duration) -> FetchRequest {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for ask in asks {
        let partition = FetchPartition {
            partition: ask.key.1.0,
            current_leader_epoch: ask.position.leader_epoch.0,
            fetch_offset: ask.position.offset.0,
            last_fetched_epoch: ask.position.last_fetched_epoch.map_or(-1, |epoch| epoch.0),
            log_start_offset: ask.position.log_start.0,
            partition_max_bytes: config.replica.fetch_max_bytes,
            // The leader leaves out partitions of which it has nothing else to say.
            high_watermark: ask.high_watermark.0,
            ..FetchPartition::default()
        };
        match topics.last_mut().filter(|topic| topic.topic_id == ask.key.0) {
            Some(topic) => topic.partitions.push(partition),
            None => {
                topics.push(FetchTopic { topic_id: ask.key.0, partitions: vec![partition], ..FetchTopic::default() });
            }
        }
    }
    FetchRequest {
        replica_state: ReplicaState { replica_id: config.broker_id, replica_epoch: broker_epoch },
        max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: config.replica.fetch_min_bytes,
        max_bytes: config.replica.fetch_response_max_bytes,
        session_epoch: NO_SESSION,
        topics,
        ..FetchRequest::default()
    }
}

/// Sends it and waits for the answer.
pub(super) async fn exchange(
    connection: &Connection,
    request: &FetchRequest,
    wait: Duration,
) -> Result<FetchResponse, RequestError> {
    let response = connection.send_waiting(request, wait).await?;
    RequestError::check(response.error_code, None, || "fetch of a replica".to_owned())?;
    Ok(response)
}

/// What the answer says of each partition that was asked for; one that it leaves out was answered by nothing.
pub(super) fn understand(asks: &[Ask], response: FetchResponse) -> Vec<(Ask, Told)> {
    let mut found: HashMap<Key, PartitionData> = HashMap::new();
    for topic in response.responses {
        let of_topic = topic.partitions.into_iter();
        found.extend(of_topic.map(|data| ((topic.topic_id, PartitionIndex(data.partition_index)), data)));
    }
    asks.iter().map(|ask| (*ask, found.remove(&ask.key).map_or(Told::Nothing, |data| told(ask, &data)))).collect()
}

fn told(ask: &Ask, data: &PartitionData) -> Told {
    let asked = ask.position;
    match ErrorCode::from_code(data.error_code) {
        ErrorCode::None if data.diverging_epoch.end_offset >= 0 => {
            let end = Offset(data.diverging_epoch.end_offset);
            let leader_end = EpochEnd { epoch: LeaderEpoch(data.diverging_epoch.epoch), end };
            Told::Do(What::Diverging { asked, leader_end })
        }
        ErrorCode::None => {
            let records = data.records.as_ref().and_then(Records::as_bytes).cloned().unwrap_or_default();
            let (high_watermark, log_start) = (Offset(data.high_watermark), Offset(data.log_start_offset));
            let known_safe = high_watermark.min(asked.offset) <= ask.high_watermark;
            if records.is_empty() && known_safe && log_start <= asked.log_start {
                return Told::Nothing;
            }
            Told::Do(What::Append(LeaderAnswer { asked, records, high_watermark, log_start }))
        }
        ErrorCode::OffsetOutOfRange if data.log_start_offset >= 0 && data.last_stable_offset >= 0 => {
            let (log_start, log_end) = (Offset(data.log_start_offset), Offset(data.last_stable_offset));
            Told::Do(What::OutOfRange { asked, log_start, log_end })
        }
        code => Told::Refused(code),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use forebay_broker_wire::messages::fetch::{EpochEndOffset, FetchableTopicResponse};
    use forebay_broker_wire::types::{BrokerId, Uuid};

    use super::*;

    fn ask(index: i32) -> Ask {
        let position = FetchPosition {
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(4),
            offset: Offset(10),
            last_fetched_epoch: Some(LeaderEpoch(3)),
            log_start: Offset(2),
        };
        let key = (Uuid([9; 16]), PartitionIndex(index));
        Ask { key, position, high_watermark: Offset(8), throttled: false }
    }

    fn data(high_watermark: i64, log_start_offset: i64) -> PartitionData {
        PartitionData { high_watermark, log_start_offset, records: Some(Records::empty()), ..PartitionData::default() }
    }

    fn said(data: &PartitionData) -> Told {
        told(&ask(0), data)
    }

    #[test]
    fn only_what_is_new_is_worth_a_disk_threads_time() {
        assert!(matches!(said(&data(8, 2)), Told::Nothing));
        assert!(
            matches!(said(&data(9, 2)), Told::Do(What::Append(LeaderAnswer { high_watermark: Offset(9), .. }))),
            "more is safe"
        );
        assert!(
            matches!(said(&data(8, 3)), Told::Do(What::Append(LeaderAnswer { log_start: Offset(3), .. }))),
            "records are deleted"
        );
        let records = Some(Records::Bytes(Bytes::from_static(b"batch")));
        assert!(matches!(said(&PartitionData { records, ..data(8, 2) }), Told::Do(What::Append(_))));
    }

    #[test]
    fn what_is_safe_beyond_the_end_here_is_no_news() {
        // It knows all it has to be safe, and will learn the rest with the records.
        let known = Ask { high_watermark: Offset(10), ..ask(0) };
        assert!(matches!(told(&known, &data(500, 2)), Told::Nothing));
    }

    #[test]
    fn logs_that_part_and_positions_outside_are_told_apart_from_refusals() {
        let parts = PartitionData { diverging_epoch: EpochEndOffset { epoch: 2, end_offset: 7 }, ..data(-1, -1) };
        let Told::Do(What::Diverging { leader_end, .. }) = said(&parts) else { panic!("the logs part") };
        assert_eq!(leader_end, EpochEnd { epoch: LeaderEpoch(2), end: Offset(7) });
        let outside =
            PartitionData { error_code: ErrorCode::OffsetOutOfRange.code(), last_stable_offset: 90, ..data(-1, 50) };
        let told = said(&outside);
        assert!(
            matches!(told, Told::Do(What::OutOfRange { log_start: Offset(50), log_end: Offset(90), .. })),
            "{told:?}"
        );
        let fenced = PartitionData { error_code: ErrorCode::FencedLeaderEpoch.code(), ..data(-1, -1) };
        assert!(matches!(said(&fenced), Told::Refused(ErrorCode::FencedLeaderEpoch)));
    }

    #[test]
    fn partitions_that_an_answer_leaves_out_have_nothing_new() {
        let one = PartitionData { partition_index: 1, ..data(9, 2) };
        let topic = FetchableTopicResponse {
            topic_id: Uuid([9; 16]),
            partitions: vec![one],
            ..FetchableTopicResponse::default()
        };
        let response = FetchResponse { responses: vec![topic], ..FetchResponse::default() };
        let told = understand(&[ask(0), ask(1)], response);
        assert!(matches!(told[..], [(_, Told::Nothing), (_, Told::Do(_))]), "{told:?}");
    }
}
