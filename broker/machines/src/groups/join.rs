//! JoinGroup: who may join, under which id, and whether that starts a rebalance.

use std::collections::BTreeSet;

use super::command::{Join, JoinRefusal, Joined, JoinedMember, Reply, RequestToken};
use super::config::GroupConfig;
use super::error::GroupError;
use super::group::{Group, GroupState, Step};
use super::ids::{InstanceId, MemberId, TopicName};
use super::members::Member;
use super::subscription::subscribed_topics;
use super::timers::Timer;

/// How long an unanswered first join counts. The client may have gone and come back under another id, and a member that
/// doesn't know its id sends no heartbeat; so abandoned joins must end by themselves.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1_000;

/// What can be refused before the group is looked at, or even made.
pub(super) fn check_request(request: &Join, config: &GroupConfig) -> Result<(), GroupError> {
    if request.group.is_empty() {
        return Err(GroupError::InvalidGroupId);
    }
    let given_ms = i64::from(request.session_timeout_ms);
    let (min_ms, max_ms) = (config.min_session_timeout_ms, config.max_session_timeout_ms);
    if given_ms < min_ms || given_ms > max_ms {
        return Err(GroupError::InvalidSessionTimeout { given_ms, min_ms, max_ms });
    }
    Ok(())
}

impl Group {
    pub(super) fn join(&mut self, token: RequestToken, request: &Join, step: &mut Step<'_>) {
        let result = self.accept(request, step.config).and_then(|()| {
            if request.member_id.is_empty() {
                self.join_without_id(token, request, step)
            } else {
                self.join_with_id(token, request, step)
            }
        });
        if let Err(error) = result {
            let member_id = match &error {
                GroupError::MemberIdRequired => request.new_member_id.clone(),
                GroupError::MaxSizeReached { .. } => MemberId::from(""),
                _ => request.member_id.clone(),
            };
            step.reply(token, Reply::Join(Err(JoinRefusal { error, member_id })));
        }
    }

    fn accept(&self, request: &Join, config: &GroupConfig) -> Result<(), GroupError> {
        let member = self.members.get(&request.member_id);
        let is_static = request.instance_id.as_ref().is_some_and(|instance| self.members.static_id(instance).is_some());
        let has_room = match self.state {
            GroupState::Empty | GroupState::Dead => true,
            // A group over its limit, after the limit was lowered, shrinks by taking only the first who come back.
            GroupState::PreparingRebalance => {
                member.is_some_and(Member::is_awaiting_join) || self.members.awaiting_join() < config.max_size
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                member.is_some() || is_static || self.members.len() < config.max_size
            }
        };
        if !has_room {
            return Err(GroupError::MaxSizeReached { max: config.max_size });
        }
        if self.supports(&request.protocol_type, &request.protocols) {
            Ok(())
        } else {
            Err(GroupError::InconsistentProtocol)
        }
    }

    fn join_without_id(&mut self, token: RequestToken, request: &Join, step: &mut Step<'_>) -> Result<(), GroupError> {
        if let Some(instance) = &request.instance_id {
            match self.members.static_id(instance).cloned() {
                Some(old_id) => self.replace_static(token, &old_id, instance, request, step),
                None => self.add_member(token, request.new_member_id.clone(), request, step),
            }
            return Ok(());
        }
        if request.requires_known_member_id {
            let deadline_ms = step.now.timer_ms + i64::from(request.session_timeout_ms);
            self.pending_joins.insert(request.new_member_id.clone(), deadline_ms);
            step.timers.arm(Timer::Member(self.id.clone(), request.new_member_id.clone()), deadline_ms);
            return Err(GroupError::MemberIdRequired);
        }
        self.add_member(token, request.new_member_id.clone(), request, step);
        Ok(())
    }

