//! Fetch sessions (KIP-227): a client names its partitions once, then only what changes; it is told only what changed.
//!
//! What must hold: a client that takes in every answer knows of each of its partitions what it would know from full answers; an answer that was
//! lost is noticed, because the epoch then does not fit; there are never more sessions than slots, and a session in use goes only for a larger
//! one or one of a replica, and not in its first two minutes. Ids and the time come from outside.

mod session;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;

use self::session::Session;
pub use self::session::Told;

/// No session.
pub const NO_SESSION: i32 = 0;
/// The epoch that begins a session.
const BEGINS: i32 = 0;
/// The epoch of a fetch outside any session, which also ends the one it names.
const ENDS: i32 = -1;
/// Kafka's: a session that is younger is safe from all but replicas, and one unused for longer goes first.
const SAFE_MS: i64 = 120_000;

/// What a request says.
#[derive(Debug, Clone)]
pub struct Asked<K, P> {
    /// The session, 0 for none.
    pub session_id: i32,
    /// Its epoch; 0 begins a session, -1 is outside of any.
    pub epoch: i32,
    /// Topics are named by id.
    pub by_topic_id: bool,
    /// A replica asks: its sessions go before those of consumers.
    pub of_replica: bool,
    /// New partitions, and those whose position has changed.
    pub partitions: Vec<(K, P)>,
    /// Partitions that are wanted no more.
    pub forgotten: Vec<K>,
}

/// Why a session cannot go on; the client begins a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It never was, has ended or had to make room.
    #[error("there is no fetch session {id}")]
    NotFound {
        /// The id asked for.
        id: i32,
    },
    /// A request or an answer was lost, or came twice.
    #[error("fetch session {id} is at epoch {expected}, the request says {found}")]
    Epoch {
        /// The session.
        id: i32,
        /// The epoch it is at.
        expected: i32,
        /// What the request says.
        found: i32,
    },
    /// Named by id before and by name now, or the other way round.
    #[error("fetch session {id} names topics by {} only", if *by_topic_id { "id" } else { "name" })]
    TopicNaming {
        /// The session.
        id: i32,
        /// How it names them.
        by_topic_id: bool,
    },
}

/// How an answer is to be made: goes from [`FetchSessions::begin`] to [`FetchSessions::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sessionless,
    Begins { by_topic_id: bool, of_replica: bool },
    GoesOn { id: i32, epoch: i32 },
}

impl<K, P> Asked<K, P> {
    /// A request that goes on with no session and ends none: there is nothing to look up. Others are given back.
    pub fn anew(self) -> Result<(Vec<(K, P)>, Ticket), Self> {
        match self.epoch {
            BEGINS | ENDS if self.session_id == NO_SESSION => {
                let ticket = self.first_ticket();
                Ok((self.partitions, ticket))
            }
            _ => Err(self),
        }
    }

    fn first_ticket(&self) -> Ticket {
        let Self { by_topic_id, of_replica, .. } = *self;
        Ticket(if self.epoch == ENDS { Kind::Sessionless } else { Kind::Begins { by_topic_id, of_replica } })
    }
}

impl Ticket {
    /// Outside any session: everything is told.
    pub fn is_outside(&self) -> bool {
        self.0 == Kind::Sessionless
    }

    /// The session that goes on.
    pub fn session_id(&self) -> Option<i32> {
        if let Kind::GoesOn { id, .. } = self.0 { Some(id) } else { None }
    }
}

/// What to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// For the client's next request; 0 when it got no session.
    pub session_id: i32,
    /// For each partition that was fetched: whether it is told.
    pub told: Vec<bool>,
}

/// The sessions of a broker, or a share of them.
#[derive(Debug)]
pub struct FetchSessions<K, P> {
    slots: usize,
    sessions: HashMap<i32, Session<K, P>>,
    evictions: u64,
}

