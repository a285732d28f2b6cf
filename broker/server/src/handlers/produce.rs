//! Produce: hands each partition's batches to its disk thread, then answers for all of them together.
//!
//! What must hold: the batches of one connection reach a partition in the order they came (`hand_over` takes them in that
//! order, and before any later ones); a partition that fails does not stop the others, and says why in words; with acks=0 an error
//! ends the connection, which is the only way to tell such a client; with acks=all nothing is answered as written before
//! all in-sync replicas have it (`commit.rs`), duplicates included, and nobody waits longer than the request says.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use forebay_broker_partition::{AppendRequest, Appended, Origin};
use forebay_broker_wire::messages::produce::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceResponse,
};
use forebay_broker_wire::types::{ApiKey, ErrorCode, LeaderEpoch, PartitionIndex, Str, Uuid};
use tokio::time::Instant;

use super::error_code::{Failure, code_of_commit, code_of_write};
use super::leader_hint::{self, LeaderHint};
use super::lookup::{Topic, find_topic};
use super::pass_on::{self, Passing};
use super::request::{RequestContext, RequestError};
use super::setbacks::Setbacks;
use super::{Finished, encode};
use crate::broker::Broker;
use crate::io::append::{PendingAppend, WriteResult};
use crate::io::commit::{self, Commit, NotCommitted};
use crate::net::lines::Line;
use crate::partitions::Hosted;

/// zstd came with this version; an older client could not read it back.
const ZSTD_FROM_VERSION: i16 = 7;
/// From this version on an answer says who leads instead.
const HINTS_FROM_VERSION: i16 = 10;
/// Where a record batch has its attributes, and what of them says how it is compressed.
const ATTRIBUTES_LOW_BYTE: usize = 22;
const COMPRESSION_MASK: u8 = 0x07;
const COMPRESSION_ZSTD: u8 = 4;
const TRANSACTIONAL: u8 = 0x10;
/// The acks value of "all in-sync replicas".
const ALL_IN_SYNC: i16 = -1;

/// A Produce on its way.
pub(crate) struct PendingProduce {
    broker: Arc<Broker>,
    context: RequestContext,
    acks: i16,
    /// When who waits for other replicas is told that it took too long.
    deadline: Instant,
    topics: Vec<PendingTopic>,
}

struct PendingTopic {
    name: Str,
    id: Uuid,
    partitions: Vec<PendingPartition>,
}

struct PendingPartition {
    index: i32,
    hosted: Option<Arc<Hosted>>,
    /// The records, while they may have to be passed on.
    kept: Option<Bytes>,
    state: State,
}

enum State {
    /// Not handed over yet.
    Ready(AppendRequest),
    Waiting(PendingAppend, LeaderEpoch),
    Committing(Appended, Commit),
    Done(Appended),
    PassingOn(Passing),
    /// The new leader's answer.
    PassedOn(Box<PartitionProduceResponse>),
    Failed(Failure),
    /// Written here, and not known to be safe.
    Unsure(Failure),
}

/// Looks at a request; its batches go nowhere before [`hand_over`]. What waits for its answer then holds nothing of the frame that it came in.
pub(crate) fn begin(broker: &Arc<Broker>, mut context: RequestContext, request: ProduceRequest) -> PendingProduce {
    context.client_id = context.client_id.map(|id| id.detached());
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for data in request.topic_data {
        let topic = check_request(request.acks).and_then(|()| find_topic(broker, &data.name, data.topic_id));
        let mut partitions = Vec::with_capacity(data.partition_data.len());
        for partition in data.partition_data {
            partitions.push(begin_partition(broker, &context, &topic, request.acks, partition));
        }
        topics.push(PendingTopic { name: data.name.detached(), id: data.topic_id, partitions });
    }
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = Instant::from_std(context.received_at) + timeout;
    PendingProduce { broker: Arc::clone(broker), context, acks: request.acks, deadline, topics }
}

fn check_request(acks: i16) -> Result<(), Failure> {
    match acks {
        -1..=1 => Ok(()),
        other => Err(Failure::new(ErrorCode::InvalidRequiredAcks, format!("acks is {other}, but must be -1, 0 or 1"))),
    }
}

