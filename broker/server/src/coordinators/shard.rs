//! One machine over one partition: the only owner of its groups.
//!
//! Commands are handled one after another. While one batch of records is being written, further commands collect
//! theirs for the next, so that a busy partition writes few, larger batches. A reply leaves once everything that the
//! machine had said before it is committed; heartbeats and metrics alone do not wait. If a write
//! fails, the machine knows more than the log: it is thrown away, with all replies that waited, and loaded again.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_machines::groups::{
    Command, GroupConfig, GroupMachine, GroupMetadata, Outcome, Record, Reply, RequestToken, TopicName,
};
use forebay_broker_wire::types::Uuid;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::log::{CoordinatorLog, LoadError, WriteError};

/// Records that may wait for the write before theirs; no command is taken while there are more.
const WAITING_RECORDS_MAX: usize = 10_000;
const RELOAD_DELAY_MIN: Duration = Duration::from_millis(100);
/// In-sync replicas may come back at any time.
const RELOAD_DELAY_MAX: Duration = Duration::from_secs(2);
/// How long a shard that is to stop waits for the write under way.
const LAST_WRITE_WAIT: Duration = Duration::from_secs(1);
/// Where nothing is due, a wake-up that far away is as good as none.
const NEVER: Duration = Duration::from_secs(24 * 3_600);

/// A command and where its reply goes. A dropped sender says that the coordinator is not available.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) command: Command,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// What a shard can do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Reads its partition.
    Loading,
    /// Answers.
    Serving,
    /// Its partition could not be read or written, and it will try again; or it has stopped.
    Unavailable,
}

/// The topics there are, asked for after each load.
pub(super) type ListTopics = Arc<dyn Fn() -> Vec<(TopicName, Uuid)> + Send + Sync>;

pub(super) struct Shard {
    pub(super) log: CoordinatorLog,
    pub(super) config: GroupConfig,
    pub(super) topics: ListTopics,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) stop: CancellationToken,
}

impl Shard {
    /// Loads and serves until stopped.
    pub(super) async fn run(self, mut jobs: mpsc::Receiver<Job>) {
        let mut delay = RELOAD_DELAY_MIN;
        while !self.stop.is_cancelled() {
            self.phase.send_replace(Phase::Loading);
            match self.load().await {
                Ok(machine) => {
                    self.phase.send_replace(Phase::Serving);
                    let mut serving = Serving::new(&self.log, machine, (self.topics)());
                    match serving.serve(&mut jobs, &self.stop).await {
                        Ok(()) => break,
                        Err(_) if self.stop.is_cancelled() => break,
                        Err(error) => tracing::warn!(partition = %self.log, %error, "cannot write group records"),
                    }
                    if serving.has_written {
                        delay = RELOAD_DELAY_MIN;
                    }
                }
                Err(_) if self.stop.is_cancelled() => break,
                // As usual after an election: followers have to say how far they are.
                Err(error @ LoadError::Commit(_)) => tracing::debug!(partition = %self.log, %error, "tries again"),
                Err(error) => tracing::warn!(partition = %self.log, %error, "cannot read group records"),
            }
            self.phase.send_replace(Phase::Unavailable);
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(delay) => delay = (delay * 2).min(RELOAD_DELAY_MAX),
            }
        }
        self.phase.send_replace(Phase::Unavailable);
    }

    async fn load(&self) -> Result<GroupMachine, LoadError> {
        let started = Instant::now();
        let (machine, records) = self.log.load(GroupMachine::new(self.config.clone())).await?;
        if records > 0 {
            let millis = started.elapsed().as_millis();
            tracing::info!(partition = %self.log, records, millis, "groups loaded");
        }
        Ok(machine)
    }
}

type Writing<'a> = Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send + 'a>>;
type Replies = Vec<(RequestToken, Reply)>;

/// A loaded shard at work.
struct Serving<'a> {
    log: &'a CoordinatorLog,
    machine: GroupMachine,
    clock: Clock,
    /// Where replies go that have not left.
    senders: HashMap<RequestToken, oneshot::Sender<Reply>>,
    next_token: u64,
    /// The write under way, and the replies that its end releases.
    writing: Option<Writing<'a>>,
    written_replies: Replies,
    /// What the next write takes, and the replies that wait for that.
    waiting_records: Vec<Record>,
    waiting_replies: Replies,
    has_written: bool,
}