impl<K: Clone + Eq + Hash, P: Clone> FetchSessions<K, P> {
    /// At most `slots` sessions.
    pub fn new(slots: usize) -> Self {
        Self { slots, sessions: HashMap::new(), evictions: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Partitions in all of them.
    pub fn partitions(&self) -> usize {
        self.sessions.values().map(Session::len).sum()
    }

    /// Sessions that had to make room for others.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Takes in a request: what is to be fetched, in this order.
    pub fn begin(&mut self, asked: Asked<K, P>, now_ms: i64) -> Result<(Vec<(K, P)>, Ticket), SessionError> {
        if asked.epoch == BEGINS || asked.epoch == ENDS {
            self.sessions.remove(&asked.session_id);
            let ticket = asked.first_ticket();
            return Ok((asked.partitions, ticket));
        }
        let Asked { session_id: id, epoch, by_topic_id, partitions, forgotten, .. } = asked;
        let session = self.sessions.get_mut(&id).ok_or(SessionError::NotFound { id })?;
        if session.epoch != epoch {
            return Err(SessionError::Epoch { id, expected: session.epoch, found: epoch });
        }
        // A request without topics names none either way.
        let names_topics = !partitions.is_empty() || !forgotten.is_empty();
        if names_topics && session.by_topic_id != by_topic_id {
            return Err(SessionError::TopicNaming { id, by_topic_id: session.by_topic_id });
        }
        for (key, position) in partitions {
            session.want(key, position);
        }
        forgotten.iter().for_each(|key| session.forget(key));
        if session.len() == 0 {
            self.sessions.remove(&id);
            return Ok((Vec::new(), Ticket(Kind::Sessionless)));
        }
        session.epoch = session::next_epoch(epoch);
        session.used_ms = now_ms;
        Ok((session.wanted(), Ticket(Kind::GoesOn { id, epoch: session.epoch })))
    }

    /// Decides what is told of what was fetched. `new_id` gives a number above 0 for a new session, as often as it is asked.
    pub fn finish(
        &mut self,
        ticket: Ticket,
        fetched: Vec<(K, P, Told)>,
        new_id: &mut dyn FnMut() -> i32,
        now_ms: i64,
    ) -> Result<Answer, SessionError> {
        match ticket.0 {
            Kind::Sessionless => Ok(all_of(NO_SESSION, &fetched)),
            Kind::Begins { by_topic_id, of_replica } => {
                let told = all_of(NO_SESSION, &fetched);
                let mut session = Session::new(by_topic_id, of_replica, now_ms);
                for (key, position, told) in fetched {
                    session.want(key.clone(), position);
                    session.tell(&key, &told);
                }
                Ok(Answer { session_id: self.keep(session, new_id), ..told })
            }
            Kind::GoesOn { id, epoch } => {
                // One that had to make room meanwhile: the client hears of that with its next request.
                let Some(session) = self.sessions.get_mut(&id) else { return Ok(all_of(id, &fetched)) };
                if session.epoch != epoch {
                    return Err(SessionError::Epoch { id, expected: session.epoch, found: epoch });
                }
                let told = fetched.iter().map(|(key, _, told)| session.tell(key, told)).collect();
                Ok(Answer { session_id: id, told })
            }
        }
    }

    /// Keeps a new session if there is room for it or can be made; gives its id, or none.
    fn keep(&mut self, session: Session<K, P>, new_id: &mut dyn FnMut() -> i32) -> i32 {
        if session.len() == 0 || !self.make_room(&session) {
            return NO_SESSION;
        }
        let id = loop {
            let id = new_id();
            if id > NO_SESSION && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        self.sessions.insert(id, session);
        id
    }

    fn make_room(&mut self, new: &Session<K, P>) -> bool {
        if self.sessions.len() < self.slots {
            return true;
        }
        let now_ms = new.created_ms;
        let unused = self.sessions.iter().min_by_key(|(id, session)| (session.used_ms, **id));
        let unused = unused.filter(|(_, session)| now_ms - session.used_ms > SAFE_MS);
        let weight = |session: &Session<K, P>| (session.of_replica, session.len());
        let may_go = |session: &Session<K, P>| {
            let old = now_ms - session.created_ms > SAFE_MS;
            (old || (new.of_replica && !session.of_replica)) && weight(session) < weight(new)
        };
        let lightest = || {
            let lighter = self.sessions.iter().filter(|(_, session)| may_go(session));
            lighter.min_by_key(|(id, session)| (weight(session), **id))
        };
        let Some(id) = unused.or_else(lightest).map(|(id, _)| *id) else { return false };
        self.sessions.remove(&id);
        self.evictions += 1;
        true
    }
}

fn all_of<K, P>(session_id: i32, fetched: &[(K, P, Told)]) -> Answer {
    Answer { session_id, told: vec![true; fetched.len()] }
}