    fn join_with_id(&mut self, token: RequestToken, request: &Join, step: &mut Step<'_>) -> Result<(), GroupError> {
        let id = &request.member_id;
        if self.pending_joins.contains_key(id) {
            if let Some(instance) = &request.instance_id {
                // Pending ids belong to dynamic members only.
                return Err(match self.members.static_id(instance) {
                    Some(_) => GroupError::FencedInstance { instance: instance.clone(), member: id.clone() },
                    None => GroupError::UnknownMember { member: id.clone() },
                });
            }
            self.add_member(token, id.clone(), request, step);
            return Ok(());
        }
        self.check_member(id, request.instance_id.as_ref())?;
        let unchanged = self.members.get(id).is_some_and(|member| member.protocols == request.protocols);
        match self.state {
            GroupState::CompletingRebalance if unchanged => self.answer_again(token, id, step),
            // A leader that joins again wants a new assignment, for instance because partitions were added.
            GroupState::Stable if unchanged && !self.is_leader(id) => self.answer_again(token, id, step),
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                self.update_member(token, id, request, step);
            }
            GroupState::Empty | GroupState::Dead => return Err(GroupError::UnknownMember { member: id.clone() }),
        }
        Ok(())
    }

    fn add_member(&mut self, token: RequestToken, id: MemberId, request: &Join, step: &mut Step<'_>) {
        self.pending_joins.remove(&id);
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
            self.leader = Some(id.clone());
        }
        let deadline_ms = step.now.timer_ms + NEW_MEMBER_JOIN_TIMEOUT_MS;
        self.members.insert(Member::new(id.clone(), request, deadline_ms));
        self.members.park_join(&id, token);
        step.timers.arm(Timer::Member(self.id.clone(), id), deadline_ms);
        if let Some(initial) = self.join_phase.as_mut().and_then(|phase| phase.initial.as_mut()) {
            initial.newcomer = true;
        }
        self.rebalance_or_complete(step);
    }

    fn update_member(&mut self, token: RequestToken, id: &MemberId, request: &Join, step: &mut Step<'_>) {
        self.members.update(id, request);
        self.park(token, id, step);
        self.rebalance_or_complete(step);
    }

    /// A client that asks twice has given up the first request; it is answered so that nothing waits for ever.
    fn park(&mut self, token: RequestToken, id: &MemberId, step: &mut Step<'_>) {
        if let Some(earlier) = self.members.park_join(id, token) {
            let refusal = JoinRefusal { error: GroupError::RebalanceInProgress, member_id: id.clone() };
            step.reply(earlier, Reply::Join(Err(refusal)));
        }
    }

    /// A static member is back after a restart. It takes over its old place under a new id; the old one is fenced.
    fn replace_static(
        &mut self,
        token: RequestToken,
        old_id: &MemberId,
        instance: &InstanceId,
        request: &Join,
        step: &mut Step<'_>,
    ) {
        let old_leader = self.leader.clone();
        let new_id = request.new_member_id.clone();
        let old_topics = self.topics_of(old_id);
        self.rename_member(old_id, &new_id, instance, step);
        self.members.update(&new_id, request);
        self.refresh_session(&new_id, step);
        let same_assignment = self.state == GroupState::Stable
            && self.select_protocol() == self.protocol_name
            && self.topics_of(&new_id) == old_topics
            && self.metadata().encoded_bytes_max() <= step.config.max_record_bytes;
        if !same_assignment {
            self.park(token, &new_id, step);
            self.rebalance_or_complete(step);
            return;
        }
        self.record_metadata(step);
        let leads = self.is_leader(&new_id);
        let mut joined = self.joined(&new_id);
        if request.supports_skip_assignment {
            joined.skip_assignment = leads;
        } else {
            // Told of a leader other than itself, an older client computes no assignment, which would not be used.
            joined.members.clear();
            joined.leader = old_leader.unwrap_or_else(|| MemberId::from(""));
        }
        step.reply(token, Reply::Join(Ok(joined)));
    }

    /// Gives a static member its new id, refusing what waits under the old one.
    fn rename_member(&mut self, old_id: &MemberId, new_id: &MemberId, instance: &InstanceId, step: &mut Step<'_>) {
        let join = self.members.take_join(old_id);
        let Some(mut member) = self.members.remove(old_id) else { return };
        let fenced = GroupError::FencedInstance { instance: instance.clone(), member: old_id.clone() };
        if let Some(token) = join {
            step.reply(token, Reply::Join(Err(JoinRefusal { error: fenced.clone(), member_id: old_id.clone() })));
        }
        if let Some(token) = member.awaiting_sync.take() {
            step.reply(token, Reply::Sync(Err(fenced)));
        }
        member.id = new_id.clone();
        member.is_new = false;
        self.members.insert(member);
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        if self.pending_syncs.remove(old_id) {
            self.pending_syncs.insert(new_id.clone());
        }
    }

    fn topics_of(&self, id: &MemberId) -> Option<BTreeSet<TopicName>> {
        let protocol_name = self.protocol_name.as_deref()?;
        subscribed_topics(&self.members.get(id)?.metadata(protocol_name))
    }

    /// The answer to a join of this generation, for a member that seems to have missed it.
    fn answer_again(&mut self, token: RequestToken, id: &MemberId, step: &mut Step<'_>) {
        let mut joined = self.joined(id);
        if self.state == GroupState::Stable {
            joined.members.clear();
        }
        self.refresh_session(id, step);
        step.reply(token, Reply::Join(Ok(joined)));
    }

    pub(super) fn joined(&self, id: &MemberId) -> Joined {
        let protocol_name = self.protocol_name.as_deref().unwrap_or_default();
        let seen = |member: &Member| JoinedMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol_name),
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone().unwrap_or_else(|| MemberId::from("")),
            member_id: id.clone(),
            skip_assignment: false,
            members: if self.is_leader(id) { self.members.iter().map(seen).collect() } else { Vec::new() },
        }
    }

    pub(super) fn too_large(&self, config: &GroupConfig) -> GroupError {
        GroupError::AssignmentTooLarge { bytes: self.metadata().encoded_bytes_max(), max: config.max_record_bytes }
    }
}
