//! One run: the queue of what happens when, and the loop that lets it happen. Everything is decided by the seed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use forebay_broker_machines::{
    metadata::ElectionRules,
    replication::{Mutation, Settings},
};
use forebay_broker_partition::{LogConfig, Partition, ReadSpec, RoleKind};
use forebay_broker_wire::{
    records::batches,
    types::{BrokerId, Offset},
};

use crate::{
    broker::Computer,
    clients::{Clients, ONCE},
    controller::Controller,
    hosting::{EPOCH_MS, Now, Process, ProcessOptions},
    message::{Envelope, Node},
    random::Random,
    shadow::{Entry, PartitionShadow, Seen},
};

/// So long a healed cluster may take until every replica has everything and is in sync.
const HEALING_MAX_MS: i64 = 60_000;

/// What to run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Everything follows from it.
    pub seed: u64,
    /// A mistake to make.
    pub mutation: Option<Mutation>,
    /// Keep the trace as text.
    pub keep_trace: bool,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A number that stands for all that happened, in its order.
    pub trace_hash: u64,
    /// All that happened, if it was to be kept.
    pub trace: Vec<String>,
    /// How much happened.
    pub events: u64,
    /// Records that a producer was promised.
    pub acknowledged: u64,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// What was wrong.
    pub violation: Option<String>,
}

/// What is going to happen.
#[derive(Debug)]
pub(crate) enum Happening {
    Deliver(Envelope),
    /// A process looks at its clock.
    Tick(BrokerId, u64),
    Boot(BrokerId),
    Crash(BrokerId),
    ControllerTick,
    Produce,
    Fault,
    Mend(BTreeSet<(Node, Node)>),
    /// A full disk of this life of a broker has room again.
    Room(BrokerId, u64),
    Heal,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) now_ms: i64,
    queue: BTreeMap<(i64, u64), Happening>,
    sequence: u64,
    pub(crate) computers: BTreeMap<BrokerId, Computer>,
    pub(crate) controller: Controller,
    pub(crate) controller_skew_ms: i64,
    pub(crate) clients: Clients,
    pub(crate) shadows: Vec<PartitionShadow>,
    pub(crate) process: ProcessOptions,
    pub(crate) cut: BTreeSet<(Node, Node)>,
    pub(crate) loss_percent: u64,
    pub(crate) delay_max_ms: i64,
    pub(crate) healed: bool,
    lives: u64,
    keep_trace: bool,
    pub(crate) report: Report,
}

/// Runs one seed.
///
/// # Errors
/// The machine that runs the simulation has failed: no directory, no room.
pub fn run(options: &Options) -> Result<Report> {
    let mut world = World::new(options)?;
    let outcome = world.run();
    world.report.acknowledged = world.shadows.iter().map(|shadow| shadow.acknowledged).sum();
    world.report.violation = outcome.err().map(|error| format!("at {} ms: {error:#}", world.now_ms));
    Ok(world.report)
}

impl World {
    fn new(options: &Options) -> Result<Self> {
        let mut random = Random::new(options.seed);
        let brokers: Vec<_> = (1..=*random.pick(&[3, 3, 3, 4, 5]).unwrap_or(&3)).map(BrokerId).collect();
        let partitions = random.between(1, 2);
        let flushed = random.percent(50);
        let log = LogConfig {
            segment_bytes: u32::try_from(random.between(600, 6000))?,
            index_interval_bytes: 200,
            retention_ms: -1,
            flush_messages: if flushed { 1 } else { u64::MAX },
            file_delete_delay_ms: 500,
            ..LogConfig::default()
        };
        let replication = Settings {
            min_insync_replicas: usize::try_from(random.between(1, 2))?,
            lag_time_max_ms: random.between(300, 2000),
            mutation: options.mutation,
            ..Settings::default()
        };
        let process = ProcessOptions { log, replication, fetch_max_bytes: u32::try_from(random.between(100, 3000))? };
        let min_insync_replicas = replication.min_insync_replicas;
        let rules = ElectionRules { unclean: false, min_insync_replicas, mutation: options.mutation };
        let controller = Controller::new(&brokers, i32::try_from(partitions)?, random.between(600, 2000), rules);
        let computers = brokers.iter().map(|id| Ok((*id, Computer::new(*id)?))).collect::<Result<_>>()?;
        let mut world = Self {
            now_ms: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            computers,
            controller,
            controller_skew_ms: 0,
            clients: Clients::new(usize::try_from(partitions)?),
            shadows: (0..partitions).map(|_| PartitionShadow::default()).collect(),
            process,
            cut: BTreeSet::new(),
            loss_percent: random.below(4),
            delay_max_ms: random.between(2, 40),
            healed: false,
            lives: 0,
            keep_trace: options.keep_trace,
            report: Report { seed: options.seed, ..Report::default() },
            random,
        };
        for id in brokers {
            world.after(0, Happening::Boot(id));
        }
        world.after(50, Happening::ControllerTick);
        world.after(500, Happening::Produce);
        world.after(700, Happening::Fault);
        let chaos_ms = world.random.between(3000, 9000);
        world.after(chaos_ms, Happening::Heal);
        Ok(world)
    }

