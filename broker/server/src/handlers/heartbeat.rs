//! Heartbeat: a member shows that it lives, and hears whether it has to join again.

use std::sync::Arc;

use forebay_broker_machines::groups::{Caller, Heartbeat};
use forebay_broker_wire::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use forebay_broker_wire::types::ErrorCode;

use super::error_code::{code_of_group, code_of_unavailable};
use super::request::RequestContext;
use crate::broker::Broker;
use crate::coordinators::Unavailable;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let command = Heartbeat {
        group: request.group_id.as_str().into(),
        caller: Caller {
            member_id: request.member_id.as_str().into(),
            instance_id: request.group_instance_id.as_ref().map(|instance| instance.as_str().into()),
            generation: request.generation_id,
        },
    };
    let code = match broker.groups.heartbeat(command).await {
        // The group's members are kept where they are until it is loaded; an error here would only scare them away.
        Ok(Ok(())) | Err(Unavailable::Loading) => ErrorCode::None,
        Ok(Err(error)) => code_of_group(&error),
        Err(unavailable) => code_of_unavailable(unavailable),
    };
    HeartbeatResponse { error_code: code.code(), ..HeartbeatResponse::default() }
}
