//! SyncGroup and Heartbeat: the leader's assignment reaches every member; members show that they live.

use bytes::Bytes;
use std::collections::HashMap;

use super::command::{Heartbeat, Reply, RequestToken, Sync, Synced};
use super::error::GroupError;
use super::group::{Group, GroupState, Step};
use super::ids::MemberId;

impl Group {
    pub(super) fn sync(&mut self, token: RequestToken, request: Sync, step: &mut Step<'_>) {
        if let Err(error) = self.check_sync(&request) {
            step.reply(token, Reply::Sync(Err(error)));
            return;
        }
        let id = request.caller.member_id;
        self.pending_syncs.remove(&id);
        if self.state == GroupState::Stable {
            self.refresh_session(&id, step);
            let synced = self.synced(&id);
            step.reply(token, Reply::Sync(Ok(synced)));
            return;
        }
        let earlier = self.members.get_mut(&id).and_then(|member| member.awaiting_sync.replace(token));
        if let Some(earlier) = earlier {
            step.reply(earlier, Reply::Sync(Err(GroupError::RebalanceInProgress)));
        }
        if self.is_leader(&id) {
            self.assign(request.assignments, step);
        }
    }

    fn check_sync(&self, request: &Sync) -> Result<(), GroupError> {
        self.check_caller(&request.caller)?;
        let differs = |given: &Option<_>, current: &Option<_>| given.is_some() && given != current;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol_name, &self.protocol_name)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        match self.state {
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::Empty | GroupState::Dead => {
                Err(GroupError::UnknownMember { member: request.caller.member_id.clone() })
            }
        }
    }

    /// The leader's assignment makes the group stable, and is stored. Members it doesn't name get nothing.
    fn assign(&mut self, assignments: Vec<(MemberId, Bytes)>, step: &mut Step<'_>) {
        let mut by_member: HashMap<MemberId, Bytes> = assignments.into_iter().collect();
        for member in self.members.iter_mut() {
            let assignment = by_member.remove(&member.id).unwrap_or_default();
            member.assignment = Bytes::copy_from_slice(&assignment);
        }
        if self.metadata().encoded_bytes_max() > step.config.max_record_bytes {
            let error = self.too_large(step.config);
            for member in self.members.iter_mut() {
                member.assignment = Bytes::new();
            }
            self.refuse_syncs(&error, step);
            self.prepare_rebalance(step);
            return;
        }
        self.enter(GroupState::Stable, step);
        self.record_metadata(step);
        for id in self.members.ids() {
            if let Some(token) = self.members.get_mut(&id).and_then(|member| member.awaiting_sync.take()) {
                self.refresh_session(&id, step);
                let synced = self.synced(&id);
                step.reply(token, Reply::Sync(Ok(synced)));
            }
        }
    }

    fn synced(&self, id: &MemberId) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment: self.members.get(id).map(|member| member.assignment.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn heartbeat(&mut self, request: &Heartbeat, step: &mut Step<'_>) -> Result<(), GroupError> {
        self.check_caller(&request.caller)?;
        self.refresh_session(&request.caller.member_id, step);
        match self.state {
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
            GroupState::Empty | GroupState::Dead => {
                Err(GroupError::UnknownMember { member: request.caller.member_id.clone() })
            }
        }
    }
}
