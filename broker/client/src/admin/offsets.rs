//! Offsets: where partitions begin and end, what groups have committed, and deleting records up to an offset.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_broker_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use forebay_broker_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use forebay_broker_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use forebay_broker_wire::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup};
use forebay_broker_wire::types::{BrokerId, ErrorCode, Offset, Str};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{Admin, Each, TopicPartition};
use crate::config::ClientConfig;
use crate::error::{Refused, RequestError};

/// Up to this version OffsetCommit and OffsetFetch name topics; from the next one they give ids.
pub(crate) const LAST_VERSION_WITH_NAMES: i16 = 9;

/// The most to wait for a partition's next leader: longer than an election takes, and a session of a broker that fell silent hardly.
const ELECTION_WAIT_MAX: Duration = Duration::from_secs(5);

/// Which offset is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first there is.
    Earliest,
    /// The one after the last.
    Latest,
    /// That of the record with the largest timestamp.
    MaxTimestamp,
    /// The first record at or after a time, milliseconds since 1970.
    Timestamp(i64),
}

impl OffsetSpec {
    fn to_wire(self) -> i64 {
        match self {
            Self::Earliest => -2,
            Self::Latest => -1,
            Self::MaxTimestamp => -3,
            Self::Timestamp(ms) => ms,
        }
    }
}

/// An offset, found; -1 when no record is as late as the time asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ListedOffset {
    /// The offset.
    pub offset: Offset,
    /// The record's timestamp, when a time was asked for; else -1.
    pub timestamp_ms: i64,
}

/// What a group committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommittedOffset {
    /// The next record to process.
    pub offset: Offset,
    /// What the member wrote beside it.
    pub metadata: String,
}

