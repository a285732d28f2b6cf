//! LeaveGroup: members that stop, or static members that an administrator removes.

use std::sync::Arc;

use forebay_broker_machines::groups::{InstanceId, Leave, MemberId, MemberLeft};
use forebay_broker_wire::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};

use super::error_code::{code_of_group, code_of_unavailable};
use super::request::RequestContext;
use crate::broker::Broker;

/// From here on a request names several members, each with its own result.
const BATCHES_FROM_VERSION: i16 = 3;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let batched = context.api_version >= BATCHES_FROM_VERSION;
    let members: Vec<(MemberId, Option<InstanceId>)> = if batched {
        let instance = |instance: Option<forebay_broker_wire::types::Str>| instance.map(|name| name.as_str().into());
        let named = request.members.into_iter();
        named.map(|member| (member.member_id.as_str().into(), instance(member.group_instance_id))).collect()
    } else {
        vec![(request.member_id.as_str().into(), None)]
    };
    let code = match broker.groups.leave(Leave { group: request.group_id.as_str().into(), members }).await {
        Ok(Ok(left)) if batched => {
            return LeaveGroupResponse {
                members: left.into_iter().map(member_response).collect(),
                ..LeaveGroupResponse::default()
            };
        }
        Ok(Ok(left)) => {
            let error = left.first().and_then(|member| member.result.as_ref().err());
            return LeaveGroupResponse {
                error_code: error.map_or(0, |error| code_of_group(error).code()),
                ..LeaveGroupResponse::default()
            };
        }
        Ok(Err(error)) => code_of_group(&error),
        Err(unavailable) => code_of_unavailable(unavailable),
    };
    LeaveGroupResponse { error_code: code.code(), ..LeaveGroupResponse::default() }
}

fn member_response(left: MemberLeft) -> MemberResponse {
    MemberResponse {
        member_id: left.member_id.as_str().into(),
        group_instance_id: left.instance_id.map(|instance| instance.as_str().into()),
        error_code: left.result.map_or_else(|error| code_of_group(&error).code(), |()| 0),
    }
}
