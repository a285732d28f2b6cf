//! A broker's process: its partitions, and what it does about messages and time. A small server without threads and sockets.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use forebay_broker_machines::metadata::{MetadataImage, PartitionImage};
use forebay_broker_partition::{
    AppendRequest, CommitGuard, CommitOutcome, CommitWaiter, FetchPosition, FollowError, IsrAnswer, IsrProposal,
    LeaderAnswer, LogConfig, LogDir, LogName, OpenPartition, Origin, Partition, ReadError, ReplicaFetch, ReplicaRead,
    Settings,
};
use forebay_broker_storage::{AppendError, Disk, Identity, Room};
use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};
use parking_lot::Mutex;

use crate::{
    controller::{TOPIC, TOPIC_ID},
    message::{Envelope, FetchAnswer, Message, Node},
    random::Random,
};

/// Wall clocks begin here.
pub(crate) const EPOCH_MS: i64 = 1_800_000_000_000;
const HEARTBEAT_MS: i64 = 200;
const ANSWER_TIMEOUT_MS: i64 = 400;

/// What all processes of a run have in common.
#[derive(Debug, Clone)]
pub(crate) struct ProcessOptions {
    pub(crate) log: LogConfig,
    pub(crate) replication: Settings,
    pub(crate) fetch_max_bytes: u32,
}

/// The true time, for what a process measures, and what its clock says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) true_ms: i64,
    pub(crate) clock_ms: i64,
}

/// A broker's process.
#[derive(Debug)]
pub(crate) struct Process {
    id: BrokerId,
    life: u64,
    log_dir: Arc<LogDir>,
    options: ProcessOptions,
    pub(crate) hosted: BTreeMap<usize, Hosted>,
    image: Option<Arc<MetadataImage>>,
    incarnation: u64,
    broker_epoch: Option<i64>,
    heartbeat_due_ms: i64,
    numbers: u64,
    committed: Arc<Mutex<Vec<(u64, CommitOutcome)>>>,
}

/// A partition of it.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub(crate) partition: Arc<Partition>,
    fetch: Option<(u64, i64)>,
    proposals: Vec<(u64, i64, IsrProposal)>,
    producing: BTreeMap<u64, (Offset, CommitGuard)>,
}

struct Waiter {
    number: u64,
    committed: Arc<Mutex<Vec<(u64, CommitOutcome)>>>,
}

impl CommitWaiter for Waiter {
    fn done(&self, outcome: CommitOutcome) {
        self.committed.lock().push((self.number, outcome));
    }
}