impl Admin {
    /// Finds offsets, each at the leader of its partition. A leader that has just changed is asked again, at most for the operation
    /// timeout: it does not know at once what it may tell (OFFSET_NOT_AVAILABLE, KIP-207).
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
    ) -> Result<Each<TopicPartition, ListedOffset>, RequestError> {
        let ClientConfig { operation_timeout, retry_backoff, .. } = *self.client.config();
        let begin = Instant::now();
        let mut all = Each::new();
        let mut left = wanted.to_vec();
        loop {
            all.extend(self.list_offsets_once(&left).await?);
            let next = begin.elapsed() + retry_backoff;
            let again = |refused: &Refused| next < wait_max(refused.code).min(operation_timeout);
            left.retain(|(tp, _)| matches!(all.get(tp), Some(Err(refused)) if again(refused)));
            if left.is_empty() {
                return Ok(all);
            }
            sleep(retry_backoff).await;
        }
    }

    async fn list_offsets_once(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
    ) -> Result<Each<TopicPartition, ListedOffset>, RequestError> {
        let mut all = Each::new();
        let (by_leader, lost) = self.by_leader(wanted).await?;
        all.extend(lost.into_iter().map(|(tp, refused)| (tp, Err(refused))));
        for (leader, wanted) in by_leader {
            let request =
                ListOffsetsRequest { replica_id: -1, topics: by_topic(&wanted, list_one), ..Default::default() };
            let send = async || Ok(self.client.broker(leader).await?.send(&request).await?.topics);
            for topic in self.client.retry(send).await? {
                all.extend(topic.partitions.into_iter().map(|p| {
                    let found = ListedOffset { offset: Offset(p.offset), timestamp_ms: p.timestamp };
                    let found = Refused::check(p.error_code, None).map(|()| found);
                    (TopicPartition::new(&topic.name, p.partition_index), found)
                }));
            }
        }
        Ok(all)
    }

    /// All offsets a group has committed.
    pub async fn committed_offsets(&self, group: &str) -> Result<Each<TopicPartition, CommittedOffset>, RequestError> {
        self.client.retry(async || self.committed_offsets_once(group).await).await
    }

    async fn committed_offsets_once(&self, group: &str) -> Result<Each<TopicPartition, CommittedOffset>, RequestError> {
        let coordinator = self.client.coordinator(group).await?;
        let version = coordinator.version_of::<OffsetFetchRequest>()?.min(LAST_VERSION_WITH_NAMES);
        let mut request = OffsetFetchRequest::default();
        if version >= 8 {
            let asked = OffsetFetchRequestGroup { group_id: Str::from(group), topics: None, ..Default::default() };
            request.groups = vec![asked];
        } else {
            request.group_id = Str::from(group);
            request.topics = None;
        }
        let response = coordinator.send_in(&request, version, std::time::Duration::ZERO).await?;
        let what = || format!("offsets of group {group}");
        RequestError::check(response.error_code, None, what)?;
        let mut all = Each::new();
        for topic in response.topics {
            for p in topic.partitions {
                let (tp, offset) = (TopicPartition::new(&topic.name, p.partition_index), p.committed_offset);
                all.insert(tp, committed(offset, p.metadata, p.error_code));
            }
        }
        for answered in response.groups {
            RequestError::check(answered.error_code, None, what)?;
            for topic in answered.topics {
                for p in topic.partitions {
                    let (tp, offset) = (TopicPartition::new(&topic.name, p.partition_index), p.committed_offset);
                    all.insert(tp, committed(offset, p.metadata, p.error_code));
                }
            }
        }
        all.retain(|_, o| !matches!(o, Ok(CommittedOffset { offset: Offset(-1), .. })));
        Ok(all)
    }

    /// Commits offsets for a group that has no members; a group with members refuses.
    pub async fn commit_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, Offset)],
    ) -> Result<Each<TopicPartition, ()>, RequestError> {
        let commit = |index: i32, offset: Offset| OffsetCommitRequestPartition {
            partition_index: index,
            committed_offset: offset.0,
            committed_leader_epoch: -1,
            committed_metadata: Some(Str::new()),
        };
        let topics = grouped(offsets, commit).into_iter().map(|(name, partitions)| OffsetCommitRequestTopic {
            name,
            partitions,
            ..Default::default()
        });
        let request = OffsetCommitRequest {
            group_id: Str::from(group),
            generation_id_or_member_epoch: -1,
            retention_time_ms: -1,
            topics: topics.collect(),
            ..Default::default()
        };
        let send = async || {
            let coordinator = self.client.coordinator(group).await?;
            let version = coordinator.version_of::<OffsetCommitRequest>()?.min(LAST_VERSION_WITH_NAMES);
            let response = coordinator.send_in(&request, version, std::time::Duration::ZERO).await?;
            let mut codes = response.topics.iter().flat_map(|t| t.partitions.iter().map(|p| p.error_code));
            let moved = codes.find(|code| *code != 0 && ErrorCode::from_code(*code).is_retriable());
            RequestError::check(moved.unwrap_or(0), None, || format!("commit of group {group}"))?;
            Ok(response.topics)
        };
        let mut all = Each::new();
        for topic in self.client.retry(send).await? {
            all.extend(
                topic
                    .partitions
                    .iter()
                    .map(|p| (TopicPartition::new(&topic.name, p.partition_index), Refused::check(p.error_code, None))),
            );
        }
        Ok(all)
    }

    /// Deletes the records before an offset (-1: all); answers with the first offset that is left.
    pub async fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
    ) -> Result<Each<TopicPartition, Offset>, RequestError> {
        let mut all = Each::new();
        let (by_leader, lost) = self.by_leader(before).await?;
        all.extend(lost.into_iter().map(|(tp, refused)| (tp, Err(refused))));
        for (leader, before) in by_leader {
            let delete = |partition_index, offset: Offset| DeleteRecordsPartition { partition_index, offset: offset.0 };
            let topics = grouped(&before, delete).into_iter();
            let topics = topics.map(|(name, partitions)| DeleteRecordsTopic { name, partitions }).collect();
            let request = DeleteRecordsRequest { topics, timeout_ms: self.change_timeout_ms() };
            let send = async || {
                Ok(self.client.broker(leader).await?.send_waiting(&request, self.change_timeout()).await?.topics)
            };
            for topic in self.client.retry(send).await? {
                all.extend(topic.partitions.iter().map(|p| {
                    let left = Refused::check(p.error_code, None).map(|()| Offset(p.low_watermark));
                    (TopicPartition::new(&topic.name, p.partition_index), left)
                }));
            }
        }
        Ok(all)
    }

    /// Sorts what is wanted by the leaders of its partitions; what has no leader is told apart.
    async fn by_leader<T: Copy>(&self, wanted: &[(TopicPartition, T)]) -> Result<ByLeader<T>, RequestError> {
        let mut names: Vec<&str> = wanted.iter().map(|(tp, _)| tp.topic.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let topics = self.describe_topics(&names).await?;
        let mut by_leader = BTreeMap::<BrokerId, Vec<(TopicPartition, T)>>::new();
        let mut lost = Vec::new();
        for (tp, what) in wanted {
            let leader = match topics.get(&tp.topic) {
                Some(Ok(topic)) => match topic.partitions.iter().find(|p| p.index == tp.partition) {
                    Some(partition) => partition.leader.ok_or(Refused::of(ErrorCode::LeaderNotAvailable)),
                    None => Err(Refused::of(ErrorCode::UnknownTopicOrPartition)),
                },
                Some(Err(refused)) => Err(refused.clone()),
                None => Err(Refused::of(ErrorCode::UnknownTopicOrPartition)),
            };
            match leader {
                Ok(leader) => by_leader.entry(leader).or_default().push((tp.clone(), *what)),
                Err(refused) => lost.push((tp.clone(), refused)),
            }
        }
        Ok((by_leader, lost))
    }
}

