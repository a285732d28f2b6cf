//! Produce that comes to a broker which led the partition until just now, or which is about to lead it: it is passed on to the new leader,
//! whose answer is given together with where that is, so that a leader that moves costs a client no error and no pause. Asked for longer,
//! the broker says that it does not lead.
//!
//! What must hold: what may have been appended here already is passed on only if the new leader can tell a repetition (idempotent
//! producers); of one connection, requests are passed on one after another, none behind one that failed (`setbacks.rs`), and none is
//! appended here meanwhile (`net/in_flight.rs`); what is passed on is never passed on again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_broker_client::{ClientConfig, Connection, RequestError};
use forebay_broker_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use forebay_broker_wire::primitives::Records;
use forebay_broker_wire::types::{BrokerId, ErrorCode, Str};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::error_code::Failure;
use super::request::RequestContext;
use crate::broker::Broker;
use crate::partitions::Hosted;

/// So long after it led. Clients of older versions are not told by an answer that succeeds who leads now.
const PASSES_ON_FOR: Duration = Duration::from_millis(150);
/// How long the new leader may take, its own hearing of it included.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The new leader has not heard of it yet.
const TRY_AGAIN: Duration = Duration::from_millis(3);
const CLIENT_ID: &str = "forebay-pass-on";
/// Requests at once to one broker.
const IN_FLIGHT_MAX: usize = 256;
/// Where a record batch has its producer's id.
const PRODUCER_ID: std::ops::Range<usize> = 43..51;

/// Connections to those that lead now, and whether records are kept until they are safe.
#[derive(Debug, Default)]
pub(crate) struct PassOn {
    connections: Mutex<HashMap<BrokerId, Arc<Connection>>>,
    keeps: AtomicBool,
}

/// One that is passed on.
pub(super) type Passing = JoinHandle<Result<PartitionProduceResponse, Failure>>;

impl PassOn {
    /// This broker's leaders are about to move: from now on what is appended and not yet safe is kept at hand, too.
    pub(crate) fn keep_records(&self) {
        self.keeps.store(true, Ordering::Release);
    }

    pub(super) fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Acquire)
    }

    async fn connection(&self, broker: &Broker, to: BrokerId) -> Result<Arc<Connection>, RequestError> {
        if let Some(open) = self.connections.lock().get(&to).filter(|open| !open.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let config = ClientConfig {
            client_id: CLIENT_ID.to_owned(),
            connect_timeout: ANSWER_MAX,
            request_timeout: ANSWER_MAX,
            max_in_flight: IN_FLIGHT_MAX,
            ..ClientConfig::default()
        };
        let opened = Arc::new(Connection::open(&broker.address_of(to)?, &config).await?);
        self.connections.lock().insert(to, Arc::clone(&opened));
        Ok(opened)
    }
}

/// Whether what was refused because this broker does not lead is passed on: records, and whether they were appended here.
pub(super) fn is_due(
    broker: &Broker,
    context: &RequestContext,
    hosted: &Hosted,
    (records, appended): (&Bytes, bool),
) -> bool {
    let from_a_broker = context.client_id.as_deref() == Some(CLIENT_ID);
    let moves = || hosted.led_within(PASSES_ON_FOR) || is_about_to_move(broker, hosted);
    !from_a_broker && (!appended || is_idempotent(records)) && moves()
}

/// This broker is to lead it already, or its leader is perhaps gone: a client may have heard of the new one before this broker has.
fn is_about_to_move(broker: &Broker, hosted: &Hosted) -> bool {
    leader_of(broker, hosted).is_some_and(|leader| leader == broker.id() || broker.absent.until(leader).is_some())
}

fn is_idempotent(records: &Bytes) -> bool {
    let id = records.get(PRODUCER_ID).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
    id.is_some_and(|id| id >= 0)
}

/// Begins at once.
pub(super) fn begin(
    broker: &Arc<Broker>,
    hosted: &Arc<Hosted>,
    records: Bytes,
    acks: i16,
    deadline: Instant,
) -> Passing {
    let (broker, hosted) = (Arc::clone(broker), Arc::clone(hosted));
    let deadline = deadline.min(Instant::now() + ANSWER_MAX);
    tokio::spawn(async move { pass_on(&broker, &hosted, &records, acks, deadline).await })
}

async fn pass_on(
    broker: &Broker,
    hosted: &Hosted,
    records: &Bytes,
    acks: i16,
    deadline: Instant,
) -> Result<PartitionProduceResponse, Failure> {
    loop {
        let leader = leader_of(broker, hosted).filter(|leader| *leader != broker.id() || hosted.leads());
        if let Some(leader) = leader.filter(|leader| broker.absent.until(*leader).is_none()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let request = request(hosted, records.clone(), acks, left);
            let connection = broker.pass_on.connection(broker, leader).await.map_err(|error| not_led(&error))?;
            let answer = connection.send(&request).await.map_err(|error| unknown(&error))?;
            let partition = answer.responses.into_iter().flat_map(|topic| topic.partition_responses).next();
            let partition = partition.ok_or_else(|| unknown(&"an answer without the partition"))?;
            if !is_too_early(ErrorCode::from_code(partition.error_code)) {
                return Ok(partition);
            }
        }
        if Instant::now() + TRY_AGAIN >= deadline {
            return Err(not_led(&"its new leader is not at work yet"));
        }
        sleep(TRY_AGAIN).await;
    }
}

fn leader_of(broker: &Broker, hosted: &Hosted) -> Option<BrokerId> {
    let image = broker.metadata.image();
    image.topic_by_id(hosted.topic_id)?.partition(hosted.index)?.leader
}

/// Whether the new leader only has not heard of it yet.
fn is_too_early(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotLeaderOrFollower | ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId)
}

fn request(hosted: &Hosted, records: Bytes, acks: i16, left: Duration) -> ProduceRequest {
    let data = PartitionProduceData { index: hosted.index.0, records: Some(Records::Bytes(records)) };
    let topic =
        TopicProduceData { name: Str::from(&*hosted.topic), topic_id: hosted.topic_id, partition_data: vec![data] };
    let timeout_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
    ProduceRequest { transactional_id: None, acks, timeout_ms, topic_data: vec![topic] }
}

/// Nothing was written.
fn not_led(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::NotLeaderOrFollower, format!("this broker has stopped leading the partition: {why}"))
}

/// It may have been written, or not.
fn unknown(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::RequestTimedOut, format!("the partition's new leader has not answered: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_says_whether_its_producer_is_idempotent() {
        let batch = |id: i64| {
            let mut bytes = vec![0; 61];
            bytes[PRODUCER_ID].copy_from_slice(&id.to_be_bytes());
            Bytes::from(bytes)
        };
        assert!(is_idempotent(&batch(0)) && is_idempotent(&batch(7)));
        assert!(!is_idempotent(&batch(-1)), "no producer id");
        assert!(!is_idempotent(&Bytes::from_static(b"short")));
    }
}