    /// With it a promise is on disk everywhere; without it in the page cache of every in-sync replica.
    pub(crate) fn flushes_each(&self) -> bool {
        self.process.log.flush_messages == 1
    }

    pub(crate) fn after(&mut self, delay_ms: i64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now_ms + delay_ms, self.sequence), happening);
    }

    fn run(&mut self) -> Result<()> {
        let mut healing_since_ms = None;
        let mut looked_ms = 0;
        while let Some(((at_ms, _), happening)) = self.queue.pop_first() {
            self.now_ms = at_ms;
            self.report.events += 1;
            self.happen(happening)?;
            let since_ms = if self.healed { *healing_since_ms.get_or_insert(self.now_ms) } else { continue };
            if self.now_ms >= looked_ms + 100 {
                looked_ms = self.now_ms;
                let missing = self.missing();
                match missing {
                    None => return self.compare_all(),
                    Some(missing) if self.now_ms > since_ms + HEALING_MAX_MS => {
                        return Err(anyhow!("the healed cluster does not come to rest: {missing}"));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<()> {
        match happening {
            Happening::Deliver(envelope) => self.deliver(envelope),
            Happening::Tick(id, life) => self.tick(id, life),
            Happening::Boot(id) => self.boot(id),
            Happening::Crash(id) => self.crash(id),
            Happening::ControllerTick => {
                let mut out = Vec::new();
                let now_ms = self.now_ms + self.controller_skew_ms;
                self.controller.check_sessions(now_ms, &mut out);
                self.send_all(out);
                self.after(100, Happening::ControllerTick);
                Ok(())
            }
            Happening::Produce => self.produce(),
            Happening::Fault => self.fault(),
            Happening::Mend(links) => {
                self.cut.retain(|link| !links.contains(link));
                Ok(())
            }
            Happening::Room(id, life) => {
                let here = self.computers.get_mut(&id).filter(|computer| computer.life == life);
                here.into_iter().for_each(Computer::make_room);
                Ok(())
            }
            Happening::Heal => self.heal(),
        }
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        let line = format!("{} {}", self.now_ms, line());
        let mut hash = self.report.trace_hash ^ 0xcbf2_9ce4_8422_2325;
        for byte in line.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.report.trace_hash = hash;
        if self.keep_trace {
            self.report.trace.push(line);
        }
    }

    pub(crate) fn send_all(&mut self, out: Vec<Envelope>) {
        for envelope in out {
            let lost = self.cut.contains(&(envelope.from, envelope.to)) || self.random.percent(self.loss_percent);
            if lost {
                self.trace(|| format!("lost {} > {} {}", envelope.from, envelope.to, envelope.message.describe()));
                continue;
            }
            let mut delay_ms = self.random.between(1, self.delay_max_ms) + self.meddle(&envelope.message);
            if !self.healed && self.random.percent(3) {
                delay_ms += self.random.between(100, 1500);
            }
            self.after(delay_ms, Happening::Deliver(envelope));
        }
    }

    fn deliver(&mut self, envelope: Envelope) -> Result<()> {
        let Envelope { from, to, to_life, message } = envelope;
        match to {
            Node::Controller => {
                self.trace(|| format!("{from} > {to} {}", message.describe()));
                let (mut out, now_ms) = (Vec::new(), self.now_ms + self.controller_skew_ms);
                self.controller.handle(from, message, now_ms, &mut out);
                self.send_all(out);
                Ok(())
            }
            Node::Clients => self.answered(&message),
            Node::Broker(id) => {
                let Some(computer) = self.computers.get(&id) else { return Ok(()) };
                if computer.process.is_none() || to_life.is_some_and(|life| life != computer.life) {
                    return Ok(());
                }
                if computer.paused_until_ms > self.now_ms {
                    let wait_ms = computer.paused_until_ms - self.now_ms;
                    self.after(wait_ms, Happening::Deliver(Envelope { from, to, to_life, message }));
                    return Ok(());
                }
                self.trace(|| format!("{from} > {to} {}", message.describe()));
                self.act(id, |process, now, random, out| process.handle(from, message, now, random, out))
            }
        }
    }

    fn tick(&mut self, id: BrokerId, life: u64) -> Result<()> {
        let Some(computer) = self.computers.get(&id) else { return Ok(()) };
        if computer.process.is_none() || computer.life != life {
            return Ok(());
        }
        let mut wait_ms = computer.paused_until_ms - self.now_ms;
        if wait_ms <= 0 {
            self.act(id, Process::tick)?;
            wait_ms = self.random.between(20, 60);
        }
        self.after(wait_ms, Happening::Tick(id, life));
        Ok(())
    }

    fn boot(&mut self, id: BrokerId) -> Result<()> {
        self.lives += 1;
        let life = self.lives;
        let crash_in =
            (!self.healed && self.report.events > 10 && self.random.percent(10)).then(|| self.random.below(60));
        let Some(computer) = self.computers.get_mut(&id).filter(|computer| computer.process.is_none()) else {
            return Ok(());
        };
        if let Some(operations) = crash_in {
            computer.fail_after(operations, 0);
        }
        computer.boot(life, &self.process, &mut self.random).context("a broker does not start")?;
        if computer.is_failing() {
            return self.crash(id);
        }
        self.trace(|| format!("boot {id}"));
        self.after(1, Happening::Tick(id, life));
        Ok(())
    }

    /// Lets a process do something, looks at what it shows then, and sends what it wants sent.
    pub(crate) fn act(
        &mut self,
        id: BrokerId,
        action: impl FnOnce(&mut Process, Now, &mut Random, &mut Vec<Envelope>) -> Result<()>,
    ) -> Result<()> {
        let Some(computer) = self.computers.get_mut(&id) else { return Ok(()) };
        let now = Now { true_ms: self.now_ms, clock_ms: EPOCH_MS + self.now_ms + computer.skew_ms };
        let Some(process) = &mut computer.process else { return Ok(()) };
        let mut out = Vec::new();
        let result = action(process, now, &mut self.random, &mut out);
        process.after(now, &mut out);
        if computer.is_failing() {
            return self.crash(id); // nothing that it would have said gets out
        }
        // On a full disk much can't be done; what was not is done later.
        let excused = result.as_ref().is_err_and(|error| computer.is_full() && is_for_want_of_room(error));
        if excused {
            self.trace(|| format!("{id} has no room"));
        } else {
            result.with_context(|| format!("broker {id}"))?;
        }
        self.look(id)?;
        self.send_all(out);
        Ok(())
    }

    /// Compares what a broker shows with what must be true.
    fn look(&mut self, id: BrokerId) -> Result<()> {
        let Some(computer) = self.computers.get(&id) else { return Ok(()) };
        let hosted = computer.process.iter().flat_map(|process| &process.hosted);
        let mut lines = Vec::new();
        for (index, hosted) in hosted {
            let (partition, shadow) = (&hosted.partition, &mut self.shadows[*index]);
            let seen = seen(id, computer.life, partition);
            if let Some(from) = shadow.look(&seen).map_err(|fault| anyhow!("partition {index}: {fault}"))? {
                let records = read(partition, from, seen.high_watermark)?;
                let upto = records.last().map_or(from, |(offset, _)| Offset(offset.0 + 1));
                for (offset, entry) in records {
                    shadow.safe(id, offset, &entry).map_err(|fault| anyhow!("partition {index}: {fault}"))?;
                }
                shadow.compared(seen.life, upto);
                lines.push(format!("{id} {index} {:?} {} {}", seen.role, seen.epoch, seen.high_watermark));
            }
        }
        lines.into_iter().for_each(|line| self.trace(|| line));
        Ok(())
    }

    /// What keeps the healed cluster from being at rest, if anything.
    fn missing(&self) -> Option<String> {
        for image in self.controller.partitions() {
            let index = usize::try_from(image.index.0).unwrap_or(0);
            if image.leader.is_none() || image.in_sync_replicas.len() < image.replicas.len() {
                return Some(format!("partition {index} is {image:?}"));
            }
            let ends = image.replicas.iter().map(|id| {
                let partition = self.hosted(*id, index)?;
                let seen = seen(*id, 0, partition);
                (seen.high_watermark == seen.log_end && seen.epoch == image.leader_epoch).then_some(seen.log_end)
            });
            let ends: BTreeSet<_> = ends.collect();
            if ends.len() != 1 || ends.contains(&None) {
                return Some(format!("partition {index} has replicas with the ends {ends:?}"));
            }
        }
        None
    }

    pub(crate) fn hosted(&self, id: BrokerId, index: usize) -> Option<&Partition> {
        let process = self.computers.get(&id)?.process.as_ref()?;
        process.hosted.get(&index).map(|hosted| &*hosted.partition)
    }

    /// At rest, every replica has everything that was ever safe and was not deleted.
    fn compare_all(&mut self) -> Result<()> {
        for image in self.controller.partitions() {
            let index = usize::try_from(image.index.0).unwrap_or(0);
            for id in &image.replicas {
                let Some(partition) = self.hosted(*id, index) else { continue };
                let seen = seen(*id, 0, partition);
                let records = read(partition, seen.log_start, seen.log_end)?;
                let safe = self.shadows[index].safe.range(seen.log_start..).map(|(at, entry)| (*at, entry.clone()));
                let safe: Vec<_> = safe.collect();
                let (end, safe_end) = (seen.log_end, self.shadows[index].end());
                if records != safe || safe_end > end {
                    let differs = records.iter().zip(&safe).find(|(here, safe)| here != safe);
                    return Err(anyhow!(
                        "broker {id} at rest: partition {index} ends at {end}, {safe_end} was safe; first difference {differs:?}"
                    ));
                }
            }
            let once = self.shadows[index].safe.values().filter(|entry| entry.value.starts_with(ONCE));
            let once: Vec<_> = once.map(|entry| &entry.value).collect();
            if let Some(pair) = once.windows(2).find(|pair| pair[0] >= pair[1]) {
                return Err(anyhow!(
                    "partition {index}: {:?} follows {:?} of an idempotent producer",
                    pair[1],
                    pair[0]
                ));
            }
        }
        Ok(())
    }
}

fn seen(broker: BrokerId, life: u64, partition: &Partition) -> Seen {
    let offsets = partition.offsets();
    Seen {
        broker,
        life,
        role: partition.role(),
        epoch: partition.leader_epoch(),
        log_start: offsets.log_start,
        high_watermark: offsets.high_watermark,
        log_end: offsets.log_end,
    }
}

/// The records of a log from one offset to another; fewer when that lies inside a batch.
fn read(partition: &Partition, from: Offset, upto: Offset) -> Result<Vec<(Offset, Entry)>> {
    let (mut found, mut offset) = (Vec::new(), from);
    while offset < upto {
        let spec = ReadSpec { offset, max_bytes: 1 << 20, min_one_batch: true, upto };
        let Some(slice) = partition.read_own(&spec)? else { break };
        for batch in batches(&slice.read()?) {
            let batch = batch?;
            for record in batch.records(1 << 20)? {
                let record = record?;
                if record.offset >= offset {
                    let value = String::from_utf8_lossy(&record.value.unwrap_or_default()).into_owned();
                    found.push((record.offset, Entry { epoch: batch.header.partition_leader_epoch, value }));
                }
            }
            offset = offset.max(batch.header.next_offset());
        }
    }
    Ok(found)
}

fn is_for_want_of_room(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let error = cause.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
    })
}

/// True for the leader.
pub(crate) fn leads(partition: &Partition) -> bool {
    partition.role() == RoleKind::Leader
}
