//! SyncGroup: the leader brings the assignment, everyone takes theirs.

use std::sync::Arc;

use forebay_broker_machines::groups::{Caller, GroupError, MemberId, Sync};
use forebay_broker_wire::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};

use super::error_code::{code_of_group, code_of_unavailable};
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let command = Sync {
        group: request.group_id.as_str().into(),
        caller: Caller {
            member_id: request.member_id.as_str().into(),
            instance_id: request.group_instance_id.as_ref().map(|instance| instance.as_str().into()),
            generation: request.generation_id,
        },
        protocol_type: request.protocol_type.map(|kind| Arc::from(kind.as_str())),
        protocol_name: request.protocol_name.map(|name| Arc::from(name.as_str())),
        assignments: request
            .assignments
            .into_iter()
            .map(|given| (MemberId::from(given.member_id.as_str()), given.assignment))
            .collect(),
    };
    let error_code = match broker.groups.sync(command).await {
        Ok(Ok(synced)) => {
            return SyncGroupResponse {
                protocol_type: synced.protocol_type.map(|kind| (&*kind).into()),
                protocol_name: synced.protocol_name.map(|name| (&*name).into()),
                assignment: synced.assignment,
                ..SyncGroupResponse::default()
            };
        }
        Ok(Err(error)) => {
            if let GroupError::AssignmentTooLarge { .. } = error {
                tracing::warn!(group = &*request.group_id, %error, "assignment refused");
            }
            code_of_group(&error)
        }
        Err(unavailable) => code_of_unavailable(unavailable),
    };
    SyncGroupResponse { error_code: error_code.code(), ..SyncGroupResponse::default() }
}
