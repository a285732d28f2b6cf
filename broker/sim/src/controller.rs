//! The controller: one process that never fails in the quorum's place. Its decisions are those of `machines::metadata`; its sessions
//! are by its own clock.

use std::{collections::BTreeMap, sync::Arc};

use forebay_broker_machines::{
    metadata::{
        AlterPartitionError, AlteredPartition, BrokerImage, BrokerLife, BrokerRecord, BrokerRegistration, Command,
        ConfigRules, Context, ElectionRules, Inability, MetadataImage, NewTopic, PartitionImage, PartitionProposal,
        Record, Reply, UnableReplicas, decide,
    },
    replication::{IsrAnswer, IsrProposal},
};
use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};

use crate::broker::{FIRST_DISK, directory_id};
use crate::message::{Envelope, Message, Node};

pub(crate) const TOPIC: &str = "records";
pub(crate) const CLUSTER_ID: &str = "c2ltdWxhdGVkLWNsdXN0ZXI";
pub(crate) const TOPIC_ID: Uuid = Uuid([7; 16]);

/// What the controller remembers of a broker.
#[derive(Debug)]
struct Session {
    broker_epoch: i64,
    incarnation: u64,
    heard_ms: i64,
    /// Only another registration counts.
    ended: bool,
    /// Its disk takes no records.
    full: bool,
}

#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) image: Arc<MetadataImage>,
    sessions: BTreeMap<BrokerId, Session>,
    rules: ElectionRules,
    session_timeout_ms: i64,
}

impl Controller {
    pub(crate) fn new(brokers: &[BrokerId], partitions: i32, session_timeout_ms: i64, rules: ElectionRules) -> Self {
        let image = Arc::new(MetadataImage::default());
        let mut controller = Self { image, sessions: BTreeMap::new(), rules, session_timeout_ms };
        for id in brokers {
            let broker_epoch = controller.register(*id, directory_id(*id, FIRST_DISK));
            controller.decide(&Command::UnfenceBroker(BrokerLife { broker_id: *id, broker_epoch }));
            let session = Session { broker_epoch, incarnation: 0, heard_ms: i64::MIN, ended: false, full: false };
            controller.sessions.insert(*id, session);
        }
        let replication_factor = i16::try_from(brokers.len().min(3)).ok();
        let name = TOPIC.to_owned();
        let topic = NewTopic { name, partitions: Some(partitions), replication_factor, ..NewTopic::default() };
        controller.decide(&Command::CreateTopics { topics: vec![topic], validate_only: false });
        // The topic is as it would be, and nobody has started yet.
        let brokers: Vec<_> = controller.image.brokers().map(BrokerImage::to_record).collect();
        for record in brokers {
            controller.apply(&Record::Broker(BrokerRecord { fenced: true, ..record }));
        }
        controller
    }

    fn decide(&mut self, command: &Command) -> Reply {
        let rules = self.rules;
        let mut context = Context {
            new_id: &mut || TOPIC_ID,
            rules: ConfigRules { check: &|_, _| Ok(()), list: &|_, _| None },
            elections: &|_, _| rules,
            default_partitions: 1,
            default_replication_factor: 1,
        };
        let outcome = decide(&self.image, command, &mut context);
        for record in &outcome.records {
            self.apply(record);
        }
        outcome.reply
    }

    fn apply(&mut self, record: &Record) {
        Arc::make_mut(&mut self.image).apply(record).expect("what the controller decides fits its image");
    }

    fn register(&mut self, broker_id: BrokerId, directory: Uuid) -> i64 {
        let (cluster_id, directories) = (CLUSTER_ID.to_owned(), vec![directory]);
        let registration = BrokerRegistration { broker_id, cluster_id, directories, ..BrokerRegistration::default() };
        match self.decide(&Command::RegisterBroker(registration)) {
            Reply::Registered(Ok(broker_epoch)) => broker_epoch,
            reply => unreachable!("registration was answered with {reply:?}"),
        }
    }

    pub(crate) fn partitions(&self) -> Vec<PartitionImage> {
        self.image.topic(TOPIC).map(|topic| topic.partitions.clone()).unwrap_or_default()
    }

    pub(crate) fn min_insync_replicas(&self) -> usize {
        self.rules.min_insync_replicas
    }

    /// It was this disk that the broker had when it registered last.
    pub(crate) fn knows(&self, id: BrokerId, directory: Uuid) -> bool {
        self.image.broker(id).is_some_and(|broker| broker.directories.contains(&directory))
    }

    pub(crate) fn is_live(&self, id: BrokerId) -> bool {
        self.image.may_lead(id)
    }

    /// Takes a broker out at once, as when its connection breaks and nobody answers at its address. Its registration ends with it: a
    /// heartbeat that was under way must not bring back a process that is no more.
    pub(crate) fn died(&mut self, id: BrokerId, out: &mut Vec<Envelope>) {
        self.fence(id, out);
        self.sessions.entry(id).and_modify(|session| session.ended = true);
    }

    fn fence(&mut self, id: BrokerId, out: &mut Vec<Envelope>) {
        let version = self.image.version();
        if let Some(Session { broker_epoch, .. }) = self.sessions.get(&id) {
            self.decide(&Command::FenceBroker(BrokerLife { broker_id: id, broker_epoch: *broker_epoch }));
        }
        self.publish(version, out);
    }

