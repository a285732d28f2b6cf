//! Rebalances: from the first sign that one is needed to the new generation, and the deadlines on the way.
//!
//! A rebalance always ends: each phase has a deadline, and who misses it is no longer a member. The only exception are
//! static members, who keep their place until their session expires.

use super::command::{JoinRefusal, Reply};
use super::error::GroupError;
use super::group::{Group, GroupState, InitialDelay, JoinPhase, Step};
use super::ids::MemberId;
use super::timers::Timer;

impl Group {
    /// After a member came, left or changed.
    pub(super) fn rebalance_or_complete(&mut self, step: &mut Step<'_>) {
        if self.state == GroupState::PreparingRebalance {
            self.try_complete_join(step);
        } else {
            self.prepare_rebalance(step);
        }
    }

    /// Asks all members to join again, in the answers to their heartbeats.
    pub(super) fn prepare_rebalance(&mut self, step: &mut Step<'_>) {
        self.refuse_syncs(&GroupError::RebalanceInProgress, step);
        let timeout_ms = self.rebalance_timeout_ms();
        let delay_ms = step.config.initial_rebalance_delay_ms;
        let phase = if self.state == GroupState::Empty && delay_ms > 0 {
            let remaining_ms = (timeout_ms - delay_ms).max(0);
            let initial = Some(InitialDelay { remaining_ms, newcomer: false });
            JoinPhase { deadline_ms: step.now.timer_ms + delay_ms.min(timeout_ms), initial }
        } else {
            JoinPhase { deadline_ms: step.now.timer_ms + timeout_ms, initial: None }
        };
        self.enter(GroupState::PreparingRebalance, step);
        self.start_join_phase(phase, step);
        self.try_complete_join(step);
    }

    fn start_join_phase(&mut self, phase: JoinPhase, step: &mut Step<'_>) {
        self.join_phase = Some(phase);
        step.timers.arm(Timer::JoinPhase(self.id.clone()), phase.deadline_ms);
    }

    /// Ends the join phase early when nobody is missing.
    pub(super) fn try_complete_join(&mut self, step: &mut Step<'_>) {
        let initial = self.join_phase.is_some_and(|phase| phase.initial.is_some());
        let all_here = self.members.awaiting_join() == self.members.len() && self.pending_joins.is_empty();
        if self.state == GroupState::PreparingRebalance && !initial && all_here {
            self.complete_join(step);
        }
    }

    pub(super) fn join_phase_due(&mut self, step: &mut Step<'_>) {
        let Some(mut phase) = self.join_phase else { return };
        if phase.deadline_ms > step.now.timer_ms {
            self.start_join_phase(phase, step);
            return;
        }
        match &mut phase.initial {
            Some(InitialDelay { remaining_ms, newcomer }) if *newcomer && *remaining_ms > 0 => {
                let delay_ms = step.config.initial_rebalance_delay_ms.min(*remaining_ms);
                *remaining_ms -= delay_ms;
                *newcomer = false;
                phase.deadline_ms = step.now.timer_ms + delay_ms;
                self.start_join_phase(phase, step);
            }
            _ => self.complete_join(step),
        }
    }

    fn complete_join(&mut self, step: &mut Step<'_>) {
        let absent: Vec<MemberId> = self
            .members
            .iter()
            .filter(|member| !member.is_awaiting_join() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in absent {
            self.forget_member(&id);
        }
        if self.members.is_empty() {
            self.become_empty(step);
        } else if self.elect_leader() {
            self.start_generation(step);
        } else {
            // Only static members are left and none has come back: they have until their sessions expire.
            let deadline_ms = step.now.timer_ms + self.rebalance_timeout_ms().max(1);
            self.start_join_phase(JoinPhase { deadline_ms, initial: None }, step);
        }
    }

    /// Keeps the leader if it has joined, or else takes the first who has. False if nobody has.
    fn elect_leader(&mut self) -> bool {
        let leads = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        if leads.is_some_and(|leader| leader.is_awaiting_join()) {
            return true;
        }
        let joined = self.members.iter().find(|member| member.is_awaiting_join()).map(|member| member.id.clone());
        match joined {
            Some(id) => {
                self.leader = Some(id);
                true
            }
            None => false,
        }
    }

    fn become_empty(&mut self, step: &mut Step<'_>) {
        self.join_phase = None;
        self.next_generation();
        self.protocol_name = None;
        self.leader = None;
        self.enter(GroupState::Empty, step);
        self.record_metadata(step);
    }

    fn next_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
    }