type ByLeader<T> = (BTreeMap<BrokerId, Vec<(TopicPartition, T)>>, Vec<(TopicPartition, Refused)>);

/// How long a refusal is worth another try: a leader that has just changed knows soon, a partition without one may stay so.
fn wait_max(code: ErrorCode) -> Duration {
    use ErrorCode::{
        FencedLeaderEpoch, LeaderNotAvailable, NotLeaderOrFollower, OffsetNotAvailable, UnknownLeaderEpoch,
    };
    match code {
        FencedLeaderEpoch | NotLeaderOrFollower | OffsetNotAvailable | UnknownLeaderEpoch => Duration::MAX,
        LeaderNotAvailable => ELECTION_WAIT_MAX,
        _ => Duration::ZERO,
    }
}

fn list_one(partition_index: i32, spec: OffsetSpec) -> ListOffsetsPartition {
    ListOffsetsPartition { partition_index, current_leader_epoch: -1, timestamp: spec.to_wire() }
}

fn by_topic(
    wanted: &[(TopicPartition, OffsetSpec)],
    one: impl Fn(i32, OffsetSpec) -> ListOffsetsPartition,
) -> Vec<ListOffsetsTopic> {
    grouped(wanted, one).into_iter().map(|(name, partitions)| ListOffsetsTopic { name, partitions }).collect()
}

fn grouped<T: Copy, P>(wanted: &[(TopicPartition, T)], one: impl Fn(i32, T) -> P) -> Vec<(Str, Vec<P>)> {
    let mut topics = BTreeMap::<&str, Vec<P>>::new();
    for (tp, what) in wanted {
        topics.entry(&tp.topic).or_default().push(one(tp.partition, *what));
    }
    topics.into_iter().map(|(name, partitions)| (Str::from(name), partitions)).collect()
}

