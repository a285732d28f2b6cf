//! One group: its state, members and committed offsets, and the questions that every command asks of it.
//!
//! The state changes only in `rebalance.rs`, `sync.rs` and `restore` here. A group with members always has a leader
//! among them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::command::{Caller, Protocol, Reply, RequestToken};
use super::config::GroupConfig;
use super::error::GroupError;
use super::ids::{GroupId, InstanceId, MemberId, TopicName};
use super::members::{Member, Members};
use super::offsets::Offsets;
use super::record::{GroupMetadata, Record};
use super::subscription::{CONSUMER_PROTOCOL_TYPE, subscribed_topics};
use super::timers::{Timer, Timers};
use super::{Now, Outcome};

/// Where a group is in its life. `Dead` is only ever reported, of groups that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupState {
    /// No members; may hold offsets.
    Empty,
    /// Waiting for the members to join.
    PreparingRebalance,
    /// Members have joined; waiting for the leader's assignment.
    CompletingRebalance,
    /// Every member has, or can have, its assignment.
    Stable,
    /// Does not exist.
    Dead,
}

impl GroupState {
    /// Kafka's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// Everything one command may use and produce, besides the group itself.
pub(super) struct Step<'a> {
    pub(super) config: &'a GroupConfig,
    pub(super) timers: &'a mut Timers,
    pub(super) outcome: &'a mut Outcome,
    pub(super) now: Now,
}

impl Step<'_> {
    pub(super) fn reply(&mut self, token: RequestToken, reply: Reply) {
        self.outcome.replies.push((token, reply));
    }

    pub(super) fn record(&mut self, record: Record) {
        self.outcome.records.push(record);
    }
}

/// The waiting for joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinPhase {
    pub(super) deadline_ms: i64,
    /// Set in the first rebalance of an empty group, which does not end early.
    pub(super) initial: Option<InitialDelay>,
}

/// How much longer an empty group's first rebalance may be put off when still more members come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InitialDelay {
    pub(super) remaining_ms: i64,
    pub(super) newcomer: bool,
}

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) state: GroupState,
    pub(super) state_timestamp_ms: Option<i64>,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<Arc<str>>,
    pub(super) protocol_name: Option<Arc<str>>,
    pub(super) leader: Option<MemberId>,
    pub(super) members: Members,
    /// Ids given out with `MemberIdRequired` and not yet joined, with the time until which they hold a place.
    pub(super) pending_joins: HashMap<MemberId, i64>,
    /// Members that owe a sync in this generation.
    pub(super) pending_syncs: HashSet<MemberId>,
    pub(super) join_phase: Option<JoinPhase>,
    pub(super) sync_deadline_ms: Option<i64>,
    pub(super) offsets: Offsets,
}

impl Group {
    pub(super) fn new(id: GroupId) -> Self {
        Self {
            id,
            state: GroupState::Empty,
            state_timestamp_ms: None,
            generation: 0,
            protocol_type: None,
            protocol_name: None,
            leader: None,
            members: Members::default(),
            pending_joins: HashMap::new(),
            pending_syncs: HashSet::new(),
            join_phase: None,
            sync_deadline_ms: None,
            offsets: Offsets::default(),
        }
    }

    /// Takes the state of a record; offsets are records of their own.
    pub(super) fn restore(&mut self, metadata: &GroupMetadata) {
        let id = self.id.clone();
        let offsets = std::mem::take(&mut self.offsets);
        *self = Self::new(id);
        self.offsets = offsets;
        self.generation = metadata.generation;
        self.protocol_type = Some(metadata.protocol_type.clone()).filter(|kind| !kind.is_empty());
        self.protocol_name = metadata.protocol_name.clone();
        self.leader = metadata.leader.clone();
        self.state_timestamp_ms = Some(metadata.state_timestamp_ms).filter(|timestamp_ms| *timestamp_ms >= 0);
        for member in &metadata.members {
            self.members.insert(Member::restored(member, self.protocol_name.as_ref()));
        }
        self.state = if self.members.is_empty() { GroupState::Empty } else { GroupState::Stable };
    }

