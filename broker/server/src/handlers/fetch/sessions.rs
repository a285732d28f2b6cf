//! Fetch sessions of this broker: from requests to what the session machine takes, and back to what an answer leaves out.
//!
//! What must hold: a fetch outside sessions takes no lock; what a session keeps is not the frame it came in; sessions are spread over
//! shards by their ids, so that connections do not wait for each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use forebay_broker_machines::fetch_sessions::{Answer, Asked, FetchSessions, NO_SESSION, SessionError, Ticket, Told};
use forebay_broker_wire::messages::fetch::{FetchPartition, FetchRequest};
use forebay_broker_wire::types::{ErrorCode, Str, Uuid};
use parking_lot::Mutex;

use super::reader::{Outcome, ReadPartition};
use super::{Wanted, WantedTopic};
use crate::metadata::random_id;

/// Topics have only their id from this version on.
pub(super) const TOPIC_IDS_FROM_VERSION: i16 = 13;
/// Fewer slots than this are not worth dividing.
const SLOTS_SHARDED: usize = 64;
const SHARDS: usize = 8;

/// A partition as a client names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Named {
    pub(super) topic: Str,
    pub(super) topic_id: Uuid,
    partition: i32,
}

type Shard = Mutex<FetchSessions<Named, FetchPartition>>;

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    shards: Vec<Shard>,
    next_shard: AtomicUsize,
    began: Instant,
}

/// What is to be fetched, and how to answer.
pub(super) struct Begun {
    pub(super) partitions: Vec<(Named, FetchPartition)>,
    ticket: Ticket,
}

impl Sessions {
    /// At most `slots` of them (`max.incremental.fetch.session.cache.slots`).
    pub(crate) fn new(slots: usize) -> Self {
        let shards = if slots < SLOTS_SHARDED { 1 } else { SHARDS };
        let shards = (0..shards).map(|_| Mutex::new(FetchSessions::new(slots / shards))).collect();
        Self { shards, next_shard: AtomicUsize::new(0), began: Instant::now() }
    }

    /// How many there are, and how many had to make room so far.
    pub(crate) fn count(&self) -> (usize, u64) {
        self.shards.iter().fold((0, 0), |(open, evicted), shard| {
            let shard = shard.lock();
            (open + shard.len(), evicted + shard.evictions())
        })
    }

    /// Takes in what a request says of its session.
    pub(super) fn begin(
        &self,
        request: &mut FetchRequest,
        api_version: i16,
        of_replica: bool,
    ) -> Result<Begun, ErrorCode> {
        let outside = request.session_epoch < 0;
        let named = |topic: Str, topic_id: Uuid, partition: i32| Named { topic, topic_id, partition };
        // What a session keeps must not keep the request's frame in memory.
        let kept = |topic: &Str| if outside { topic.clone() } else { topic.detached() };
        let mut partitions = Vec::new();
        for topic in std::mem::take(&mut request.topics) {
            let name = kept(&topic.topic);
            let of_topic = topic.partitions.into_iter();
            partitions.extend(of_topic.map(|asked| (named(name.clone(), topic.topic_id, asked.partition), asked)));
        }
        let forgotten = std::mem::take(&mut request.forgotten_topics_data).into_iter().flat_map(|topic| {
            let name = topic.topic;
            topic.partitions.into_iter().map(move |partition| named(name.clone(), topic.topic_id, partition))
        });
        let asked = Asked {
            session_id: request.session_id,
            epoch: request.session_epoch,
            by_topic_id: api_version >= TOPIC_IDS_FROM_VERSION,
            of_replica,
            partitions,
            forgotten: forgotten.collect(),
        };
        let begun = match asked.anew() {
            Ok((partitions, ticket)) => Ok((partitions, ticket)),
            Err(asked) => self.shard_of(asked.session_id).lock().begin(asked, self.now_ms()),
        };
        let (partitions, ticket) = begun.map_err(code_of)?;
        Ok(Begun { partitions, ticket })
    }

