//! The metadata quorum: who leads it, who votes.

use forebay_broker_wire::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, RequestPartitionData, RequestTopicData,
};
use forebay_broker_wire::types::{BrokerId, Str};
use serde::Serialize;

use super::Admin;
use crate::error::RequestError;

/// The topic that stands for the metadata log.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// Who keeps the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuorumDescription {
    /// The leader: the active controller.
    pub leader: Option<BrokerId>,
    /// Brokers that vote, the leader among them.
    pub voters: Vec<BrokerId>,
    /// Brokers that only follow.
    pub observers: Vec<BrokerId>,
}

impl Admin {
    /// Describes the metadata quorum, as its leader knows it.
    pub async fn describe_quorum(&self) -> Result<QuorumDescription, RequestError> {
        let partitions = vec![RequestPartitionData { partition_index: 0 }];
        let topics = vec![RequestTopicData { topic_name: Str::from_static(METADATA_TOPIC), partitions }];
        let request = DescribeQuorumRequest { topics };
        self.client.retry(async || described(self.client.any().await?.send(&request).await?)).await
    }
}

fn described(response: DescribeQuorumResponse) -> Result<QuorumDescription, RequestError> {
    let what = || "describe the metadata quorum".to_owned();
    RequestError::check(response.error_code, response.error_message.as_ref(), what)?;
    let mut partitions = response.topics.into_iter().flat_map(|topic| topic.partitions);
    let partition = partitions.next().ok_or_else(|| RequestError::NoBroker { what: what() })?;
    RequestError::check(partition.error_code, partition.error_message.as_ref(), what)?;
    let ids = |states: &[forebay_broker_wire::messages::describe_quorum::ReplicaState]| {
        states.iter().map(|state| BrokerId(state.replica_id)).collect()
    };
    Ok(QuorumDescription {
        leader: Some(BrokerId(partition.leader_id)).filter(|id| *id != BrokerId::NONE),
        voters: ids(&partition.current_voters),
        observers: ids(&partition.observers),
    })
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::messages::describe_quorum::{ReplicaState, ResponsePartitionData, ResponseTopicData};
    use forebay_broker_wire::types::ErrorCode;

    use super::*;

    fn answer(partition: ResponsePartitionData) -> DescribeQuorumResponse {
        let topic = ResponseTopicData { partitions: vec![partition], ..ResponseTopicData::default() };
        DescribeQuorumResponse { topics: vec![topic], ..DescribeQuorumResponse::default() }
    }

    #[test]
    fn the_leader_is_named_and_a_quorum_without_one_has_none() {
        let state = |replica_id| ReplicaState { replica_id, ..ReplicaState::default() };
        let partition = ResponsePartitionData {
            leader_id: 1,
            current_voters: vec![state(0), state(1)],
            observers: vec![state(3)],
            ..ResponsePartitionData::default()
        };
        let quorum = described(answer(partition.clone())).unwrap();
        assert_eq!(quorum.leader, Some(BrokerId(1)));
        assert_eq!((quorum.voters, quorum.observers), (vec![BrokerId(0), BrokerId(1)], vec![BrokerId(3)]));
        let none = described(answer(ResponsePartitionData { leader_id: -1, ..partition })).unwrap();
        assert_eq!(none.leader, None);
    }

    #[test]
    fn a_refusal_of_the_whole_or_of_the_partition_is_an_error() {
        let refused = DescribeQuorumResponse {
            error_code: ErrorCode::NotLeaderOrFollower.code(),
            error_message: Some("the leader changes".into()),
            ..DescribeQuorumResponse::default()
        };
        assert!(described(refused).unwrap_err().to_string().contains("the leader changes"));
        let error_code = ErrorCode::UnknownTopicOrPartition.code();
        assert!(described(answer(ResponsePartitionData { error_code, ..ResponsePartitionData::default() })).is_err());
        assert!(described(DescribeQuorumResponse::default()).is_err());
    }
}
