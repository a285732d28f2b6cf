//! The group coordinator's decisions: members, rebalances and committed offsets of the groups in one partition of
//! `__consumer_offsets`.
//!
//! `handle(command, now)` changes the state at once and gives back the records that make the change durable, with the
//! replies that may go out **once those records are committed**. Replies to earlier commands may be among them: joins
//! and syncs wait for other members. `tick(now)` does the same for deadlines; `next_deadline_ms` says when it has work.
//! After a restart, `replay` of all records in log order and then `loaded` give the state back. If records could not be
//! appended the machine must be thrown away and rebuilt from the log: it remembers what did not happen.
//!
//! Always true: replaying every record ever given out yields the same offsets and the same stable groups; each token
//! is answered at most once.

mod command;
mod config;
mod describe;
mod error;
mod group;
mod ids;
mod join;
mod leave;
mod members;
mod offsets;
mod rebalance;
mod record;
mod subscription;
mod sync;
mod timers;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub use command::*;
pub use config::GroupConfig;
pub use error::GroupError;
pub use group::GroupState;
pub use ids::{GroupId, InstanceId, MemberId, TopicName};
pub use record::{GroupMetadata, MemberMetadata, Record};

use group::{Group, Step};
use timers::{Timer, Timers};

/// What follows from a command or a deadline.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// To be appended in this order, all or none.
    pub records: Vec<Record>,
    /// To be sent once everything appended so far is committed.
    pub replies: Vec<(RequestToken, Reply)>,
}

/// The time, as the shell reads it off its two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Never goes back and never jumps: for deadlines, so that setting the date ends no session.
    pub timer_ms: i64,
    /// Since 1970: for what is stored and outlives the process.
    pub wall_ms: i64,
}

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct GroupMachine {
    config: GroupConfig,
    groups: HashMap<GroupId, Group>,
    timers: Timers,
}

impl GroupMachine {
    /// No groups yet.
    pub fn new(config: GroupConfig) -> Self {
        Self { config, groups: HashMap::new(), timers: Timers::default() }
    }

    /// Takes a record from the log. Only before `loaded`.
    pub fn replay(&mut self, record: Record) {
        match record {
            Record::OffsetCommit { group, topic, partition, value } => {
                self.group_or_new(&group).offsets.set(topic, partition, value);
                self.forget_if_vacant(&group);
            }
            Record::GroupMetadata { group, value: Some(metadata) } => self.group_or_new(&group).restore(&metadata),
            Record::GroupMetadata { group, value: None } => {
                self.groups.remove(&group);
            }
        }
    }

    /// All records are replayed: from now on members have to show that they live.
    pub fn loaded(&mut self, now: Now) -> Outcome {
        let mut outcome = Outcome::default();
        let Self { config, groups, timers } = self;
        timers.arm(Timer::Retention, now.timer_ms.saturating_add(config.offsets_retention_check_interval_ms));
        for group in groups.values_mut() {
            let mut step = Step { config, timers, outcome: &mut outcome, now };
            for id in group.members.ids() {
                group.refresh_session(&id, &mut step);
            }
            if group.members.len() > config.max_size {
                group.prepare_rebalance(&mut step);
            }
        }
        outcome
    }

