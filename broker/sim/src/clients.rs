//! Producers: each value is sent once, to whoever is thought to lead; what is answered well is a promise.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use forebay_broker_wire::{
    records::{BatchBuilder, NewRecord},
    types::BrokerId,
};

use crate::{
    hosting::EPOCH_MS,
    message::{Envelope, Message, Node},
    world::{Happening, World},
};

/// Requests under way, and what was promised.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    requests: u64,
    waiting: BTreeMap<u64, Request>,
}

#[derive(Debug)]
struct Request {
    partition: usize,
    values: Vec<String>,
    /// Of `acks=1` nothing is expected.
    all: bool,
}

impl World {
    pub(crate) fn produce(&mut self) -> Result<()> {
        if self.healed {
            return Ok(());
        }
        self.clients.requests += 1;
        let number = self.clients.requests;
        let partition = usize::try_from(self.random.below(self.shadows.len() as u64))?;
        let values: Vec<_> = (0..self.random.between(1, 4)).map(|n| format!("request {number} value {n}")).collect();
        let all = self.random.percent(80);
        let mut builder = BatchBuilder::default();
        for value in &values {
            let timestamp_ms = EPOCH_MS + self.now_ms;
            builder.push(&NewRecord { timestamp_ms, value: Some(value.as_bytes()), ..NewRecord::default() })?;
        }
        let records = builder.build()?;
        let to = self.leader_or_guess(partition);
        self.clients.waiting.insert(number, Request { partition, values, all });
        let message = Message::Produce { number, partition, records, all };
        self.send_all(vec![Envelope { from: Node::Clients, to: Node::Broker(to), to_life: None, message }]);
        let pause_ms = self.random.between(3, 40);
        self.after(pause_ms, Happening::Produce);
        Ok(())
    }

    /// Mostly the leader of the metadata; sometimes anybody, as clients with old metadata do.
    fn leader_or_guess(&mut self, partition: usize) -> BrokerId {
        let leader = self.controller.partitions().get(partition).and_then(|image| image.leader);
        let anybody: Vec<_> = self.computers.keys().copied().collect();
        match leader {
            Some(leader) if self.random.percent(80) => leader,
            _ => self.random.pick(&anybody).copied().unwrap_or(BrokerId(1)),
        }
    }

    pub(crate) fn answered(&mut self, message: &Message) -> Result<()> {
        let &Message::Produced { number, result } = message else { return Ok(()) };
        let Some(request) = self.clients.waiting.remove(&number) else { return Ok(()) };
        self.trace(|| format!("request {number} {result:?}"));
        if let (Ok(base), true) = (result, request.all) {
            let shadow = &mut self.shadows[request.partition];
            shadow.acknowledged(base, &request.values).map_err(|fault| anyhow!(fault))?;
        }
        Ok(())
    }
}