    /// The group as its record says it.
    pub(super) fn metadata(&self) -> GroupMetadata {
        let protocol_name = self.protocol_name.as_deref().unwrap_or_default();
        GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone(),
            state_timestamp_ms: self.state_timestamp_ms.unwrap_or(-1),
            members: self.members.iter().map(|member| member.record(protocol_name)).collect(),
        }
    }

    pub(super) fn record_metadata(&self, step: &mut Step<'_>) {
        step.record(Record::GroupMetadata { group: self.id.clone(), value: Some(self.metadata()) });
    }

    pub(super) fn enter(&mut self, state: GroupState, step: &Step<'_>) {
        self.state = state;
        self.state_timestamp_ms = Some(step.now.wall_ms);
    }

    /// True when forgetting the group loses nothing, durable or not: a refused command made it.
    pub(super) fn is_vacant(&self) -> bool {
        self.state == GroupState::Empty
            && self.generation == 0
            && self.state_timestamp_ms.is_none()
            && self.pending_joins.is_empty()
            && self.offsets.is_empty()
    }

    pub(super) fn is_leader(&self, member: &MemberId) -> bool {
        self.leader.as_ref() == Some(member)
    }

    /// Whether a member with these protocols could be in the group.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if protocol_type.is_empty() || protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|protocol| self.members.all_support(&protocol.name))
    }

    /// Each member votes for the first of its protocols that all support; most votes win, and among equals the one that
    /// the leader prefers.
    pub(super) fn select_protocol(&self) -> Option<Arc<str>> {
        let mut votes: HashMap<&Arc<str>, usize> = HashMap::new();
        for member in self.members.iter() {
            let vote = member.protocols.iter().find(|protocol| self.members.all_support(&protocol.name));
            *votes.entry(&vote?.name).or_default() += 1;
        }
        let most = votes.values().copied().max()?;
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        let preference = leader.into_iter().chain(self.members.iter()).flat_map(|member| &member.protocols);
        preference.map(|protocol| &protocol.name).find(|name| votes.get(name) == Some(&most)).cloned()
    }

    /// The longest time that a member asks for to come back into a rebalance.
    pub(super) fn rebalance_timeout_ms(&self) -> i64 {
        self.members.iter().map(|member| i64::from(member.rebalance_timeout_ms.max(0))).max().unwrap_or(0)
    }

    /// Topics that the members read, or `None` when the group isn't one of consumers or says so illegibly.
    pub(super) fn subscribed_topics(&self) -> Option<BTreeSet<TopicName>> {
        if self.protocol_type.as_deref() != Some(CONSUMER_PROTOCOL_TYPE) || self.members.is_empty() {
            return None;
        }
        let chosen = self.protocol_name.as_deref();
        let mut topics = BTreeSet::new();
        for member in self.members.iter() {
            let protocol = match chosen {
                Some(name) => member.protocols.iter().find(|protocol| &*protocol.name == name),
                None => member.protocols.first(),
            };
            topics.extend(subscribed_topics(&protocol?.metadata)?);
        }
        Some(topics)
    }

    /// That the caller is the member it says it is.
    pub(super) fn check_member(&self, id: &MemberId, instance: Option<&InstanceId>) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            match self.members.static_id(instance) {
                None => return Err(GroupError::UnknownMember { member: id.clone() }),
                Some(current) if current != id => {
                    return Err(GroupError::FencedInstance { instance: instance.clone(), member: id.clone() });
                }
                Some(_) => {}
            }
        }
        if self.members.contains(id) { Ok(()) } else { Err(GroupError::UnknownMember { member: id.clone() }) }
    }

    /// That the caller is a member and of the current generation.
    pub(super) fn check_caller(&self, caller: &Caller) -> Result<(), GroupError> {
        self.check_member(&caller.member_id, caller.instance_id.as_ref())?;
        if caller.generation == self.generation {
            Ok(())
        } else {
            Err(GroupError::IllegalGeneration { given: caller.generation, current: self.generation })
        }
    }

    /// The member was heard of: it lives for another session timeout.
    pub(super) fn refresh_session(&mut self, id: &MemberId, step: &mut Step<'_>) {
        if let Some(member) = self.members.get_mut(id) {
            member.deadline_ms = step.now.timer_ms + i64::from(member.session_timeout_ms);
            step.timers.arm(Timer::Member(self.id.clone(), id.clone()), member.deadline_ms);
        }
    }
}
