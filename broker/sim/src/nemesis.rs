//! The faults. Which promise survives which fault:
//!
//! - a process that is killed keeps what it has written, so any number may be killed;
//! - with `flush.messages=1` any number may lose their power;
//! - without it a broker may lose its power only while the ISR has another live member, and its broken connections fence it at once. This
//!   is what replication without flushes promises, and no more;
//! - a broker may lose its disk while somebody else who is live has all that is safe, in the ISR or eligible; with `flush.messages=1` and
//!   `min.insync.replicas` of 2 also while all are down, if the others have theirs.

use std::collections::BTreeSet;

use anyhow::Result;
use forebay_broker_wire::types::{BrokerId, Offset};

use crate::{
    message::{Message, Node},
    world::{Happening, World, leads},
};

impl World {
    fn count(&mut self, fault: &'static str) {
        *self.report.faults.entry(fault).or_default() += 1;
        self.trace(|| fault.to_owned());
    }

    /// One fault, and the time of the next.
    pub(crate) fn fault(&mut self) -> Result<()> {
        if self.healed {
            return Ok(());
        }
        let ids: Vec<_> = self.computers.keys().copied().collect();
        let id = self.random.pick(&ids).copied().unwrap_or(BrokerId(1));
        match self.random.below(100) {
            0..20 => self.crash(id)?,
            20..35 => self.fail_soon(id),
            35..42 => self.stop(id)?,
            42..58 => self.isolate(id),
            58..72 => self.cut_one(id),
            72..82 => self.pause(id),
            82..90 => self.jump(id),
            90..93 => self.jump_controller(),
            93..95 => self.wipe(id)?,
            95..98 => self.fill(id),
            _ => self.delete_records(id)?,
        }
        let pause_ms = self.random.between(30, 700);
        self.after(pause_ms, Happening::Fault);
        Ok(())
    }

    /// Ends a process, with its power where that may be.
    pub(crate) fn crash(&mut self, id: BrokerId) -> Result<()> {
        let power = self.random.percent(60) && (self.flushes_each() || self.others_have_all(id));
        let Some(computer) = self.computers.get_mut(&id) else { return Ok(()) };
        if computer.process.is_none() && !computer.is_failing() {
            return Ok(());
        }
        if power {
            computer.cut_power(&mut self.random)?;
            self.count("power cut");
        } else {
            computer.kill();
            self.count("kill");
        }
        if power && !self.flushes_each() {
            let mut out = Vec::new();
            self.controller.died(id, &mut out);
            self.send_all(out);
        }
        let longest_ms = if self.random.percent(50) { 150 } else { 2500 };
        let down_ms = if self.healed { 10 } else { self.random.between(20, longest_ms) };
        self.after(down_ms, Happening::Boot(id));
        Ok(())
    }

    /// Takes a broker's disk away, where somebody else has all that was on it.
    fn wipe(&mut self, id: BrokerId) -> Result<()> {
        let saved = self.controller.partitions().iter().all(|partition| {
            let safe: Vec<_> =
                partition.in_sync_replicas.iter().chain(&partition.eligible_leader_replicas).copied().collect();
            let others: Vec<_> = safe.iter().chain(&partition.crashed_replicas).filter(|other| **other != id).collect();
            let kept = self.flushes_each() && self.controller.min_insync_replicas() > 1;
            let none_lost = others.iter().all(|other| self.has_its_disk(**other));
            (!safe.contains(&id) && !partition.crashed_replicas.contains(&id))
                || safe.iter().any(|other| *other != id && self.controller.is_live(*other))
                || (kept && !others.is_empty() && none_lost)
        });
        let Some(computer) = self.computers.get_mut(&id).filter(|_| saved) else { return Ok(()) };
        computer.wipe()?;
        self.count("disk lost");
        let mut out = Vec::new();
        self.controller.died(id, &mut out);
        self.send_all(out);
        let down_ms = self.random.between(20, 1500);
        self.after(down_ms, Happening::Boot(id));
        Ok(())
    }

    /// The moment at which most depends on order: a change of the ISR is on its way. It may take long, and who is to enter may crash or lose
    /// sight of the leader. Gives the delay.
    pub(crate) fn meddle(&mut self, message: &Message) -> i64 {
        let Message::Propose { proposal, .. } = message else { return 0 };
        if self.healed {
            return 0;
        }
        let late = self.random.percent(30);
        if let Some((id, _)) = proposal.in_sync_replicas.iter().find(|(_, broker_epoch)| broker_epoch.is_some()) {
            if self.random.percent(15) {
                let soon_ms = self.random.between(0, 50);
                self.after(soon_ms, Happening::Crash(*id));
            } else if late && self.random.percent(50) {
                let (one, other) = (Node::Broker(*id), Node::Broker(proposal.leader));
                self.cut(BTreeSet::from([(one, other), (other, one)]));
                self.count("cut off a new member");
            }
        }
        if late { self.random.between(100, 4000) } else { 0 }
    }

    /// The disk that the controller knows is still there.
    fn has_its_disk(&self, id: BrokerId) -> bool {
        self.computers.get(&id).is_some_and(|computer| self.controller.knows(id, computer.directory_id()))
    }