fn begin_partition(
    broker: &Arc<Broker>,
    context: &RequestContext,
    topic: &Result<Topic, Failure>,
    acks: i16,
    data: PartitionProduceData,
) -> PendingPartition {
    let index = data.index;
    let records = data.records.and_then(|records| records.as_bytes().cloned()).unwrap_or_default();
    let hosted = topic.as_ref().map_err(Failure::clone).and_then(|topic| {
        topic.refuse_internal(context)?;
        check_records(&records, context.api_version)?;
        let hosted = topic.partition(broker, PartitionIndex(index))?;
        if acks == ALL_IN_SYNC {
            check_in_sync(&hosted)?;
        }
        Ok(hosted)
    });
    match hosted {
        Ok(hosted) => {
            let request = AppendRequest { records, origin: Origin::Client };
            PendingPartition { index, hosted: Some(hosted), kept: None, state: State::Ready(request) }
        }
        Err(failure) => PendingPartition { index, hosted: None, kept: None, state: State::Failed(failure) },
    }
}

/// Hands over what these requests, in their order, want to append: here and now what need not wait, the rest to the disk threads.
pub(crate) async fn hand_over(broker: &Broker, line: &Line, requests: impl Iterator<Item = &mut PendingProduce>) {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for request in requests {
        let all = request.acks == ALL_IN_SYNC;
        for partition in request.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            let PendingPartition { hosted: Some(hosted), kept, state, .. } = partition else { continue };
            let State::Ready(append) = state else { continue };
            let place = Place { all, kept };
            let append = append.clone();
            match groups.iter_mut().find(|group| Arc::ptr_eq(group.hosted, hosted)) {
                Some(group) => group.push(append, state, place),
                None => groups.push(Group::new(hosted, append, state, place)),
            }
        }
    }
    for group in groups {
        group.hand_over(broker, line).await;
    }
}

/// What goes to one partition, in order, and whose it is.
struct Group<'a> {
    hosted: &'a Arc<Hosted>,
    appends: Vec<AppendRequest>,
    states: Vec<(&'a mut State, Place<'a>)>,
}

struct Place<'a> {
    all: bool,
    kept: &'a mut Option<Bytes>,
}

impl<'a> Group<'a> {
    fn new(hosted: &'a Arc<Hosted>, append: AppendRequest, state: &'a mut State, place: Place<'a>) -> Self {
        Self { hosted, appends: vec![append], states: vec![(state, place)] }
    }

    fn push(&mut self, append: AppendRequest, state: &'a mut State, place: Place<'a>) {
        self.appends.push(append);
        self.states.push((state, place));
    }

    async fn hand_over(self, broker: &Broker, line: &Line) {
        let Self { hosted, appends, states } = self;
        // Before the append: what is written in a later one is not what is waited for.
        let epoch = hosted.partition.leader_epoch();
        let mut written = broker.appender.append_hot(hosted, &appends, line).into_iter();
        for (append, (state, Place { all, kept })) in appends.into_iter().zip(states) {
            let records = append.records.clone();
            *state = match written.next() {
                Some(result) => written_state(Some(hosted), result, epoch, all),
                None => State::Waiting(broker.appender.begin(hosted, append).await, epoch),
            };
            *kept = state.may_be_passed_on(broker).then_some(records);
        }
    }
}

/// acks=all promises as many replicas as the topic wants at least.
fn check_in_sync(hosted: &Hosted) -> Result<(), Failure> {
    if !hosted.partition.is_below_min_isr() {
        return Ok(());
    }
    let in_sync = hosted.partition.in_sync_replicas().map_or(0, |replicas| replicas.len());
    let (topic, wanted) = (&hosted.topic, hosted.min_insync_replicas());
    let message = format!("{in_sync} replicas are in sync, but min.insync.replicas of topic '{topic}' is {wanted}");
    Err(Failure::new(ErrorCode::NotEnoughReplicas, message))
}

/// What only the request's version or the lack of transactions makes wrong; the batches themselves are checked by the log.
fn check_records(records: &Bytes, api_version: i16) -> Result<(), Failure> {
    let Some(attributes) = records.get(ATTRIBUTES_LOW_BYTE) else {
        return Err(Failure::new(ErrorCode::InvalidRecord, "there is no record batch in the request"));
    };
    if attributes & COMPRESSION_MASK == COMPRESSION_ZSTD && api_version < ZSTD_FROM_VERSION {
        let message = format!("zstd needs Produce {ZSTD_FROM_VERSION} or later, this is {api_version}");
        return Err(Failure::new(ErrorCode::UnsupportedCompressionType, message));
    }
    if attributes & TRANSACTIONAL != 0 {
        return Err(Failure::new(ErrorCode::InvalidTxnState, "this broker does not offer transactions"));
    }
    Ok(())
}