    /// Decides which of the partitions are told.
    pub(super) fn finish(
        &self,
        ticket: Ticket,
        topics: &[WantedTopic],
        wanted: &[Wanted],
        read: &[ReadPartition],
    ) -> Result<Answer, ErrorCode> {
        if ticket.is_outside() {
            return Ok(Answer { session_id: NO_SESSION, told: vec![true; read.len()] });
        }
        let fetched = wanted.iter().zip(read).filter_map(|(wanted, read)| {
            let topic = topics.get(wanted.topic)?;
            let partition = wanted.request.partition;
            let named = Named { topic: topic.name.clone(), topic_id: topic.id, partition };
            Some((named, wanted.request.clone(), told(&read.outcome)))
        });
        let number = match ticket.session_id() {
            Some(id) => self.number_of(id),
            None => self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len(),
        };
        let mut new_id = || self.new_id(number);
        let fetched = fetched.collect();
        self.shards[number].lock().finish(ticket, fetched, &mut new_id, self.now_ms()).map_err(code_of)
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn number_of(&self, id: i32) -> usize {
        usize::try_from(id).unwrap_or_default() % self.shards.len()
    }

    fn shard_of(&self, id: i32) -> &Shard {
        &self.shards[self.number_of(id)]
    }

    /// A random id of a shard.
    fn new_id(&self, shard: usize) -> i32 {
        let [a, b, c, d, ..] = random_id().0;
        let random = i32::from_be_bytes([a & 0x7f, b, c, d]);
        let number = i32::try_from(self.shards.len()).unwrap_or(1);
        random / number * number + i32::try_from(shard).unwrap_or_default()
    }
}

impl Begun {
    /// The partitions in their order, under their topics, each of which is there once.
    pub(super) fn by_topic(self) -> (Vec<WantedTopic>, Vec<(usize, FetchPartition)>, Ticket) {
        let Self { partitions, ticket } = self;
        let (mut topics, mut numbers) = (Vec::<WantedTopic>::new(), HashMap::<(Str, Uuid), usize>::new());
        let mut numbered = Vec::with_capacity(partitions.len());
        for (Named { topic, topic_id, .. }, asked) in partitions {
            // Partitions of one topic mostly come together.
            let same = topics.last().is_some_and(|last| last.id == topic_id && last.name == topic);
            let number = if same {
                topics.len() - 1
            } else {
                *numbers.entry((topic.clone(), topic_id)).or_insert_with(|| {
                    topics.push(WantedTopic { name: topic, id: topic_id });
                    topics.len() - 1
                })
            };
            numbered.push((number, asked));
        }
        (topics, numbered, ticket)
    }
}

fn told(outcome: &Outcome) -> Told {
    let failed = Told { high_watermark: -1, log_start: -1, news: false, failed: true };
    match outcome {
        Outcome::Read(result) | Outcome::Nearer(_, result) => Told {
            high_watermark: result.high_watermark.0,
            log_start: result.log_start_offset.0,
            news: result.slice.is_some() || matches!(outcome, Outcome::Nearer(..)),
            failed: false,
        },
        Outcome::Diverging(_) | Outcome::OutOfRange { .. } | Outcome::Failed(_) => failed,
    }
}

fn code_of(error: SessionError) -> ErrorCode {
    tracing::debug!(%error, "fetch session");
    match error {
        SessionError::NotFound { .. } => ErrorCode::FetchSessionIdNotFound,
        SessionError::Epoch { .. } => ErrorCode::InvalidFetchSessionEpoch,
        SessionError::TopicNaming { .. } => ErrorCode::FetchSessionTopicIdError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_above_0_and_find_their_shard_again() {
        for slots in [1, 1000] {
            let sessions = Sessions::new(slots);
            for shard in 0..sessions.shards.len() {
                for _ in 0..100 {
                    let id = sessions.new_id(shard);
                    assert!(id >= 0 && sessions.number_of(id) == shard, "{id} of {shard}");
                }
            }
        }
    }

    #[test]
    fn a_topic_is_there_once_and_the_partitions_keep_their_order() {
        let of = |topic: &str, partition| {
            let named = Named { topic: topic.into(), topic_id: Uuid::ZERO, partition };
            (named, FetchPartition { partition, ..FetchPartition::default() })
        };
        let asked = Asked {
            session_id: 0,
            epoch: -1,
            by_topic_id: false,
            of_replica: false,
            partitions: vec![of("a", 0), of("b", 0), of("a", 2), of("a", 1)],
            forgotten: Vec::new(),
        };
        let (partitions, ticket) = asked.anew().unwrap();
        let (topics, numbered, _) = Begun { partitions, ticket }.by_topic();
        assert_eq!(topics.iter().map(|topic| topic.name.to_string()).collect::<Vec<_>>(), ["a", "b"]);
        let order: Vec<_> = numbered.iter().map(|(number, asked)| (*number, asked.partition)).collect();
        assert_eq!(order, [(0, 0), (1, 0), (0, 2), (0, 1)]);
    }
}