impl Process {
    pub(crate) fn start(
        disk: Disk,
        dir: &Path,
        identity: &Identity,
        life: u64,
        options: &ProcessOptions,
        random: &mut Random,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            id: identity.node_id,
            life,
            log_dir: LogDir::open(disk, dir, identity, 0)?,
            options: options.clone(),
            hosted: BTreeMap::new(),
            image: None,
            incarnation: random.next(),
            broker_epoch: None,
            heartbeat_due_ms: 0,
            numbers: 0,
            committed: Arc::default(),
        })
    }

    /// Ends in order: the next start need not read the logs.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.hosted.values().try_for_each(|hosted| hosted.partition.close())?;
        Ok(self.log_dir.close_clean()?)
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn send(&self, to: Node, to_life: Option<u64>, message: Message) -> Envelope {
        Envelope { from: Node::Broker(self.id), to, to_life, message }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Now, random: &mut Random, out: &mut Vec<Envelope>) -> anyhow::Result<()> {
        let (broker, life) = (self.id, self.life);
        if now.true_ms >= self.heartbeat_due_ms {
            self.heartbeat_due_ms = now.true_ms + HEARTBEAT_MS;
            let image_version = self.image.as_ref().map_or(-1, |image| image.version());
            self.log_dir.refresh_space()?;
            let full = self.log_dir.room() == Room::None;
            let message = match self.broker_epoch {
                Some(broker_epoch) => Message::Heartbeat { broker, life, broker_epoch, image_version, full },
                None => {
                    let (directory, incarnation) = (self.log_dir.identity().directory_id, self.incarnation);
                    Message::Register { broker, directory, life, incarnation }
                }
            };
            out.push(self.send(Node::Controller, None, message));
        }
        let indexes: Vec<_> = self.hosted.keys().copied().collect();
        for index in indexes {
            self.tick_partition(index, now, random)?;
            self.fetch(index, now, out);
        }
        Ok(())
    }

    fn tick_partition(&mut self, index: usize, now: Now, random: &mut Random) -> anyhow::Result<()> {
        let Some(hosted) = self.hosted.get_mut(&index) else { return Ok(()) };
        let unanswered = hosted.proposals.extract_if(.., |(_, deadline_ms, _)| *deadline_ms <= now.true_ms);
        for (_, _, proposal) in unanswered.collect::<Vec<_>>() {
            hosted.partition.isr_answered(proposal, IsrAnswer::Unknown, now.clock_ms);
        }
        hosted.partition.check_followers(now.clock_ms);
        let flush_percent = if self.options.log.flush_messages == 1 { 30 } else { 3 };
        if hosted.partition.needs_flush() && random.percent(flush_percent) {
            hosted.partition.flush()?;
        }
        if random.percent(3) {
            hosted.partition.maintain(now.clock_ms)?;
        }
        Ok(())
    }

    /// Asks the leader of a partition for more, if nothing is asked yet.
    fn fetch(&mut self, index: usize, now: Now, out: &mut Vec<Envelope>) {
        let number = self.number();
        let (Some(broker_epoch), Some(hosted)) = (self.broker_epoch, self.hosted.get_mut(&index)) else { return };
        if hosted.fetch.is_some_and(|(_, deadline_ms)| deadline_ms > now.true_ms) {
            return;
        }
        let Some(asked) = hosted.partition.fetch_position() else { return };
        hosted.fetch = Some((number, now.true_ms + ANSWER_TIMEOUT_MS));
        let fetch = ReplicaFetch {
            follower: self.id,
            broker_epoch,
            offset: asked.offset,
            log_start: asked.log_start,
            last_fetched_epoch: asked.last_fetched_epoch,
            current_leader_epoch: asked.leader_epoch,
            max_bytes: self.options.fetch_max_bytes,
            min_one_batch: true,
        };
        let message = Message::Fetch { life: self.life, number, partition: index, fetch, asked };
        out.push(self.send(Node::Broker(asked.leader), None, message));
    }

    /// A message has come.
    pub(crate) fn handle(
        &mut self,
        from: Node,
        message: Message,
        now: Now,
        random: &mut Random,
        out: &mut Vec<Envelope>,
    ) -> anyhow::Result<()> {
        match message {
            Message::Registered { incarnation, broker_epoch, image } if incarnation == self.incarnation => {
                self.broker_epoch = Some(broker_epoch);
                self.heartbeat_due_ms = 0;
                self.follow(image, now)?;
            }
            Message::NotRegistered { broker_epoch } if self.broker_epoch == Some(broker_epoch) => {
                (self.incarnation, self.broker_epoch) = (random.next(), None);
            }
            Message::Image(image) => self.follow(image, now)?,
            Message::Proposed { number, answer } => self.proposed(number, answer, now),
            Message::Fetch { life, number, partition, fetch, asked } => {
                let answer = self.answer_fetch(partition, &fetch, now)?;
                let message = Message::Fetched { number, partition, asked, answer };
                out.push(self.send(from, Some(life), message));
            }
            Message::Fetched { number, partition, asked, answer } => {
                let more = self.fetched((number, partition), asked, answer, now, random)?;
                if more {
                    self.fetch(partition, now, out);
                }
            }
            Message::Produce { number, partition, records, all } => {
                if let Some(result) = self.produce(number, partition, records, all, now, random)? {
                    out.push(self.send(from, None, Message::Produced { number, result }));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What came of the requests and proposals that an action has moved on.
    pub(crate) fn after(&mut self, now: Now, out: &mut Vec<Envelope>) {
        let done = std::mem::take(&mut *self.committed.lock());
        for (number, outcome) in done {
            let waiting = self.hosted.values_mut().find_map(|hosted| hosted.producing.remove(&number));
            let Some((base_offset, _guard)) = waiting else { continue };
            let result = if outcome == CommitOutcome::Committed { Ok(base_offset) } else { Err("not committed") };
            out.push(self.send(Node::Clients, None, Message::Produced { number, result }));
        }
        let Some(broker_epoch) = self.broker_epoch else { return };
        let proposals: Vec<_> = self
            .hosted
            .iter()
            .filter_map(|(index, hosted)| Some((*index, hosted.partition.take_isr_proposal()?)))
            .collect();
        for (partition, proposal) in proposals {
            let (life, number) = (self.life, self.number());
            if let Some(hosted) = self.hosted.get_mut(&partition) {
                hosted.proposals.push((number, now.true_ms + ANSWER_TIMEOUT_MS, proposal.clone()));
            }
            let message = Message::Propose { life, broker_epoch, number, partition, proposal };
            out.push(self.send(Node::Controller, None, message));
        }
    }

    fn proposed(&mut self, number: u64, answer: IsrAnswer, now: Now) {
        for hosted in self.hosted.values_mut() {
            if let Some(at) = hosted.proposals.iter().position(|(sent, ..)| *sent == number) {
                let (_, _, proposal) = hosted.proposals.remove(at);
                return hosted.partition.isr_answered(proposal, answer, now.clock_ms);
            }
        }
    }

    /// Takes over a newer image, unless it is from before this process was registered: that says what an earlier life should do.
    fn follow(&mut self, image: Arc<MetadataImage>, now: Now) -> anyhow::Result<()> {
        let known = self.image.as_ref().map_or(-1, |image| image.version());
        if self.broker_epoch.is_none_or(|registered| image.version() <= registered) || image.version() <= known {
            return Ok(());
        }
        let partitions = image.topic(TOPIC).map(|topic| topic.partitions.clone()).unwrap_or_default();
        for (index, partition) in partitions.iter().enumerate() {
            if partition.replicas.contains(&self.id) {
                self.assign(index, partition, now)?;
            }
        }
        self.image = Some(image);
        Ok(())
    }

    fn assign(&mut self, index: usize, image: &PartitionImage, now: Now) -> anyhow::Result<()> {
        if !self.hosted.contains_key(&index) {
            let open = OpenPartition {
                name: LogName::new(TOPIC, image.index.0),
                topic_id: Some(TOPIC_ID),
                leader_epoch: LeaderEpoch(-1),
                config: self.options.log.clone(),
            };
            let (partition, _) = Partition::open_replica(&self.log_dir, open, self.options.replication)
                .context("the log cannot be opened")?;
            let partition = Arc::new(partition);
            let (fetch, proposals, producing) = (None, Vec::new(), BTreeMap::new());
            self.hosted.insert(index, Hosted { partition, fetch, proposals, producing });
        }
        let partition = &self.hosted[&index].partition;
        if image.leader == Some(self.id) {
            partition.become_leader(image, now.clock_ms);
        } else {
            partition.become_follower(image, now.clock_ms);
        }
        Ok(())
    }

    fn answer_fetch(&self, index: usize, fetch: &ReplicaFetch, now: Now) -> anyhow::Result<FetchAnswer> {
        let Some(hosted) = self.hosted.get(&index) else { return Ok(FetchAnswer::Refused) };
        Ok(match hosted.partition.read_for_replica(fetch, now.clock_ms) {
            Ok(ReplicaRead::Diverging(end)) => FetchAnswer::Diverging(end),
            Ok(ReplicaRead::Records(read)) => FetchAnswer::Records {
                records: read.slice.map_or(Ok(Bytes::new()), |slice| slice.read())?,
                high_watermark: read.high_watermark,
                log_start: read.log_start_offset,
            },
            Err(ReadError::OutOfRange { log_start, log_end, .. }) => FetchAnswer::OutOfRange { log_start, log_end },
            Err(ReadError::Disk(error)) => return Err(error.into()),
            Err(_) => FetchAnswer::Refused,
        })
    }

    /// Gives whether there may be more at once.
    fn fetched(
        &mut self,
        (number, index): (u64, usize),
        asked: FetchPosition,
        answer: FetchAnswer,
        now: Now,
        random: &mut Random,
    ) -> anyhow::Result<bool> {
        let Some(hosted) = self.hosted.get_mut(&index) else { return Ok(false) };
        // An answer that was given up is believed all the same, if it still fits: the partition must know.
        if hosted.fetch.is_some_and(|(asked, _)| asked == number) {
            hosted.fetch = None;
        }
        let partition = &hosted.partition;
        let (result, more) = match answer {
            FetchAnswer::Records { records, high_watermark, log_start } => {
                let more = !records.is_empty();
                let answer = LeaderAnswer { asked, records, high_watermark, log_start };
                // Both ways of a broker: at once where that can be, or with patience.
                let hot = (number % 2 == 0).then(|| partition.append_from_leader_hot(&answer, now.clock_ms)).flatten();
                let due = hot.unwrap_or_else(|| partition.append_from_leader(&answer, now.clock_ms));
                if let Ok(true) = due
                    && random.percent(50)
                {
                    partition.flush()?; // otherwise the next tick does it
                }
                (due.map(drop), more)
            }
            FetchAnswer::Diverging(end) => (partition.truncate_diverging(&asked, end, now.clock_ms).map(drop), true),
            FetchAnswer::OutOfRange { log_start, log_end } => {
                (partition.out_of_leaders_range(&asked, (log_start, log_end), now.clock_ms).map(drop), true)
            }
            FetchAnswer::Refused => (Ok(()), false),
        };
        match result {
            Ok(()) => Ok(more),
            Err(
                FollowError::Late { .. } | FollowError::Append(AppendError::NotNext { .. } | AppendError::DiskFull(_)),
            ) => Ok(false),
            Err(error) => Err(error).context("a follower cannot do as its leader says"),
        }
    }

    fn produce(
        &mut self,
        number: u64,
        index: usize,
        records: Bytes,
        all: bool,
        now: Now,
        random: &mut Random,
    ) -> anyhow::Result<Option<Result<Offset, &'static str>>> {
        let Some(hosted) = self.hosted.get_mut(&index) else { return Ok(Some(Err("unknown partition"))) };
        let partition = &hosted.partition;
        if all && partition.is_below_min_isr() {
            return Ok(Some(Err("too few in sync")));
        }
        let epoch = partition.leader_epoch();
        let request = AppendRequest { records, origin: Origin::Client };
        let Ok(appended) = partition.append(&[request], now.clock_ms).remove(0) else {
            return Ok(Some(Err("not appended")));
        };
        if appended.flush_required && random.percent(50) {
            partition.flush()?; // otherwise the next tick's flush covers more than this
        }
        if !all {
            return Ok(Some(Ok(appended.base_offset)));
        }
        let waiter = Arc::new(Waiter { number, committed: Arc::clone(&self.committed) });
        Ok(match partition.when_committed(Offset(appended.last_offset.0 + 1), epoch, waiter) {
            Ok(Some(guard)) => {
                hosted.producing.insert(number, (appended.base_offset, guard));
                None
            }
            Ok(None) => Some(Ok(appended.base_offset)),
            Err(_) => Some(Err("not committed")),
        })
    }
}