impl<'a> Serving<'a> {
    fn new(log: &'a CoordinatorLog, machine: GroupMachine, topics: Vec<(TopicName, Uuid)>) -> Self {
        let mut serving = Self {
            log,
            machine,
            clock: Clock::start(),
            senders: HashMap::new(),
            next_token: 0,
            writing: None,
            written_replies: Vec::new(),
            waiting_records: Vec::new(),
            waiting_replies: Vec::new(),
            has_written: false,
        };
        let outcome = serving.machine.loaded(serving.clock.now());
        serving.take(outcome);
        let token = serving.token();
        let outcome = serving.machine.handle(token, Command::KeepTopics { topics }, serving.clock.now());
        serving.take(outcome);
        serving
    }

    /// Ends well only when it is to stop, after the write under way.
    async fn serve(&mut self, jobs: &mut mpsc::Receiver<Job>, stop: &CancellationToken) -> Result<(), WriteError> {
        loop {
            self.start_write();
            let due = self.machine.next_deadline_ms().map(|timer_ms| self.clock.instant(timer_ms));
            let has_room = self.waiting_records.len() < WAITING_RECORDS_MAX;
            let writes = self.writing.is_some();
            tokio::select! {
                biased;
                result = written(&mut self.writing), if writes => self.finish_write(result)?,
                () = stop.cancelled(), if !writes => return Ok(()),
                () = long_after(stop), if writes => return Ok(()),
                () = tokio::time::sleep_until(due.unwrap_or_else(|| Instant::now() + NEVER)) => self.tick(),
                job = jobs.recv(), if has_room && !stop.is_cancelled() => match job {
                    Some(job) => self.handle(job),
                    None => return Ok(()),
                },
            }
        }
    }

    fn token(&mut self) -> RequestToken {
        self.next_token += 1;
        RequestToken(self.next_token)
    }

    fn handle(&mut self, job: Job) {
        let token = self.token();
        self.senders.insert(token, job.reply);
        let outcome = self.machine.handle(token, job.command, self.clock.now());
        self.take(outcome);
    }

    fn tick(&mut self) {
        let outcome = self.machine.tick(self.clock.now());
        self.take(outcome);
    }

    fn take(&mut self, outcome: Outcome) {
        self.waiting_records.extend(outcome.records);
        for (token, reply) in outcome.replies {
            if !self.waiting_records.is_empty() && must_wait(&reply) {
                self.waiting_replies.push((token, reply));
            } else if self.writing.is_some() && must_wait(&reply) {
                self.written_replies.push((token, reply));
            } else {
                self.send(token, reply);
            }
        }
    }

    fn start_write(&mut self) {
        if self.writing.is_none() && !self.waiting_records.is_empty() {
            let records = std::mem::take(&mut self.waiting_records);
            records.iter().for_each(log_generation);
            self.written_replies = std::mem::take(&mut self.waiting_replies);
            self.writing = Some(Box::pin(self.log.append(records)));
        }
    }

    fn finish_write(&mut self, result: Result<(), WriteError>) -> Result<(), WriteError> {
        self.writing = None;
        result?;
        self.has_written = true;
        for (token, reply) in std::mem::take(&mut self.written_replies) {
            self.send(token, reply);
        }
        Ok(())
    }

    /// A reply whose client went away goes nowhere.
    fn send(&mut self, token: RequestToken, reply: Reply) {
        if let Some(sender) = self.senders.remove(&token) {
            let _gone = sender.send(reply);
        }
    }
}

/// One line for each rebalance that came to something, and for each group that lost its last member.
fn log_generation(record: &Record) {
    if let Record::GroupMetadata { group, value: Some(metadata) } = record {
        let GroupMetadata { generation, protocol_name, members, .. } = metadata;
        let protocol = protocol_name.as_deref().unwrap_or_default();
        tracing::info!(%group, generation, protocol, members = members.len(), "group settled");
    }
}

/// In-sync replicas that are stopping too would be waited for in vain.
async fn long_after(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_WRITE_WAIT).await;
}

async fn written(writing: &mut Option<Writing<'_>>) -> Result<(), WriteError> {
    match writing {
        Some(writing) => writing.await,
        None => std::future::pending().await,
    }
}

/// A heartbeat tells only what a member may do next, and the metrics are of this moment: neither waits for a slow disk.
fn must_wait(reply: &Reply) -> bool {
    !matches!(reply, Reply::Heartbeat(_) | Reply::Summarize(_))
}