impl PendingProduce {
    /// Waits until every partition has answered. Safe to cancel.
    pub(crate) async fn ready(&mut self, setbacks: &Setbacks) {
        let Self { broker, context, acks, deadline, topics } = self;
        for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.ready(*acks == ALL_IN_SYNC, *deadline).await;
            if *acks != 0 && !partition.is_set_back(setbacks) {
                partition.pass_on(broker, context, *acks, *deadline);
            }
        }
        for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.passed_on().await;
        }
    }

    /// Whether some of it was left to a disk thread, which has its records until they are written.
    pub(crate) fn waits_for_disk(&self) -> bool {
        let mut partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.any(|partition| matches!(partition.state, State::Waiting(..)))
    }

    /// Whether some of it may be answered by another broker: what comes behind it must not be decided before.
    pub(crate) fn may_be_passed_on(&self) -> bool {
        let mut partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.any(PendingPartition::may_go_elsewhere)
    }

    /// Notes which partitions it failed for.
    pub(crate) fn note_setbacks(&self, setbacks: &mut Setbacks) {
        let partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        for partition in partitions.filter(|partition| partition.state.has_failed()) {
            if let Some(hosted) = &partition.hosted {
                setbacks.note(hosted.number, Instant::now());
            }
        }
    }

    /// Whether `ready` would return at once.
    pub(crate) async fn is_ready(&mut self, setbacks: &Setbacks) -> bool {
        let mut ready = std::pin::pin!(self.ready(setbacks));
        poll_fn(|context| Poll::Ready(ready.as_mut().poll(context).is_ready())).await
    }

    pub(crate) fn finish(self) -> Result<Finished, RequestError> {
        let Self { broker, context, acks, topics, .. } = self;
        let mut hints = Hints::new(&broker, &context);
        let responses: Vec<_> =
            topics.into_iter().map(|topic| finish_topic(topic, context.api_version, &mut hints)).collect();
        let received_at = context.received_at;
        if acks == 0 {
            let mut partitions = responses.iter().flat_map(|topic| &topic.partition_responses);
            if let Some(failed) = partitions.find(|partition| partition.error_code != 0) {
                let message = failed.error_message.as_deref().unwrap_or_default().to_owned();
                return Err(RequestError::ProduceWithoutAcks { message });
            }
            return Ok(Finished { api_key: ApiKey::Produce, received_at, answer: None });
        }
        let response = ProduceResponse { responses, node_endpoints: hints.endpoints(), ..ProduceResponse::default() };
        let answer = encode(&broker, &context, &response, Vec::new())?;
        Ok(Finished { api_key: ApiKey::Produce, received_at, answer: Some(answer) })
    }
}

impl PendingPartition {
    /// Safe to cancel: what has been learned is kept.
    async fn ready(&mut self, all: bool, deadline: Instant) {
        if let State::Waiting(pending, epoch) = &mut self.state {
            let written = pending.result(Some(deadline)).await;
            self.state = written_state(self.hosted.as_ref(), written, *epoch, all);
        }
        if let State::Committing(appended, commit) = &mut self.state {
            self.state = match commit.ready(deadline).await {
                Ok(()) => State::Done(*appended),
                Err(error) => State::Unsure(not_committed(error)),
            };
        }
    }

    fn may_go_elsewhere(&self) -> bool {
        matches!(self.state, State::PassingOn(_)) || self.kept.is_some() && self.state.is_not_leader()
    }

    /// Whether an earlier batch of the connection has failed: the new leader might take this one for the next.
    fn is_set_back(&self, setbacks: &Setbacks) -> bool {
        self.kept.is_some() && self.hosted.as_ref().is_some_and(|hosted| setbacks.has(hosted.number, Instant::now()))
    }

    /// To the new leader, if this broker led until just now.
    fn pass_on(&mut self, broker: &Arc<Broker>, context: &RequestContext, acks: i16, deadline: Instant) {
        let Some(records) = self.kept.take() else { return };
        if let (true, Some(hosted)) = (self.state.is_not_leader(), &self.hosted)
            && pass_on::is_due(broker, context, hosted, (&records, matches!(self.state, State::Unsure(_))))
        {
            self.state = State::PassingOn(pass_on::begin(broker, hosted, records, acks, deadline));
        }
    }

    /// Safe to cancel.
    async fn passed_on(&mut self) {
        let State::PassingOn(passing) = &mut self.state else { return };
        self.state = match passing.await {
            Ok(Ok(answer)) => State::PassedOn(Box::new(answer)),
            Ok(Err(failure)) => State::Failed(failure),
            Err(error) => State::Failed(Failure::new(ErrorCode::UnknownServerError, error.to_string())),
        };
    }
}

