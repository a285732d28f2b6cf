//! One fetcher: the partitions that this broker follows at one other broker, or a part of them.
//!
//! It asks for its partitions in one request, which waits at the leader until something comes, and asks again when what came is written.
//! Where there are many partitions, those that have been quiet for a while are asked for in a request of their own (`lane.rs`).
//! Partitions that are new, or that have waited after an error, are asked for at once by a second request; the leader then answers the first.
//! What must hold: an answer counts only for the position that was asked for; whoever fails waits a little longer each time, and is tried at
//! once when the metadata says something new; nothing wakes it but answers, changes, and pauses that end.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_client::{Connection, RequestError};
use forebay_broker_machines::metadata::MetadataImage;
use forebay_broker_partition::FetchPosition;
use forebay_broker_wire::types::{BrokerId, ErrorCode};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::apply::{Applied, Task, What, apply};
use super::lane::{Lane, PAUSE_MIN, Pace, connect};
use super::name_of;
use super::round::{Ask, Told, exchange, request, understand};
use crate::broker::Broker;
use crate::partitions::{Hosted, Key};

/// So many partitions go in one request, busy or not.
const TOGETHER_MAX: usize = 16;
/// A partition that has brought nothing for so long is quiet; looked at as often.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// What a fetcher is told.
#[derive(Debug)]
pub(super) enum Change {
    /// To be fetched from now on, or anew.
    Follow(Key, Arc<Hosted>),
    Leave(Key),
    /// The source has begun a new life, or moved.
    Dial,
}

/// Where changes wait for a fetcher.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    changes: Mutex<Vec<Change>>,
    wake: Notify,
}

impl Inbox {
    pub(super) fn put(&self, changes: Vec<Change>) {
        self.changes.lock().extend(changes);
        self.wake.notify_one();
    }
}

/// A partition as its fetcher knows it.
struct Followed {
    hosted: Arc<Hosted>,
    /// Changes whenever it is followed anew: answers to earlier requests are not for it.
    ticket: u64,
    state: State,
    pause: Duration,
    /// When it last brought records, as a number that grows: who was served longest ago is asked for first.
    served: u64,
    served_at: Instant,
    pace: Pace,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Where its log ends is not known.
    Unlocated,
    Ready(FetchPosition),
    /// A request or a disk thread has it.
    Busy,
    Waiting(Instant),
}

/// What one request, or one job of the disk threads, has brought.
struct Done {
    tickets: HashMap<Key, u64>,
    result: Result<Brought, RequestError>,
    /// It was a request on this lane's connection.
    asked: Option<Pace>,
}