fn committed(offset: i64, metadata: Option<Str>, code: i16) -> Result<CommittedOffset, Refused> {
    Refused::check(code, None)
        .map(|()| CommittedOffset { offset: Offset(offset), metadata: metadata.map(Into::into).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::messages::Message;
    use forebay_broker_wire::messages::list_offsets::{
        ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
    };
    use forebay_broker_wire::messages::metadata::{
        MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    use super::*;
    use crate::client::Client;
    use crate::connection::tests::{accept, frame, listener, receive};

    const METADATA_VERSION: i16 = 1;
    const LIST_OFFSETS_VERSION: i16 = 5;

    async fn listed(admin: &Admin) -> Result<ListedOffset, Refused> {
        let tp = TopicPartition::new("t", 0);
        admin.list_offsets(&[(tp.clone(), OffsetSpec::Latest)]).await.unwrap().remove(&tp).unwrap()
    }

    fn metadata(port: u16) -> MetadataResponse {
        let broker = MetadataResponseBroker { node_id: 1, host: "127.0.0.1".into(), port: port.into(), rack: None };
        let partition = MetadataResponsePartition { leader_id: 1, ..Default::default() };
        let topic = MetadataResponseTopic { name: Some("t".into()), partitions: vec![partition], ..Default::default() };
        MetadataResponse { brokers: vec![broker], controller_id: 1, topics: vec![topic], ..Default::default() }
    }

    /// Answers one connection: metadata names one leader, offsets get these codes, one after the other, the last one for ever.
    async fn answer(mut stream: TcpStream, port: u16, codes: std::sync::Arc<std::sync::Mutex<Vec<ErrorCode>>>) {
        loop {
            let header = receive(&mut stream).await;
            let bytes = if header.api_key == MetadataRequest::API_KEY.as_i16() {
                frame(&metadata(port), METADATA_VERSION, header.correlation_id)
            } else {
                let mut codes = codes.lock().unwrap();
                let code = if codes.len() > 1 { codes.remove(0) } else { codes[0] };
                let partition =
                    ListOffsetsPartitionResponse { error_code: code.code(), offset: 7, ..Default::default() };
                let topic = ListOffsetsTopicResponse { name: "t".into(), partitions: vec![partition] };
                let response = ListOffsetsResponse { topics: vec![topic], ..Default::default() };
                frame(&response, LIST_OFFSETS_VERSION, header.correlation_id)
            };
            stream.write_all(&bytes).await.unwrap();
        }
    }

    async fn admin(codes: &[ErrorCode]) -> Admin {
        let (listener, address) = listener().await;
        let port = listener.local_addr().unwrap().port();
        let codes = std::sync::Arc::new(std::sync::Mutex::new(codes.to_vec()));
        let versions = [
            (MetadataRequest::API_KEY.as_i16(), 0, METADATA_VERSION),
            (ListOffsetsRequest::API_KEY.as_i16(), 1, LIST_OFFSETS_VERSION),
        ];
        tokio::spawn(async move {
            loop {
                let stream = accept(&listener, &versions).await;
                tokio::spawn(answer(stream, port, std::sync::Arc::clone(&codes)));
            }
        });
        let config = ClientConfig { operation_timeout: Duration::from_secs(2), ..Default::default() };
        Admin::new(Client::connect(&address, config).await.unwrap())
    }

    #[tokio::test]
    async fn a_new_leader_that_does_not_know_yet_is_asked_again() {
        let admin = admin(&[ErrorCode::OffsetNotAvailable, ErrorCode::NotLeaderOrFollower, ErrorCode::None]).await;
        assert_eq!(listed(&admin).await.unwrap().offset, Offset(7));
    }

    #[tokio::test]
    async fn what_stays_refused_is_told_in_the_end_and_what_no_try_can_cure_at_once() {
        let waiting = admin(&[ErrorCode::OffsetNotAvailable]).await;
        assert_eq!(listed(&waiting).await.unwrap_err().code, ErrorCode::OffsetNotAvailable);
        let refused = admin(&[ErrorCode::TopicAuthorizationFailed, ErrorCode::None]).await;
        assert_eq!(listed(&refused).await.unwrap_err().code, ErrorCode::TopicAuthorizationFailed);
    }
}