impl State {
    fn is_not_leader(&self) -> bool {
        matches!(self, Self::Failed(failure) | Self::Unsure(failure) if failure.code == ErrorCode::NotLeaderOrFollower)
    }

    /// The client is told an error.
    fn has_failed(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Unsure(_) => true,
            Self::PassedOn(answer) => answer.error_code != 0,
            _ => false,
        }
    }

    fn may_be_passed_on(&self, broker: &Broker) -> bool {
        match self {
            Self::Waiting(..) => true,
            Self::Committing(..) => broker.pass_on.keeps(),
            _ => self.is_not_leader(),
        }
    }
}

fn written_state(hosted: Option<&Arc<Hosted>>, written: WriteResult, epoch: LeaderEpoch, all: bool) -> State {
    let appended = match written {
        Ok(appended) => appended,
        Err(error) => return State::Failed(Failure::new(code_of_write(&error), error.to_string())),
    };
    let Some(hosted) = hosted.filter(|_| all) else { return State::Done(appended) };
    match commit::begin(&hosted.partition, appended.last_offset, epoch) {
        Ok(None) => State::Done(appended),
        Ok(Some(commit)) => State::Committing(appended, commit),
        Err(error) => State::Unsure(not_committed(error)),
    }
}

fn not_committed(error: NotCommitted) -> Failure {
    Failure::new(code_of_commit(error), error.to_string())
}

fn finish_topic(topic: PendingTopic, api_version: i16, hints: &mut Hints<'_>) -> TopicProduceResponse {
    let PendingTopic { name, id, partitions } = topic;
    let partition_responses = partitions
        .into_iter()
        .map(|partition| {
            let moved = matches!(partition.state, State::PassedOn(_)) || partition.state.is_not_leader();
            let mut response = finish_partition(partition);
            if moved {
                response.current_leader = hints.leader(&name, id, response.index);
            }
            response
        })
        .collect();
    // From version 13 on a topic is named by its id only.
    let (name, topic_id) = if api_version >= 13 { (Str::default(), id) } else { (name, Uuid::ZERO) };
    TopicProduceResponse { name, topic_id, partition_responses }
}

fn finish_partition(partition: PendingPartition) -> PartitionProduceResponse {
    let PendingPartition { index, hosted, state, .. } = partition;
    let failure = match state {
        State::Done(appended) => {
            if let Some(hosted) = hosted {
                hosted.count_in(&appended);
            }
            return PartitionProduceResponse {
                index,
                base_offset: appended.base_offset.0,
                log_append_time_ms: appended.log_append_time_ms,
                log_start_offset: appended.log_start_offset.0,
                ..PartitionProduceResponse::default()
            };
        }
        State::PassedOn(answer) => return PartitionProduceResponse { index, ..*answer },
        State::Failed(failure) | State::Unsure(failure) => failure,
        State::Ready(_) | State::Waiting(..) | State::Committing(..) | State::PassingOn(_) => {
            Failure::new(ErrorCode::UnknownServerError, "answered before the append was")
        }
    };
    PartitionProduceResponse {
        index,
        error_code: failure.code.code(),
        base_offset: -1,
        error_message: Some(failure.message.as_str().into()),
        ..PartitionProduceResponse::default()
    }
}

/// Where the partitions that this broker does not lead are led (KIP-951).
struct Hints<'a> {
    broker: &'a Broker,
    context: &'a RequestContext,
    found: Vec<LeaderHint>,
}

impl<'a> Hints<'a> {
    fn new(broker: &'a Broker, context: &'a RequestContext) -> Self {
        Self { broker, context, found: Vec::new() }
    }

    fn leader(&mut self, name: &Str, id: Uuid, index: i32) -> LeaderIdAndEpoch {
        if self.context.api_version < HINTS_FROM_VERSION {
            return LeaderIdAndEpoch::default();
        }
        let Some(hint) = leader_hint::find(self.broker, name, id, PartitionIndex(index)) else {
            return LeaderIdAndEpoch::default();
        };
        let leader = LeaderIdAndEpoch { leader_id: hint.leader.0, leader_epoch: hint.epoch.0 };
        self.found.push(hint);
        leader
    }

    fn endpoints(self) -> Vec<NodeEndpoint> {
        let nodes = leader_hint::nodes(self.broker, &self.context.listener, &self.found).into_iter();
        nodes
            .map(|node| NodeEndpoint { node_id: node.id.0, host: node.host, port: node.port, rack: node.rack })
            .collect()
    }
}