    /// Fences who was not heard of for too long.
    pub(crate) fn check_sessions(&mut self, now_ms: i64, out: &mut Vec<Envelope>) {
        let silent = |session: &Session| now_ms.saturating_sub(session.heard_ms) > self.session_timeout_ms;
        let over: Vec<_> =
            self.sessions.iter().filter(|(id, s)| self.is_live(**id) && silent(s)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.fence(id, out));
    }

    fn publish(&self, before: i64, out: &mut Vec<Envelope>) {
        if self.image.version() > before {
            for id in self.sessions.keys() {
                self.send(*id, None, Message::Image(Arc::clone(&self.image)), out);
            }
        }
    }

    fn send(&self, to: BrokerId, to_life: Option<u64>, message: Message, out: &mut Vec<Envelope>) {
        out.push(Envelope { from: Node::Controller, to: Node::Broker(to), to_life, message });
    }

    pub(crate) fn handle(&mut self, from: Node, message: Message, now_ms: i64, out: &mut Vec<Envelope>) {
        let before = self.image.version();
        match message {
            Message::Register { broker, directory, life, incarnation } => {
                self.registers((broker, directory), life, incarnation, now_ms, out);
            }
            Message::Heartbeat { broker, life, broker_epoch, image_version, full } => {
                self.heard((broker, life), (broker_epoch, image_version), full, now_ms, out);
            }
            Message::Propose { life, broker_epoch, number, partition, proposal } => {
                let Node::Broker(broker) = from else { return };
                let answer = self.proposes(broker, broker_epoch, partition, &proposal);
                self.send(broker, Some(life), Message::Proposed { number, answer }, out);
            }
            _ => {}
        }
        self.publish(before, out);
    }

    fn registers(
        &mut self,
        (id, directory): (BrokerId, Uuid),
        life: u64,
        incarnation: u64,
        now_ms: i64,
        out: &mut Vec<Envelope>,
    ) {
        let known = self.sessions.get(&id).filter(|session| !session.ended).map(|session| session.incarnation);
        if known != Some(incarnation) {
            let broker_epoch = self.register(id, directory);
            self.sessions
                .insert(id, Session { broker_epoch, incarnation, heard_ms: now_ms, ended: false, full: false });
        }
        let Some(session) = self.sessions.get(&id) else { return };
        let (broker_epoch, image) = (session.broker_epoch, Arc::clone(&self.image));
        self.send(id, Some(life), Message::Registered { incarnation, broker_epoch, image }, out);
    }

    fn heard(
        &mut self,
        (id, life): (BrokerId, u64),
        (broker_epoch, image_version): (i64, i64),
        full: bool,
        now_ms: i64,
        out: &mut Vec<Envelope>,
    ) {
        let current = |session: &&mut Session| session.broker_epoch == broker_epoch && !session.ended;
        let Some(session) = self.sessions.get_mut(&id).filter(current) else {
            return self.send(id, Some(life), Message::NotRegistered { broker_epoch }, out);
        };
        (session.heard_ms, session.full) = (now_ms, full);
        if image_version > broker_epoch {
            self.decide(&Command::UnfenceBroker(BrokerLife { broker_id: id, broker_epoch }));
        }
        self.relieve_full();
        if image_version < self.image.version() {
            self.send(id, Some(life), Message::Image(Arc::clone(&self.image)), out);
        }
    }

    /// Others lead and stay in sync where a disk takes no records.
    fn relieve_full(&mut self) {
        let full = self.sessions.iter().filter(|(id, session)| session.full && !session.ended && self.is_live(**id));
        let replicas: Vec<_> = full
            .map(|(id, session)| (BrokerLife { broker_id: *id, broker_epoch: session.broker_epoch }, Inability::Full))
            .collect();
        if replicas.is_empty() {
            return;
        }
        let unable = |partition: PartitionImage| UnableReplicas {
            topic_id: TOPIC_ID,
            partition: partition.index,
            replicas: replicas
                .iter()
                .filter(|(life, _)| partition.replicas.contains(&life.broker_id))
                .copied()
                .collect(),
        };
        let partitions = self.partitions().into_iter().map(unable).collect();
        self.decide(&Command::ReplicasUnable { partitions });
    }

    fn proposes(&mut self, id: BrokerId, broker_epoch: i64, partition: usize, proposal: &IsrProposal) -> IsrAnswer {
        if self.sessions.get(&id).is_none_or(|session| session.ended || session.broker_epoch != broker_epoch) {
            return IsrAnswer::Stale;
        }
        let proposer = BrokerLife { broker_id: id, broker_epoch };
        let partition = PartitionIndex(i32::try_from(partition).unwrap_or(i32::MAX));
        let proposal = PartitionProposal { topic_id: TOPIC_ID, partition, proposal: proposal.clone() };
        match self.decide(&Command::AlterPartition { proposer, partitions: vec![proposal] }) {
            Reply::PartitionsAltered(mut results) => answer(results.remove(0)),
            reply => unreachable!("a proposal was answered with {reply:?}"),
        }
    }
}

fn answer(result: Result<AlteredPartition, AlterPartitionError>) -> IsrAnswer {
    match result {
        Ok(AlteredPartition { partition_epoch, in_sync_replicas, may_lead_out_of_sync, .. }) => {
            IsrAnswer::Accepted { partition_epoch, in_sync_replicas, may_lead_out_of_sync }
        }
        Err(AlterPartitionError::Ineligible { .. } | AlterPartitionError::NotReplicas { .. }) => IsrAnswer::Refused,
        Err(_another_state) => IsrAnswer::Stale,
    }
}
