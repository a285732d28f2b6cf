//! Producers. Plain ones send each value once, to whoever is thought to lead. Idempotent ones send a batch again, with the same sequence,
//! until somebody acknowledges it. What is acknowledged for all in-sync replicas is a promise.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use bytes::Bytes;
use forebay_broker_wire::{
    records::{BatchBuilder, NewRecord},
    types::{BrokerId, ProducerEpoch, ProducerId},
};

use crate::{
    hosting::EPOCH_MS,
    message::{Envelope, Message, Node},
    world::{Happening, World},
};

/// An idempotent producer sends again after so long without an answer.
const RETRY_MS: i64 = 300;

/// How the values of idempotent producers begin: each may be in a log only once, and in order.
pub(crate) const ONCE: &str = "once";

/// Requests under way, and who made them.
#[derive(Debug)]
pub(crate) struct Clients {
    requests: u64,
    waiting: BTreeMap<u64, Request>,
    idempotent: Vec<Idempotent>,
}

#[derive(Debug)]
struct Request {
    partition: usize,
    values: Vec<String>,
    /// Of `acks=1` nothing is expected.
    all: bool,
    /// Which idempotent producer, and the sequence of its batch.
    of: Option<(usize, i32)>,
}

/// An idempotent producer with one batch at a time.
#[derive(Debug)]
struct Idempotent {
    partition: usize,
    sequence: i32,
    batch: Option<(Vec<String>, Bytes)>,
    sent_ms: i64,
}

impl Clients {
    pub(crate) fn new(partitions: usize) -> Self {
        let new = |partition| Idempotent { partition, sequence: 0, batch: None, sent_ms: 0 };
        Self { requests: 0, waiting: BTreeMap::new(), idempotent: (0..partitions).map(new).collect() }
    }
}

impl World {
    pub(crate) fn produce(&mut self) -> Result<()> {
        if self.healed {
            return Ok(());
        }
        if self.random.percent(60) {
            self.produce_once()?;
        }
        for producer in 0..self.clients.idempotent.len() {
            self.produce_until_acknowledged(producer)?;
        }
        let pause_ms = self.random.between(3, 40);
        self.after(pause_ms, Happening::Produce);
        Ok(())
    }

    fn produce_once(&mut self) -> Result<()> {
        let partition = usize::try_from(self.random.below(self.shadows.len() as u64))?;
        let number = self.clients.requests + 1;
        let values: Vec<_> = (0..self.random.between(1, 4)).map(|n| format!("request {number} value {n}")).collect();
        let all = self.random.percent(80);
        let records = self.batch(BatchBuilder::default(), &values)?;
        self.request(Request { partition, values, all, of: None }, records);
        Ok(())
    }

    fn produce_until_acknowledged(&mut self, index: usize) -> Result<()> {
        let Idempotent { partition, sequence, batch, sent_ms } = &self.clients.idempotent[index];
        let (partition, sequence) = (*partition, *sequence);
        let (values, records) = match batch {
            Some(_) if self.now_ms < sent_ms + RETRY_MS => return Ok(()),
            Some((values, records)) => (values.clone(), records.clone()),
            None => {
                let count = i32::try_from(self.random.between(1, 3))?;
                let values: Vec<_> = (sequence..sequence + count).map(|n| format!("{ONCE} {n:06}")).collect();
                let id = ProducerId(i64::try_from(index)? + 1);
                let builder = BatchBuilder::default().producer(id, ProducerEpoch(0), sequence);
                let records = self.batch(builder, &values)?;
                (values, records)
            }
        };
        let producer = &mut self.clients.idempotent[index];
        (producer.batch, producer.sent_ms) = (Some((values.clone(), records.clone())), self.now_ms);
        self.request(Request { partition, values, all: true, of: Some((index, sequence)) }, records);
        Ok(())
    }

    fn batch(&self, mut builder: BatchBuilder, values: &[String]) -> Result<Bytes> {
        for value in values {
            let timestamp_ms = EPOCH_MS + self.now_ms;
            builder.push(&NewRecord { timestamp_ms, value: Some(value.as_bytes()), ..NewRecord::default() })?;
        }
        Ok(builder.build()?)
    }

    fn request(&mut self, request: Request, records: Bytes) {
        self.clients.requests += 1;
        let (number, partition, all) = (self.clients.requests, request.partition, request.all);
        self.clients.waiting.insert(number, request);
        let to = self.leader_or_guess(partition);
        let message = Message::Produce { number, partition, records, all };
        self.send_all(vec![Envelope { from: Node::Clients, to: Node::Broker(to), to_life: None, message }]);
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
        if let Some((index, sequence)) = request.of
            && let Some(producer) = self.clients.idempotent.get_mut(index)
            && producer.sequence == sequence
        {
            match result {
                Ok(_) => {
                    producer.sequence += i32::try_from(request.values.len())?;
                    producer.batch = None;
                }
                Err(_) => producer.sent_ms -= RETRY_MS - 50, // again soon
            }
        }
        if let (Ok(base), true) = (result, request.all) {
            let shadow = &mut self.shadows[request.partition];
            shadow.acknowledged(base, &request.values).map_err(|fault| anyhow!(fault))?;
        }
        Ok(())
    }
}
