//! Membership of a classic consumer group: join, share out partitions by range, heartbeat, commit, leave.
//!
//! There is no task behind it: the heartbeat is sent from [`GroupConsumer::poll`], which never waits longer than a heartbeat
//! interval, so a member that stops polling loses its partitions, as it should.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_wire::messages::Data;
use forebay_broker_wire::messages::data::consumer_protocol_assignment::{
    ConsumerProtocolAssignment, TopicPartition as Share,
};
use forebay_broker_wire::messages::data::consumer_protocol_subscription::ConsumerProtocolSubscription;
use forebay_broker_wire::messages::heartbeat::HeartbeatRequest;
use forebay_broker_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use forebay_broker_wire::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use forebay_broker_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use forebay_broker_wire::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use forebay_broker_wire::types::{ErrorCode, Offset, Str};
use tokio::time::Instant;

use crate::admin::offsets::LAST_VERSION_WITH_NAMES;
use crate::admin::{Admin, OffsetSpec, TopicPartition};
use crate::client::Client;
use crate::connection::Connection;
use crate::consumer::{ConsumeError, Consumed, Consumer, FetchConfig};
use crate::error::RequestError;

const PROTOCOL_TYPE: &str = "consumer";
/// The only assignor we know, and the one that all clients know.
const RANGE: &str = "range";
/// The version of the embedded subscription and assignment.
const EMBEDDED_VERSION: i16 = 1;

/// How a member behaves.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The group.
    pub group: String,
    /// What it reads.
    pub topics: Vec<String>,
    /// A static member's own id.
    pub instance_id: Option<String>,
    /// `session.timeout.ms`.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// The most that a rebalance waits for this member.
    pub rebalance_timeout: Duration,
    /// Whether a partition without a committed offset begins with its first record, rather than behind its last.
    pub from_earliest: bool,
    /// How it fetches; the wait is cut to the heartbeat interval.
    pub fetch: FetchConfig,
}

impl GroupConfig {
    /// Kafka's defaults.
    #[must_use]
    pub fn new(group: &str, topics: &[&str]) -> Self {
        Self {
            group: group.to_owned(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            instance_id: None,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: Duration::from_secs(60),
            from_earliest: true,
            fetch: FetchConfig::default(),
        }
    }
}

/// A member of a group, and its consumer.
#[derive(Debug)]
pub struct GroupConsumer {
    client: Client,
    config: GroupConfig,
    consumer: Consumer,
    member_id: Str,
    generation: i32,
    joined: bool,
    last_heartbeat: Instant,
}

impl GroupConsumer {
    /// A member that joins with its first poll, on connections of its own.
    #[must_use]
    pub fn new(client: &Client, mut config: GroupConfig) -> Self {
        config.fetch.max_wait = config.fetch.max_wait.min(config.heartbeat_interval);
        let consumer = Consumer::new(client, config.fetch);
        Self {
            client: client.separate(),
            config,
            consumer,
            member_id: Str::new(),
            generation: -1,
            joined: false,
            last_heartbeat: Instant::now(),
        }
    }

    /// The next offset of each partition that this member has.
    #[must_use]
    pub fn positions(&self) -> &BTreeMap<TopicPartition, Offset> {
        self.consumer.positions()
    }

    /// Waits for records of the partitions that this member has; joins and rejoins as needed.
    pub async fn poll(&mut self) -> Result<Vec<Consumed>, ConsumeError> {
        if !self.joined {
            self.join().await?;
        } else if self.last_heartbeat.elapsed() >= self.config.heartbeat_interval {
            self.heartbeat().await?;
            if !self.joined {
                return Ok(Vec::new()); // the caller may commit before the partitions are shared out anew
            }
        }
        self.consumer.poll().await
    }