#[derive(Default)]
struct Brought {
    applied: Vec<Applied>,
    unchanged: Vec<Ask>,
    refused: Vec<(Key, ErrorCode)>,
    /// Keys that brought records.
    served: Vec<Key>,
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

pub(super) struct Fetcher {
    broker: Arc<Broker>,
    source: BrokerId,
    number: usize,
    inbox: Arc<Inbox>,
    partitions: HashMap<Key, Followed>,
    lanes: [Lane; 2],
    work: FuturesUnordered<Work>,
    sort_at: Instant,
    counter: u64,
}

impl Fetcher {
    pub(super) fn new(broker: Arc<Broker>, source: BrokerId, number: usize, inbox: Arc<Inbox>) -> Self {
        Self {
            broker,
            source,
            number,
            inbox,
            partitions: HashMap::new(),
            lanes: Pace::ALL.map(|_| Lane::new()),
            work: FuturesUnordered::new(),
            sort_at: Instant::now() + QUIET_AFTER,
            counter: 0,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            self.take_changes();
            self.locate();
            if let Some(pace) = Pace::ALL.into_iter().find(|pace| self.is_to_dial(*pace)) {
                tokio::select! {
                    dialled = connect(Arc::clone(&self.broker), self.source, self.number) => self.dialled(pace, dialled),
                    () = self.inbox.wake.notified() => {}
                    () = stop.cancelled() => return,
                }
                continue;
            }
            Pace::ALL.into_iter().for_each(|pace| self.ask(pace));
            let due = self.next_due();
            tokio::select! {
                Some(done) = self.work.next(), if !self.work.is_empty() => self.take(done),
                () = self.inbox.wake.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn take_changes(&mut self) {
        let changes = std::mem::take(&mut *self.inbox.changes.lock());
        if changes.is_empty() {
            return;
        }
        for change in changes {
            match change {
                Change::Follow(key, hosted) => {
                    let (ticket, state) = (self.next_number(), State::Unlocated);
                    let (pace, served_at) = (Pace::Busy, Instant::now());
                    let followed = Followed { hosted, ticket, state, pause: PAUSE_MIN, served: 0, served_at, pace };
                    self.partitions.insert(key, followed);
                }
                Change::Leave(key) => drop(self.partitions.remove(&key)),
                Change::Dial => self.hang_up(),
            }
        }
        if self.partitions.is_empty() {
            self.hang_up();
        }
        self.lanes.iter_mut().for_each(Lane::forgive);
    }

    /// Gives up the connections, with all that was asked on them.
    fn hang_up(&mut self) {
        self.lanes.iter_mut().for_each(Lane::hang_up);
        self.work.clear();
        for followed in self.partitions.values_mut().filter(|followed| followed.state == State::Busy) {
            followed.state = State::Unlocated;
        }
    }

    /// Asks the disk threads where logs end that nobody knows it of.
    fn locate(&mut self) {
        let now = Instant::now();
        let (mut tasks, mut tickets) = (Vec::new(), HashMap::new());
        for (key, followed) in &mut self.partitions {
            let due = match followed.state {
                State::Unlocated => true,
                State::Waiting(until) => until <= now,
                State::Ready(_) | State::Busy => false,
            };
            if due {
                followed.state = State::Busy;
                tickets.insert(*key, followed.ticket);
                tasks.push(Task { key: *key, hosted: Arc::clone(&followed.hosted), what: What::Locate });
            }
        }
        if tasks.is_empty() {
            return;
        }
        let broker = Arc::clone(&self.broker);
        self.work.push(Box::pin(async move {
            let applied = apply(&broker, tasks).await;
            Done { tickets, result: Ok(Brought { applied, ..Brought::default() }), asked: None }
        }));
    }

    fn lane(&mut self, pace: Pace) -> &mut Lane {
        let [busy, quiet] = &mut self.lanes;
        if pace == Pace::Busy { busy } else { quiet }
    }

    /// When a lane is to connect, if it has something to ask.
    fn dial_at(&self, pace: Pace) -> Option<Instant> {
        let [busy, quiet] = &self.lanes;
        let at = if pace == Pace::Busy { busy.dial_at() } else { quiet.dial_at() };
        let ready = |followed: &Followed| followed.pace == pace && matches!(followed.state, State::Ready(_));
        at.filter(|_| self.partitions.values().any(ready))
    }

    fn is_to_dial(&self, pace: Pace) -> bool {
        self.dial_at(pace).is_some_and(|at| at <= Instant::now())
    }

    fn dialled(&mut self, pace: Pace, dialled: Result<Connection, RequestError>) {
        match dialled {
            Ok(connection) => {
                self.broker.absent.found(self.source);
                self.lane(pace).dialled(connection);
            }
            Err(error) => self.unreachable(pace, &error),
        }
    }

    fn unreachable(&mut self, pace: Pace, error: &RequestError) {
        let pause_max = self.pause_max();
        if self.lane(pace).failed(pause_max) {
            tracing::info!(source = %self.source, %error, "the leader of replicas here cannot be asked: trying again");
        }
    }

    fn pause_max(&self) -> Duration {
        Duration::from_millis(self.broker.config.replica.fetch_backoff_ms).max(PAUSE_MIN)
    }

    /// Asks for everything of a lane that is ready: the first request waits at the leader, a second one does not.
    fn ask(&mut self, pace: Pace) {
        let pause_max = self.pause_max();
        let Some((connection, may_wait)) = self.lane(pace).free() else { return };
        let mut ready: Vec<(u64, Ask)> = Vec::new();
        let mut tickets = HashMap::new();
        for (key, followed) in self.partitions.iter_mut().filter(|(_, followed)| followed.pace == pace) {
            let State::Ready(position) = followed.state else { continue };
            // It could take in nothing; and asking is saying that it is there.
            let full = followed.hosted.is_full() && !is_in_sync(&self.broker.metadata.image(), *key, self.broker.id());
            if followed.hosted.dir().is_out() || full {
                followed.wait(pause_max);
                continue;
            }
            let throttled = followed.is_throttled(*key, &self.broker);
            let wait = throttled.then(|| self.broker.replication.follower_throttle.wait(Instant::now())).flatten();
            if let Some(wait) = wait {
                followed.state = State::Waiting(Instant::now() + wait);
                continue;
            }
            let high_watermark = followed.hosted.partition.offsets().high_watermark;
            ready.push((followed.served, Ask { key: *key, position, high_watermark, throttled }));
            tickets.insert(*key, followed.ticket);
            followed.state = State::Busy;
        }
        if ready.is_empty() {
            return;
        }
        ready.sort_by_key(|(served, ask)| (*served, ask.key));
        let asks: Vec<_> = ready.into_iter().map(|(_, ask)| ask).collect();
        let longest = pace.longest_wait(self.broker.config.replica.fetch_wait_max_ms);
        let wait = if may_wait { longest } else { Duration::ZERO };
        let hosted: HashMap<Key, Arc<Hosted>> =
            asks.iter().filter_map(|ask| Some((ask.key, Arc::clone(&self.partitions.get(&ask.key)?.hosted)))).collect();
        let broker = Arc::clone(&self.broker);
        self.lane(pace).sent();
        self.work.push(Box::pin(async move {
            let result = fetch(&broker, &connection, &asks, &hosted, wait, longest).await;
            Done { tickets, result, asked: Some(pace) }
        }));
    }

    fn take(&mut self, done: Done) {
        let Done { tickets, result, asked } = done;
        if let Some(pace) = asked {
            self.lane(pace).answered(result.is_ok());
            if let Err(error) = &result {
                self.broker.absent.lost(self.source);
                self.unreachable(pace, error);
            }
        }
        let brought = result.unwrap_or_default();
        let (served, served_at) = (self.next_number(), Instant::now());
        for key in &brought.served {
            self.present(&tickets, key, |followed| {
                (followed.served, followed.served_at, followed.pace) = (served, served_at, Pace::Busy);
            });
        }
        for ask in brought.unchanged {
            self.present(&tickets, &ask.key, |followed| followed.answered(ask.position));
        }
        let (pause_max, source) = (self.pause_max(), self.source);
        for Applied { key, position, failed } in brought.applied {
            self.present(&tickets, &key, |followed| match position.filter(|position| position.leader == source) {
                Some(position) if !failed && asked.is_some() => followed.answered(position),
                // What had to wait before is not well for being located.
                Some(position) if !failed => followed.state = State::Ready(position),
                // It has another role by now, or cannot do what it should.
                _ => followed.wait(pause_max),
            });
        }
        for (key, code) in brought.refused {
            self.present(&tickets, &key, |followed| {
                if followed.pause == PAUSE_MIN {
                    let partition = name_of(key, &followed.hosted);
                    tracing::debug!(%partition, %source, code = code.name(), "a fetch was refused");
                }
                followed.wait(pause_max);
            });
        }
        // Whatever got no answer.
        for key in tickets.keys() {
            self.present(&tickets, key, |followed| {
                if followed.state == State::Busy {
                    followed.state = State::Unlocated;
                }
            });
        }
        self.sort_out();
    }

    /// Lets partitions that have been quiet for a while go their own way, many at a time: each that comes or goes costs a request of all.
    fn sort_out(&mut self) {
        let now = Instant::now();
        if self.partitions.len() <= TOGETHER_MAX || now < self.sort_at {
            return;
        }
        self.sort_at = now + QUIET_AFTER;
        let image = self.broker.metadata.image();
        for (key, followed) in &mut self.partitions {
            let may_be = followed.pace == Pace::Busy && now >= followed.served_at + QUIET_AFTER;
            if may_be && followed.wants_nothing() && is_in_sync(&image, *key, self.broker.id()) {
                followed.pace = Pace::Quiet;
            }
        }
    }

    /// Changes a partition if it is still followed as it was when it was asked for.
    fn present(&mut self, tickets: &HashMap<Key, u64>, key: &Key, change: impl FnOnce(&mut Followed)) {
        if let Some(followed) = self.partitions.get_mut(key)
            && tickets.get(key) == Some(&followed.ticket)
        {
            change(followed);
        }
    }

    /// When something has waited long enough, if nothing else comes before.
    fn next_due(&self) -> Option<Instant> {
        let waiting = self.partitions.values().filter_map(|followed| match followed.state {
            State::Waiting(until) => Some(until),
            _ => None,
        });
        let dial = Pace::ALL.into_iter().filter_map(|pace| self.dial_at(pace));
        waiting.chain(dial).min()
    }
}

impl Followed {
    fn answered(&mut self, position: FetchPosition) {
        (self.state, self.pause) = (State::Ready(position), PAUSE_MIN);
    }

    /// Copied at the rate for replicas that are not in sync.
    fn is_throttled(&self, key: Key, broker: &Broker) -> bool {
        self.hosted.throttled().as_follower && !is_in_sync(&broker.metadata.image(), key, broker.id())
    }

    /// It knows all that it has to be safe: only new records are news.
    fn wants_nothing(&self) -> bool {
        let offsets = self.hosted.partition.offsets();
        offsets.high_watermark == offsets.log_end
    }

    fn wait(&mut self, pause_max: Duration) {
        self.state = State::Waiting(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(pause_max);
    }
}

fn is_in_sync(image: &MetadataImage, (topic_id, index): Key, broker: BrokerId) -> bool {
    let partition = image.topic_by_id(topic_id).and_then(|topic| topic.partition(index));
    partition.is_some_and(|partition| partition.in_sync_replicas.contains(&broker))
}

/// Asks, and does what the answer says.
async fn fetch(
    broker: &Broker,
    connection: &Connection,
    asks: &[Ask],
    hosted: &HashMap<Key, Arc<Hosted>>,
    wait: Duration,
    longest: Duration,
) -> Result<Brought, RequestError> {
    let request = request(&broker.config, broker.broker_epoch(), asks, wait);
    // Also the second request may have to wait for the answer to the first.
    let response = exchange(connection, &request, longest).await?;
    let mut brought = Brought::default();
    let mut tasks = Vec::new();
    for (ask, told) in understand(asks, response) {
        match (told, hosted.get(&ask.key)) {
            (Told::Nothing, _) | (_, None) => brought.unchanged.push(ask),
            (Told::Refused(code), _) => brought.refused.push((ask.key, code)),
            (Told::Do(what), Some(hosted)) => {
                if let What::Append(answer) = &what
                    && !answer.records.is_empty()
                {
                    brought.served.push(ask.key);
                    if ask.throttled {
                        broker.replication.follower_throttle.take(answer.records.len() as u64);
                    }
                }
                tasks.push(Task { key: ask.key, hosted: Arc::clone(hosted), what });
            }
        }
    }
    if !tasks.is_empty() {
        brought.applied = apply(broker, tasks).await;
    }
    Ok(brought)
}
