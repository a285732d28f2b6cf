//! The group machine's behaviour, as scenes: members act, time passes, answers are looked at.
//!
//! `Scene` checks by itself what must always hold: a token is answered once, and a machine rebuilt from the records
//! knows the same offsets and the same stable groups.

mod joining;
mod offsets;
mod random;
mod restart;
mod static_members;
mod timeouts;

use bytes::Bytes;
use forebay_broker_wire::types::{LeaderEpoch, Offset, PartitionIndex, Uuid};
use std::collections::HashMap;

use super::subscription::encode_subscription;
use super::*;

pub(super) const SESSION_MS: i64 = 10_000;
pub(super) const REBALANCE_MS: i64 = 60_000;

pub(super) struct Scene {
    pub(super) machine: GroupMachine,
    pub(super) now_ms: i64,
    pub(super) log: Vec<Record>,
    replies: HashMap<RequestToken, Reply>,
    answered: usize,
    next_token: u64,
}

/// A member as its client sees itself.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) id: MemberId,
    pub(super) instance: Option<InstanceId>,
    pub(super) generation: i32,
    pub(super) protocols: Vec<Protocol>,
    pub(super) knows_ids: bool,
}

pub(super) fn protocol(name: &str, topics: &[&str]) -> Protocol {
    Protocol { name: name.into(), metadata: encode_subscription(topics) }
}

pub(super) fn client(name: &'static str) -> Client {
    Client {
        name,
        id: "".into(),
        instance: None,
        generation: -1,
        protocols: vec![protocol("range", &["t"])],
        knows_ids: false,
    }
}

pub(super) fn static_client(name: &'static str, instance: &str) -> Client {
    Client { instance: Some(instance.into()), ..client(name) }
}

impl Client {
    pub(super) fn caller(&self) -> Caller {
        Caller { member_id: self.id.clone(), instance_id: self.instance.clone(), generation: self.generation }
    }

    pub(super) fn with_protocols(mut self, protocols: Vec<Protocol>) -> Self {
        self.protocols = protocols;
        self
    }
}