    /// Commits the positions.
    pub async fn commit(&self) -> Result<(), RequestError> {
        let mut topics = BTreeMap::<&str, Vec<OffsetCommitRequestPartition>>::new();
        for (tp, offset) in self.positions() {
            topics.entry(&tp.topic).or_default().push(OffsetCommitRequestPartition {
                partition_index: tp.partition,
                committed_offset: offset.0,
                committed_leader_epoch: -1,
                committed_metadata: Some(Str::new()),
            });
        }
        let named =
            |(name, partitions)| OffsetCommitRequestTopic { name: Str::from(name), partitions, ..Default::default() };
        let request = OffsetCommitRequest {
            group_id: self.group(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance(),
            retention_time_ms: -1,
            topics: topics.into_iter().map(named).collect(),
        };
        let send = async || {
            let coordinator = self.coordinator().await?;
            let version = coordinator.version_of::<OffsetCommitRequest>()?.min(LAST_VERSION_WITH_NAMES);
            let response = coordinator.send_in(&request, version, Duration::ZERO).await?;
            let mut codes = response.topics.iter().flat_map(|t| t.partitions.iter().map(|p| p.error_code));
            let refused = codes.find(|code| *code != 0).unwrap_or(0);
            RequestError::check(refused, None, || format!("commit of group {}", self.config.group))
        };
        self.client.retry(send).await
    }

    /// Leaves the group, so that others get the partitions at once.
    pub async fn leave(self) -> Result<(), RequestError> {
        if self.member_id.is_empty() {
            return Ok(());
        }
        let coordinator = self.coordinator().await?;
        let mut request = LeaveGroupRequest { group_id: self.group(), ..Default::default() };
        if coordinator.version_of::<LeaveGroupRequest>()? >= 3 {
            let member =
                MemberIdentity { member_id: self.member_id.clone(), group_instance_id: self.instance(), reason: None };
            request.members = vec![member];
        } else {
            request.member_id = self.member_id.clone();
        }
        let response = coordinator.send(&request).await?;
        RequestError::check(response.error_code, None, || format!("leave group {}", self.config.group))
    }

    fn group(&self) -> Str {
        Str::from(&self.config.group)
    }

    fn instance(&self) -> Option<Str> {
        self.config.instance_id.as_ref().map(Str::from)
    }

    async fn coordinator(&self) -> Result<Arc<Connection>, RequestError> {
        self.client.coordinator(&self.config.group).await
    }

    async fn heartbeat(&mut self) -> Result<(), RequestError> {
        let request = HeartbeatRequest {
            group_id: self.group(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance(),
        };
        let response = self.client.retry(async || self.coordinator().await?.send(&request).await).await?;
        self.last_heartbeat = Instant::now();
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => self.joined = false,
            ErrorCode::UnknownMemberId => {
                self.joined = false;
                self.member_id = Str::new();
            }
            code if code.is_retriable() => {} // the coordinator moved or loads; the next heartbeat finds it
            _ => {
                RequestError::check(response.error_code, None, || format!("heartbeat to group {}", self.config.group))?;
            }
        }
        Ok(())
    }

    /// Joins, shares out if made leader, and begins where the group has committed.
    async fn join(&mut self) -> Result<(), RequestError> {
        let deadline = Instant::now() + self.config.rebalance_timeout + self.client.config().operation_timeout;
        loop {
            match self.join_once().await {
                Ok(()) => break,
                Err(error) if Instant::now() < deadline && self.can_rejoin(&error) => {
                    tokio::time::sleep(self.client.config().retry_backoff).await;
                }
                Err(error) => return Err(error),
            }
        }
        self.joined = true;
        self.last_heartbeat = Instant::now();
        Ok(())
    }

    fn can_rejoin(&mut self, error: &RequestError) -> bool {
        match error.code() {
            Some(ErrorCode::UnknownMemberId) => {
                self.member_id = Str::new();
                true
            }
            Some(ErrorCode::MemberIdRequired | ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration) => true,
            _ => error.is_transient(),
        }
    }

    async fn join_once(&mut self) -> Result<(), RequestError> {
        let coordinator = self.coordinator().await?;
        let subscription = ConsumerProtocolSubscription {
            topics: self.config.topics.iter().map(Str::from).collect(),
            ..Default::default()
        };
        let metadata = subscription.to_prefixed_bytes(EMBEDDED_VERSION).map_err(|source| RequestError::Encode {
            api: "JoinGroup",
            version: EMBEDDED_VERSION,
            source: source.into(),
        })?;
        let request = JoinGroupRequest {
            group_id: self.group(),
            session_timeout_ms: milliseconds(self.config.session_timeout),
            rebalance_timeout_ms: milliseconds(self.config.rebalance_timeout),
            member_id: self.member_id.clone(),
            group_instance_id: self.instance(),
            protocol_type: Str::from_static(PROTOCOL_TYPE),
            protocols: vec![JoinGroupRequestProtocol { name: Str::from_static(RANGE), metadata }],
            reason: None,
        };
        let joined = coordinator.send_waiting(&request, self.config.rebalance_timeout).await?;
        if !joined.member_id.is_empty() {
            self.member_id = joined.member_id.clone(); // also with MEMBER_ID_REQUIRED, to come back with
        }
        RequestError::check(joined.error_code, None, || format!("join group {}", self.config.group))?;
        self.generation = joined.generation_id;
        let assignments = if joined.leader == joined.member_id && !joined.skip_assignment {
            self.share_out(&joined).await?
        } else {
            Vec::new()
        };
        let request = SyncGroupRequest {
            group_id: self.group(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance(),
            protocol_type: Some(Str::from_static(PROTOCOL_TYPE)),
            protocol_name: Some(Str::from_static(RANGE)),
            assignments,
        };
        let synced = coordinator.send_waiting(&request, self.config.rebalance_timeout).await?;
        RequestError::check(synced.error_code, None, || format!("sync group {}", self.config.group))?;
        self.begin(synced.assignment).await
    }

    /// As leader: each topic's partitions in runs to the members that want it.
    async fn share_out(&self, joined: &JoinGroupResponse) -> Result<Vec<SyncGroupRequestAssignment>, RequestError> {
        let mut wants = BTreeMap::<&str, Vec<Str>>::new();
        for member in &joined.members {
            // A member whose subscription can't be read gets nothing, rather than stopping the group.
            let subscription = ConsumerProtocolSubscription::from_prefixed_bytes(member.metadata.clone());
            wants.insert(&member.member_id, subscription.map(|s| s.topics).unwrap_or_default());
        }
        let mut topics: Vec<&str> = wants.values().flatten().map(Str::as_str).collect();
        topics.sort_unstable();
        topics.dedup();
        let described = Admin::new(self.client.clone()).describe_topics(&topics).await?;
        let counts =
            described.iter().filter_map(|(name, topic)| Some((name.as_str(), topic.as_ref().ok()?.partitions.len())));
        let shares = range(&wants, &counts.collect());
        let assignment = |(member, topics): (&str, BTreeMap<&str, Vec<i32>>)| {
            let shares = topics.into_iter().map(|(topic, partitions)| Share { topic: Str::from(topic), partitions });
            let assigned = ConsumerProtocolAssignment { assigned_partitions: shares.collect(), user_data: None };
            let bytes = assigned.to_prefixed_bytes(EMBEDDED_VERSION);
            bytes.map(|assignment| SyncGroupRequestAssignment { member_id: Str::from(member), assignment })
        };
        let encoded: Result<_, _> = shares.into_iter().map(assignment).collect();
        encoded.map_err(|source| RequestError::Encode {
            api: "SyncGroup",
            version: EMBEDDED_VERSION,
            source: source.into(),
        })
    }

    async fn begin(&mut self, assignment: bytes::Bytes) -> Result<(), RequestError> {
        let assigned = crate::admin::groups::assigned(assignment);
        let admin = Admin::new(self.client.clone());
        let committed = admin.committed_offsets(&self.config.group).await?;
        let mut positions = BTreeMap::new();
        let mut fresh = Vec::new();
        let spec = if self.config.from_earliest { OffsetSpec::Earliest } else { OffsetSpec::Latest };
        for tp in assigned {
            match committed.get(&tp) {
                Some(Ok(offset)) => drop(positions.insert(tp, offset.offset)),
                _ => fresh.push((tp, spec)),
            }
        }
        for (tp, listed) in admin.list_offsets(&fresh).await? {
            let what = format!("offsets of {tp}");
            let listed = listed.map_err(|refused| RequestError::Refused { what, refused })?;
            positions.insert(tp, listed.offset);
        }
        self.consumer.assign(positions);
        Ok(())
    }
}

fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// The range assignment: each topic's partitions in order, in runs, the first members getting one more where it does not divide.
fn range<'a>(
    wants: &BTreeMap<&'a str, Vec<Str>>,
    counts: &BTreeMap<&'a str, usize>,
) -> BTreeMap<&'a str, BTreeMap<&'a str, Vec<i32>>> {
    let mut shares: BTreeMap<&str, BTreeMap<&str, Vec<i32>>> =
        wants.keys().map(|member| (*member, BTreeMap::new())).collect();
    for (topic, count) in counts {
        let members: Vec<&str> =
            wants.iter().filter(|(_, topics)| topics.iter().any(|t| t == topic)).map(|(m, _)| *m).collect();
        let (each, more) = (count / members.len().max(1), count % members.len().max(1));
        let mut next = 0..i32::try_from(*count).unwrap_or(i32::MAX);
        for (n, member) in members.into_iter().enumerate() {
            let run: Vec<i32> = next.by_ref().take(each + usize::from(n < more)).collect();
            if let (false, Some(share)) = (run.is_empty(), shares.get_mut(member)) {
                share.insert(topic, run);
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_goes_to_one_member_that_wants_it() {
        let both = vec![Str::from("a"), Str::from("b")];
        let wants = BTreeMap::from([("m1", both.clone()), ("m2", both), ("m3", vec![Str::from("b")])]);
        let shares = range(&wants, &BTreeMap::from([("a", 3), ("b", 2)]));
        assert_eq!(shares["m1"], BTreeMap::from([("a", vec![0, 1]), ("b", vec![0])]));
        assert_eq!(shares["m2"], BTreeMap::from([("a", vec![2]), ("b", vec![1])]));
        assert!(shares["m3"].is_empty());
    }
}