    /// Every partition that counts on this broker has another live in-sync replica.
    fn others_have_all(&self, id: BrokerId) -> bool {
        let partitions = self.controller.partitions();
        partitions.iter().filter(|partition| partition.in_sync_replicas.contains(&id)).all(|partition| {
            let mut others = partition.in_sync_replicas.iter().filter(|other| **other != id);
            others.any(|other| self.controller.is_live(*other))
        })
    }

    fn fail_soon(&mut self, id: BrokerId) {
        let (operations, short_bytes) = (self.random.below(40), self.random.below(200));
        let Some(computer) = self.computers.get_mut(&id).filter(|computer| computer.process.is_some()) else { return };
        computer.fail_after(operations, usize::try_from(short_bytes).unwrap_or(0));
        self.count("crash in an operation");
    }

    fn stop(&mut self, id: BrokerId) -> Result<()> {
        let Some(computer) = self.computers.get_mut(&id) else { return Ok(()) };
        let Some(process) = &computer.process else { return Ok(()) };
        let stopped = process.stop();
        if computer.is_failing() || (stopped.is_err() && computer.is_full()) {
            return self.crash(id);
        }
        stopped?;
        computer.kill();
        self.count("stop in order");
        let down_ms = self.random.between(20, 1500);
        self.after(down_ms, Happening::Boot(id));
        Ok(())
    }

    fn cut(&mut self, links: BTreeSet<(Node, Node)>) {
        self.cut.extend(&links);
        let cut_ms = self.random.between(100, 3000);
        self.after(cut_ms, Happening::Mend(links));
    }

    /// Cuts a broker off: from everybody, from the controller, or from all but the controller; in one direction or both.
    fn isolate(&mut self, id: BrokerId) {
        let node = Node::Broker(id);
        let brokers = self.computers.keys().map(|id| Node::Broker(*id)).filter(|other| *other != node);
        let others: Vec<_> = match self.random.below(3) {
            0 => brokers.chain([Node::Controller, Node::Clients]).collect(),
            1 => vec![Node::Controller],
            _ => brokers.collect(),
        };
        let direction = self.random.below(3);
        let mut links = BTreeSet::new();
        for other in others {
            links.extend((direction != 0).then_some((node, other)));
            links.extend((direction != 1).then_some((other, node)));
        }
        self.cut(links);
        self.count("isolate a broker");
    }

    fn cut_one(&mut self, id: BrokerId) {
        let ids: Vec<_> = self.computers.keys().copied().filter(|other| *other != id).collect();
        let Some(other) = self.random.pick(&ids).copied() else { return };
        let (one, other) = (Node::Broker(id), Node::Broker(other));
        let mut links = BTreeSet::from([(one, other)]);
        links.extend(self.random.percent(50).then_some((other, one)));
        self.cut(links);
        self.count("cut a link");
    }

    /// Fills a broker's disk, until its process ends or somebody makes room.
    fn fill(&mut self, id: BrokerId) {
        let (short_bytes, no_files) = (self.random.below(300), self.random.percent(50));
        let full_ms = self.random.between(100, 4000);
        let Some(computer) = self.computers.get_mut(&id).filter(|computer| computer.process.is_some()) else { return };
        computer.fill(usize::try_from(short_bytes).unwrap_or(0), no_files);
        let life = computer.life;
        self.after(full_ms, Happening::Room(id, life));
        self.count("full disk");
    }

    fn pause(&mut self, id: BrokerId) {
        let until_ms = self.now_ms + self.random.between(100, 3000);
        let Some(computer) = self.computers.get_mut(&id).filter(|computer| computer.process.is_some()) else { return };
        computer.paused_until_ms = until_ms;
        self.count("pause a process");
    }

    fn jump(&mut self, id: BrokerId) {
        let by_ms = self.random.between(-20_000, 20_000);
        self.computers.entry(id).and_modify(|computer| computer.skew_ms += by_ms);
        self.count("clock jump");
    }

    fn jump_controller(&mut self) {
        self.controller_skew_ms += self.random.between(-3000, 5000);
        self.count("controller's clock jump");
    }

    fn delete_records(&mut self, id: BrokerId) -> Result<()> {
        let index = usize::try_from(self.random.below(self.shadows.len() as u64))?;
        let fraction = self.random.between(0, 100);
        let Some(partition) = self.hosted(id, index).filter(|partition| leads(partition)) else { return Ok(()) };
        let offsets = partition.offsets();
        let before = offsets.log_start.0 + (offsets.high_watermark.0 - offsets.log_start.0) * fraction / 100;
        self.act(id, |process, now, _, _| {
            process.hosted[&index].partition.delete_records(Some(Offset(before)), now.clock_ms)?;
            Ok(())
        })?;
        self.count("delete records");
        Ok(())
    }

    /// All faults end; what is down comes back.
    pub(crate) fn heal(&mut self) -> Result<()> {
        self.trace(|| "heal".to_owned());
        self.healed = true;
        self.cut.clear();
        self.loss_percent = 0;
        let ids: Vec<_> = self.computers.keys().copied().collect();
        for id in ids {
            if self.computers.get(&id).is_some_and(|computer| computer.is_failing()) {
                self.crash(id)?;
            }
            if let Some(computer) = self.computers.get_mut(&id) {
                computer.paused_until_ms = 0;
                computer.mend();
            }
            self.after(1, Happening::Boot(id));
        }
        Ok(())
    }
}