impl Scene {
    /// No initial delay, unless the scene is about it.
    pub(super) fn new() -> Self {
        Self::with(GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() })
    }

    pub(super) fn with(config: GroupConfig) -> Self {
        let mut machine = GroupMachine::new(config);
        let outcome = machine.loaded(at(1_000));
        assert_eq!(outcome, Outcome::default());
        Self { machine, now_ms: 1_000, log: Vec::new(), replies: HashMap::new(), answered: 0, next_token: 0 }
    }

    fn take(&mut self, outcome: Outcome) {
        self.log.extend(outcome.records);
        for (token, reply) in outcome.replies {
            assert!(token.0 < self.next_token, "{token:?} was never given");
            self.answered += 1;
            assert!(self.replies.insert(token, reply).is_none(), "{token:?} is answered twice");
        }
        self.check_log();
    }

    /// A machine rebuilt from the log has the same offsets, and the same stable and empty groups.
    fn check_log(&self) {
        let rebuilt = self.rebuilt();
        let mut ids: Vec<_> = rebuilt.groups.keys().chain(self.machine.groups.keys()).collect();
        ids.sort();
        ids.dedup();
        for id in ids {
            let offsets =
                |machine: &GroupMachine| machine.fetch_offsets(&FetchOffsets { group: id.clone(), topics: None });
            assert_eq!(offsets(&rebuilt), offsets(&self.machine), "offsets of {id}");
            let lives = self.machine.groups.get(id).filter(|group| group.generation > 0);
            let at_rest = |group: &&Group| matches!(group.state, GroupState::Stable | GroupState::Empty);
            if let Some(group) = lives.filter(at_rest) {
                let restored = rebuilt.groups.get(id).map(Group::metadata);
                assert_eq!(restored, Some(group.metadata()), "{id} is at rest");
            }
        }
    }

    pub(super) fn rebuilt(&self) -> GroupMachine {
        let mut machine = GroupMachine::new(self.machine.config.clone());
        for record in &self.log {
            machine.replay(record.clone());
        }
        machine
    }

    /// The broker dies and another reads the log.
    pub(super) fn restart(&mut self) {
        self.machine = self.rebuilt();
        let outcome = self.machine.loaded(at(self.now_ms));
        self.take(outcome);
    }

    pub(super) fn send(&mut self, command: Command) -> RequestToken {
        let token = RequestToken(self.next_token);
        self.next_token += 1;
        let outcome = self.machine.handle(token, command, at(self.now_ms));
        self.take(outcome);
        token
    }

    pub(super) fn ask(&mut self, command: Command) -> Reply {
        let token = self.send(command);
        self.reply(token).expect("an answer at once")
    }

    pub(super) fn reply(&mut self, token: RequestToken) -> Option<Reply> {
        self.replies.remove(&token)
    }

    /// Time passes, in steps as the shell would take them.
    pub(super) fn pass(&mut self, duration_ms: i64) {
        let end_ms = self.now_ms + duration_ms;
        while let Some(deadline_ms) = self.machine.next_deadline_ms().filter(|deadline_ms| *deadline_ms <= end_ms) {
            self.now_ms = self.now_ms.max(deadline_ms);
            let outcome = self.machine.tick(at(self.now_ms));
            self.take(outcome);
            let next_ms = self.machine.next_deadline_ms();
            assert!(next_ms.is_none_or(|next_ms| next_ms > self.now_ms), "a deadline that came must not come again");
        }
        self.now_ms = end_ms;
    }

    pub(super) fn join_request(&self, client: &Client) -> Join {
        Join {
            group: "g".into(),
            member_id: client.id.clone(),
            new_member_id: format!("{}-{}", client.name, self.next_token).as_str().into(),
            instance_id: client.instance.clone(),
            client_id: client.name.into(),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: SESSION_MS.try_into().unwrap(),
            rebalance_timeout_ms: REBALANCE_MS.try_into().unwrap(),
            protocol_type: "consumer".into(),
            protocols: client.protocols.clone(),
            requires_known_member_id: client.knows_ids,
            supports_skip_assignment: client.knows_ids,
        }
    }

    pub(super) fn join(&mut self, client: &Client) -> RequestToken {
        let request = self.join_request(client);
        self.send(Command::Join(request))
    }

    pub(super) fn joined(&mut self, token: RequestToken, client: &mut Client) -> Joined {
        match self.reply(token) {
            Some(Reply::Join(Ok(joined))) => {
                client.id = joined.member_id.clone();
                client.generation = joined.generation;
                joined
            }
            other => panic!("{} should have joined: {other:?}", client.name),
        }
    }

    pub(super) fn refused(&mut self, token: RequestToken) -> GroupError {
        match self.reply(token) {
            Some(Reply::Join(Err(refusal))) => refusal.error,
            Some(Reply::Sync(Err(error))) => error,
            other => panic!("should have been refused: {other:?}"),
        }
    }

    pub(super) fn sync(&mut self, client: &Client, assignments: &[(&Client, &str)]) -> RequestToken {
        let assignments = assignments
            .iter()
            .map(|(member, what)| (member.id.clone(), Bytes::copy_from_slice(what.as_bytes())))
            .collect();
        let caller = client.caller();
        let request = Sync { group: "g".into(), caller, protocol_type: None, protocol_name: None, assignments };
        self.send(Command::Sync(request))
    }

    pub(super) fn assignment(&mut self, token: RequestToken) -> Bytes {
        match self.reply(token) {
            Some(Reply::Sync(Ok(synced))) => synced.assignment,
            other => panic!("should have an assignment: {other:?}"),
        }
    }

    pub(super) fn heartbeat(&mut self, client: &Client) -> Result<(), GroupError> {
        let request = Heartbeat { group: "g".into(), caller: client.caller() };
        match self.ask(Command::Heartbeat(request)) {
            Reply::Heartbeat(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn leave(&mut self, member: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let members = vec![(member.into(), instance.map(Into::into))];
        match self.ask(Command::Leave(Leave { group: "g".into(), members })) {
            Reply::Leave(Ok(left)) => left[0].result.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn commit_as(&mut self, caller: Caller, offset: i64, metadata: &str) -> Result<(), GroupError> {
        let request = CommitOffsets {
            group: "g".into(),
            caller,
            retention_ms: None,
            topics: vec![topic_commit("t", 1, offset, metadata)],
        };
        match self.ask(Command::CommitOffsets(request)) {
            Reply::CommitOffsets(result) => result.and_then(|topics| topics[0].1[0].1.clone()),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn committed(&mut self) -> Option<CommittedOffset> {
        let topics = Some(vec![("t".into(), vec![PartitionIndex(1)])]);
        match self.ask(Command::FetchOffsets(FetchOffsets { group: "g".into(), topics })) {
            Reply::FetchOffsets(topics) => topics[0].1[0].1.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn state(&mut self) -> GroupState {
        match self.ask(Command::Describe { group: "g".into() }) {
            Reply::Describe(Ok(description)) => description.state,
            Reply::Describe(Err(_)) => GroupState::Dead,
            other => panic!("{other:?}"),
        }
    }

    /// Brings `clients` into a stable group; the first who joins leads.
    pub(super) fn settle(&mut self, clients: &mut [Client]) {
        let mut waits: Vec<Option<RequestToken>> = vec![None; clients.len()];
        let mut leader = None;
        for _ in 0..10 {
            for (client, waits) in clients.iter().zip(&mut waits) {
                *waits = waits.or_else(|| Some(self.join(client)));
            }
            for (client, waits) in clients.iter_mut().zip(&mut waits) {
                if let Some(reply) = waits.and_then(|token| self.reply(token)) {
                    let Reply::Join(Ok(joined)) = reply else { panic!("{} should join: {reply:?}", client.name) };
                    client.id = joined.member_id;
                    client.generation = joined.generation;
                    leader = Some(joined.leader);
                    *waits = None;
                }
            }
            if waits.iter().all(Option::is_none) && clients.iter().all(|c| c.generation == clients[0].generation) {
                break;
            }
        }
        let leader = leader.expect("somebody leads");
        let clients = &*clients;
        let assignments: Vec<_> = clients.iter().map(|client| (client, client.name)).collect();
        let tokens: Vec<_> = clients
            .iter()
            .map(|client| self.sync(client, if client.id == leader { &assignments } else { &[] }))
            .collect();
        for (token, client) in tokens.into_iter().zip(clients) {
            assert_eq!(self.assignment(token), client.name);
        }
        assert_eq!(self.state(), GroupState::Stable);
    }
}

pub(super) fn topic_commit(topic: &str, partition: i32, offset: i64, metadata: &str) -> TopicCommit {
    TopicCommit {
        topic: topic.into(),
        topic_id: Uuid([7; 16]),
        partitions: vec![PartitionCommit {
            partition: PartitionIndex(partition),
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(3),
            metadata: metadata.into(),
        }],
    }
}

/// In scenes both clocks show the same, but for a date.
fn at(now_ms: i64) -> Now {
    Now { timer_ms: now_ms, wall_ms: now_ms }
}

pub(super) fn nobody() -> Caller {
    Caller { member_id: "".into(), instance_id: None, generation: -1 }
}