    fn start_generation(&mut self, step: &mut Step<'_>) {
        self.join_phase = None;
        self.next_generation();
        self.protocol_name = self.select_protocol();
        self.enter(GroupState::CompletingRebalance, step);
        self.pending_syncs.clear();
        for id in self.members.ids() {
            let joined = self.joined(&id);
            if let Some(token) = self.members.take_join(&id) {
                step.reply(token, Reply::Join(Ok(joined)));
            }
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
            }
            self.refresh_session(&id, step);
            self.pending_syncs.insert(id);
        }
        let deadline_ms = step.now.timer_ms + self.rebalance_timeout_ms();
        self.sync_deadline_ms = Some(deadline_ms);
        step.timers.arm(Timer::SyncPhase(self.id.clone()), deadline_ms);
    }

    /// Members that joined but never asked for their assignment are gone.
    pub(super) fn sync_phase_due(&mut self, step: &mut Step<'_>) {
        let Some(deadline_ms) = self.sync_deadline_ms else { return };
        if deadline_ms > step.now.timer_ms {
            step.timers.arm(Timer::SyncPhase(self.id.clone()), deadline_ms);
            return;
        }
        self.sync_deadline_ms = None;
        let late: Vec<MemberId> = self.pending_syncs.drain().collect();
        if late.is_empty() {
            return;
        }
        for id in &late {
            self.forget_member(id);
        }
        self.rebalance_or_complete(step);
    }

    /// Takes back the assignment of a generation that ends, and answers those who still wait for it.
    pub(super) fn refuse_syncs(&mut self, error: &GroupError, step: &mut Step<'_>) {
        self.pending_syncs.clear();
        self.sync_deadline_ms = None;
        for id in self.members.ids() {
            if let Some(token) = self.members.get_mut(&id).and_then(|member| member.awaiting_sync.take()) {
                // It could not show that it lives while it waited.
                self.refresh_session(&id, step);
                step.reply(token, Reply::Sync(Err(error.clone())));
            }
        }
    }

    /// A member's deadline, or that of an id given out, has come. Those who wait for an answer are alive, except in
    /// their first join.
    pub(super) fn member_due(&mut self, id: &MemberId, step: &mut Step<'_>) {
        if let Some(deadline_ms) = self.pending_joins.get(id).copied() {
            if deadline_ms > step.now.timer_ms {
                step.timers.arm(Timer::Member(self.id.clone(), id.clone()), deadline_ms);
            } else {
                self.pending_joins.remove(id);
                self.try_complete_join(step);
            }
            return;
        }
        let Some(member) = self.members.get(id) else { return };
        let waits = member.awaiting_sync.is_some() || (member.is_awaiting_join() && !member.is_new);
        if waits {
            self.refresh_session(id, step);
        } else if member.deadline_ms > step.now.timer_ms {
            step.timers.arm(Timer::Member(self.id.clone(), id.clone()), member.deadline_ms);
        } else {
            self.remove_member(id, step);
        }
    }

    /// Removes a member and lets the others share what it had.
    pub(super) fn remove_member(&mut self, id: &MemberId, step: &mut Step<'_>) {
        let unknown = GroupError::UnknownMember { member: id.clone() };
        if let Some(token) = self.members.take_join(id) {
            let refusal = JoinRefusal { error: unknown.clone(), member_id: MemberId::from("") };
            step.reply(token, Reply::Join(Err(refusal)));
        }
        if let Some(token) = self.members.get_mut(id).and_then(|member| member.awaiting_sync.take()) {
            step.reply(token, Reply::Sync(Err(unknown)));
        }
        self.forget_member(id);
        self.rebalance_or_complete(step);
    }

    fn forget_member(&mut self, id: &MemberId) {
        self.members.remove(id);
        self.pending_syncs.remove(id);
        if self.is_leader(id) {
            self.leader = self.members.iter().next().map(|member| member.id.clone());
        }
    }
}
