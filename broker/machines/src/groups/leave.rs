//! LeaveGroup: members that go at once instead of by their session's end, and static members that an administrator
//! removes.

use super::command::{Leave, MemberLeft};
use super::error::GroupError;
use super::group::{Group, Step};
use super::ids::{InstanceId, MemberId};

impl Group {
    pub(super) fn leave(&mut self, request: &Leave, step: &mut Step<'_>) -> Vec<MemberLeft> {
        let leave_one = |(member_id, instance_id): &(MemberId, Option<InstanceId>)| MemberLeft {
            member_id: member_id.clone(),
            instance_id: instance_id.clone(),
            result: self.leave_one(member_id, instance_id.as_ref(), step),
        };
        request.members.iter().map(leave_one).collect()
    }

    fn leave_one(
        &mut self,
        member_id: &MemberId,
        instance_id: Option<&InstanceId>,
        step: &mut Step<'_>,
    ) -> Result<(), GroupError> {
        let id = match instance_id {
            Some(instance) if member_id.is_empty() => {
                let known = self.members.static_id(instance).cloned();
                known.ok_or_else(|| GroupError::UnknownMember { member: member_id.clone() })?
            }
            _ => member_id.clone(),
        };
        if self.pending_joins.remove(&id).is_some() {
            self.try_complete_join(step);
            return Ok(());
        }
        self.check_member(&id, instance_id)?;
        self.remove_member(&id, step);
        Ok(())
    }
}
