//! Fetch: reads each partition as far as the request's limits and the reader (`reader.rs`) allow, waits for more if that is worth it
//! (`limits.rs`), and answers with ranges of segment files that are sent without being read here (`response.rs`).
//!
//! What must hold: a waiting fetch costs nothing but its memory until bytes come (`wait.rs`); of a fetch session (`sessions.rs`) all partitions
//! are fetched, whatever the request names, and those that changed are told; ranges that are not in the page cache are read by other
//! threads before this one sends them; a follower's fetch counts when it comes and once, however long it waits.

mod limits;
mod reader;
mod response;
pub(crate) mod sessions;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_machines::fetch_sessions::Ticket;
use forebay_broker_partition::FetchWaiter;
use forebay_broker_wire::messages::fetch::{FetchPartition, FetchRequest};
use forebay_broker_wire::primitives::Decoder;
use forebay_broker_wire::types::{ErrorCode, PartitionIndex, Str, Uuid};
use tokio::time::Instant;

use self::limits::{Hold, Verdict, decide};
use self::reader::{Bounds, Look, ReadPartition, Reader};
use self::sessions::Begun;
use self::wait::Growth;
use super::decode;
use super::error_code::Failure;
use super::lookup::find_topic;
use super::request::{RequestContext, RequestError};
use crate::broker::Broker;
use crate::net::send::Answer;
use crate::partitions::Hosted;

/// A request that can never be satisfied is held only while bytes come at least this often.
const GROWTH_PAUSE: Duration = Duration::from_millis(5);

/// One partition of the request, looked up once.
pub(super) struct Wanted {
    pub(super) topic: usize,
    pub(super) request: FetchPartition,
    pub(super) hosted: Result<Arc<Hosted>, Failure>,
}

/// How the response is grouped, in the order of the request.
pub(super) struct WantedTopic {
    pub(super) name: Str,
    pub(super) id: Uuid,
}

struct Fetch {
    topics: Vec<WantedTopic>,
    wanted: Vec<Wanted>,
    min_bytes: u64,
    max_bytes: u64,
    reader: Reader,
    ticket: Ticket,
}

pub(super) async fn answer(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut body: Decoder,
) -> Result<Answer, RequestError> {
    let mut request: FetchRequest = decode(context, &mut body)?;
    let reader = Reader::of(broker, context, &request);
    if reader.is_replica() && *context.listener != *broker.config.inter_broker_listener_name {
        // Replicas move the high watermark: where clients of all kinds come in, none is believed to be one.
        return response::refused(broker, context, ErrorCode::ClusterAuthorizationFailed);
    }
    let begun = match broker.fetch_sessions.begin(&mut request, context.api_version, reader.is_replica()) {
        Ok(begun) => begun,
        Err(error) => return response::refused(broker, context, error),
    };
    let deadline = Instant::now() + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let fetch = look_up(broker, reader, begun, &request);
    let mut read = fetch.read(broker, Look::First);
    if fetch.reader.is_replica() {
        // Whoever follows may have come so far that the ISR is to have it.
        let hosted = fetch.wanted.iter().filter_map(|wanted| wanted.hosted.as_ref().ok());
        hosted.for_each(|hosted| broker.replication.proposals.take_from(hosted));
    }
    if let Verdict::Wait { .. } = fetch.verdict(&read) {
        read = fetch.wait(broker, context, deadline).await;
    }
    response::warm(broker, &fetch.wanted, &read).await;
    let told = broker.fetch_sessions.finish(fetch.ticket, &fetch.topics, &fetch.wanted, &read);
    match told {
        Ok(told) => response::answer(broker, context, &fetch, read, &told),
        Err(error) => response::refused(broker, context, error),
    }
}

fn look_up(broker: &Broker, reader: Reader, begun: Begun, request: &FetchRequest) -> Fetch {
    let (topics, numbered, ticket) = begun.by_topic();
    let found: Vec<_> = topics.iter().map(|topic| find_topic(broker, &topic.name, topic.id)).collect();
    let look_up = |(topic, request): (usize, FetchPartition)| {
        let index = PartitionIndex(request.partition);
        let hosted = found[topic].as_ref().map_err(Failure::clone).and_then(|found| found.partition(broker, index));
        Wanted { topic, request, hosted }
    };
    let wanted = numbered.into_iter().map(look_up).collect();
    let at_least_zero = |bytes: i32| u64::try_from(bytes).unwrap_or(0);
    Fetch {
        topics,
        wanted,
        min_bytes: at_least_zero(request.min_bytes),
        max_bytes: at_least_zero(request.max_bytes).min(u64::from(broker.config.network.fetch_max_bytes)),
        reader,
        ticket,
    }
}

impl Fetch {
    /// Reads in the order of the request until the whole limit is used up. The first batch is given whole even when it is
    /// larger than every limit, or a consumer could never get past it.
    fn read(&self, broker: &Broker, look: Look) -> Vec<ReadPartition> {
        let mut total = 0;
        let mut read = Vec::with_capacity(self.wanted.len());
        for wanted in &self.wanted {
            let limit_bytes = u64::try_from(wanted.request.partition_max_bytes).unwrap_or(0);
            let left_bytes = self.max_bytes.saturating_sub(total);
            let max_bytes = u32::try_from(limit_bytes.min(left_bytes)).unwrap_or(u32::MAX);
            let bounds = Bounds { limit_bytes, max_bytes, min_one_batch: total == 0 };
            let one = match &wanted.hosted {
                Ok(hosted) => self.reader.read(broker, hosted, &wanted.request, bounds, look),
                Err(failure) => ReadPartition::failed(bounds, failure.code),
            };
            total += one.found.bytes;
            read.push(one);
        }
        read
    }

    fn verdict(&self, read: &[ReadPartition]) -> Verdict {
        let found: Vec<_> = read.iter().map(|read| read.found).collect();
        decide(self.min_bytes, self.max_bytes, &found)
    }

    /// Watches every partition, then reads again whenever enough has come, until there is an answer.
    async fn wait(&self, broker: &Broker, context: &RequestContext, deadline: Instant) -> Vec<ReadPartition> {
        let growth = Arc::new(Growth::default());
        let hosted = self.wanted.iter().filter_map(|wanted| wanted.hosted.as_ref().ok());
        let _watching: Vec<_> = hosted
            .map(|hosted| {
                let waiter = Arc::clone(&growth) as Arc<dyn FetchWaiter>;
                if self.reader.is_replica() {
                    hosted.partition.watch_log_end(waiter)
                } else {
                    hosted.partition.watch(waiter)
                }
            })
            .collect();
        loop {
            growth.start_over();
            let read = self.read(broker, Look::Again);
            let Verdict::Wait { wake_bytes, hold } = self.verdict(&read) else { return read };
            let now = Instant::now();
            let until = match hold {
                Hold::MaxWait => deadline,
                Hold::WhileGrowing => deadline.min(now + GROWTH_PAUSE),
            };
            // Before the deadline a pause without growth ends the wait of a request that can't be satisfied.
            let grown = tokio::select! {
                grown = growth.reach(wake_bytes, until) => grown,
                () = context.hurry.notified(), if self.reader.is_replica() => false,
                () = broker.shutdown.cancelled() => false,
            };
            // A partition that was closed, or is led elsewhere now, may still be readable here and will wake nobody any more.
            if !grown || growth.is_over() {
                return if growth.any() || growth.is_over() { self.read(broker, Look::Again) } else { read };
            }
        }
    }
}