    /// When `tick` has something to do, by the timer clock.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.timers.next_deadline_ms()
    }

    /// Deadlines that have come.
    pub fn tick(&mut self, now: Now) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(timer) = self.timers.pop_due(now.timer_ms) {
            match &timer {
                Timer::Member(group, member) => {
                    self.due(group, &mut outcome, now, |group, step| group.member_due(member, step));
                }
                Timer::JoinPhase(group) => self.due(group, &mut outcome, now, Group::join_phase_due),
                Timer::SyncPhase(group) => self.due(group, &mut outcome, now, Group::sync_phase_due),
                Timer::Retention => self.expire(&mut outcome, now),
            }
        }
        outcome
    }

    /// Carries out a command; `token` comes back with its reply, now or later.
    pub fn handle(&mut self, token: RequestToken, command: Command, now: Now) -> Outcome {
        let mut outcome = Outcome::default();
        let reply = match command {
            Command::Join(request) => self.join(token, &request, &mut outcome, now),
            Command::Sync(request) => self.sync(token, request, &mut outcome, now),
            Command::Heartbeat(request) => {
                let result =
                    self.with(&request.group, &mut outcome, now, |group, step| group.heartbeat(&request, step));
                let unknown = || Err(GroupError::UnknownMember { member: request.caller.member_id.clone() });
                Some(Reply::Heartbeat(result.unwrap_or_else(unknown)))
            }
            Command::Leave(request) => Some(Reply::Leave(self.leave(&request, &mut outcome, now))),
            Command::CommitOffsets(request) => Some(Reply::CommitOffsets(self.commit(request, &mut outcome, now))),
            Command::FetchOffsets(request) => Some(Reply::FetchOffsets(self.fetch_offsets(&request))),
            Command::DeleteOffsets(request) => {
                let result =
                    self.with(&request.group, &mut outcome, now, |group, step| group.delete_offsets(&request, step));
                let missing = || Err(GroupError::GroupNotFound { group: request.group.clone() });
                Some(Reply::DeleteOffsets(result.unwrap_or_else(missing)))
            }
            Command::Describe { group } => {
                let found = self.groups.get(&group).map(Group::describe);
                Some(Reply::Describe(found.ok_or(GroupError::GroupNotFound { group })))
            }
            Command::Delete { group } => Some(Reply::Delete(self.delete(&group, &mut outcome, now))),
            Command::List => Some(Reply::List(self.groups.values().map(Group::list).collect())),
            Command::Summarize => Some(Reply::Summarize(self.groups.values().map(Group::summarize).collect())),
            Command::ForgetTopics { topics } => {
                let topics = topics.into_iter().collect();
                self.for_all(&mut outcome, now, |group, step| group.forget_topics(&topics, step));
                Some(Reply::ForgetTopics)
            }
            Command::KeepTopics { topics } => {
                let topics = topics.into_iter().collect();
                self.for_all(&mut outcome, now, |group, step| group.keep_topics(&topics, step));
                Some(Reply::KeepTopics)
            }
        };
        outcome.replies.extend(reply.map(|reply| (token, reply)));
        outcome
    }

    fn join(&mut self, token: RequestToken, request: &Join, outcome: &mut Outcome, now: Now) -> Option<Reply> {
        let refuse = |error| Some(Reply::Join(Err(JoinRefusal { error, member_id: request.member_id.clone() })));
        if let Err(error) = join::check_request(request, &self.config) {
            return refuse(error);
        }
        if !request.member_id.is_empty() && !self.groups.contains_key(&request.group) {
            return refuse(GroupError::UnknownMember { member: request.member_id.clone() });
        }
        self.group_or_new(&request.group);
        self.with(&request.group, outcome, now, |group, step| group.join(token, request, step));
        None
    }

    fn sync(&mut self, token: RequestToken, request: Sync, outcome: &mut Outcome, now: Now) -> Option<Reply> {
        let member = request.caller.member_id.clone();
        let group = request.group.clone();
        match self.with(&group, outcome, now, |group, step| group.sync(token, request, step)) {
            Some(()) => None,
            None => Some(Reply::Sync(Err(GroupError::UnknownMember { member }))),
        }
    }

    fn leave(&mut self, request: &Leave, outcome: &mut Outcome, now: Now) -> Result<Vec<MemberLeft>, GroupError> {
        if request.group.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        let left = self.with(&request.group, outcome, now, |group, step| group.leave(request, step));
        let unknown = |(member_id, instance_id): &(MemberId, Option<InstanceId>)| MemberLeft {
            member_id: member_id.clone(),
            instance_id: instance_id.clone(),
            result: Err(GroupError::UnknownMember { member: member_id.clone() }),
        };
        Ok(left.unwrap_or_else(|| request.members.iter().map(unknown).collect()))
    }

    fn commit(
        &mut self,
        request: CommitOffsets,
        outcome: &mut Outcome,
        now: Now,
    ) -> Result<PerPartition<Result<(), GroupError>>, GroupError> {
        let id = request.group.clone();
        if !self.groups.contains_key(&id) {
            if request.caller.generation >= 0 {
                return Err(GroupError::GroupNotFound { group: id });
            }
            self.group_or_new(&id);
        }
        let result = self.with(&id, outcome, now, |group, step| group.commit(request, step));
        result.unwrap_or(Err(GroupError::GroupNotFound { group: id }))
    }

    fn fetch_offsets(&self, request: &FetchOffsets) -> PerPartition<Option<CommittedOffset>> {
        match self.groups.get(&request.group) {
            Some(group) => group.fetch_offsets(request),
            None => Group::new(request.group.clone()).fetch_offsets(request),
        }
    }

    fn delete(&mut self, id: &GroupId, outcome: &mut Outcome, now: Now) -> Result<(), GroupError> {
        let missing = || Err(GroupError::GroupNotFound { group: id.clone() });
        self.with(id, outcome, now, Group::delete).unwrap_or_else(missing)?;
        self.groups.remove(id);
        Ok(())
    }

    /// Expires offsets, and groups of which nothing is left.
    fn expire(&mut self, outcome: &mut Outcome, now: Now) {
        self.timers.arm(Timer::Retention, now.timer_ms.saturating_add(self.config.offsets_retention_check_interval_ms));
        self.for_all(outcome, now, |group, step| {
            group.expire_offsets(step);
            let over = group.state == GroupState::Empty && group.offsets.is_empty() && group.pending_joins.is_empty();
            if over && group.delete(step).is_ok() {
                *group = Group::new(group.id.clone());
            }
        });
    }

    fn due(&mut self, id: &GroupId, outcome: &mut Outcome, now: Now, work: impl FnOnce(&mut Group, &mut Step<'_>)) {
        self.with(id, outcome, now, work);
    }

    /// Works on one group, and forgets it if nothing came of it.
    fn with<R>(
        &mut self,
        id: &GroupId,
        outcome: &mut Outcome,
        now: Now,
        work: impl FnOnce(&mut Group, &mut Step<'_>) -> R,
    ) -> Option<R> {
        let Self { config, groups, timers } = self;
        let group = groups.get_mut(id)?;
        let result = work(group, &mut Step { config, timers, outcome, now });
        self.forget_if_vacant(id);
        Some(result)
    }

    fn for_all(&mut self, outcome: &mut Outcome, now: Now, mut work: impl FnMut(&mut Group, &mut Step<'_>)) {
        let Self { config, groups, timers } = self;
        for group in groups.values_mut() {
            work(group, &mut Step { config, timers, outcome, now });
        }
        groups.retain(|_, group| !group.is_vacant());
    }

    fn group_or_new(&mut self, id: &GroupId) -> &mut Group {
        self.groups.entry(id.clone()).or_insert_with(|| Group::new(id.clone()))
    }

    fn forget_if_vacant(&mut self, id: &GroupId) {
        if self.groups.get(id).is_some_and(Group::is_vacant) {
            self.groups.remove(id);
        }
    }
}
