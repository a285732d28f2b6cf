//! JoinGroup: answered when the group's rebalance has come so far, which may take as long as its members allow.

use std::sync::Arc;

use forebay_broker_machines::groups::{InstanceId, Join, JoinRefusal, Joined, JoinedMember, Protocol};
use forebay_broker_wire::messages::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};
use forebay_broker_wire::types::{ErrorCode, Str};

use super::error_code::{code_of_group, code_of_unavailable};
use super::request::RequestContext;
use crate::broker::Broker;

/// From here on a dynamic member joins with an id that it was given before.
const KNOWN_MEMBER_ID_FROM_VERSION: i16 = 4;
/// From here on the protocol name may be null.
const NULLABLE_PROTOCOL_FROM_VERSION: i16 = 7;
const SKIP_ASSIGNMENT_FROM_VERSION: i16 = 9;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let version = context.api_version;
    let member_id = request.member_id.clone();
    match broker.groups.join(command(context, request)).await {
        Ok(Ok(joined)) => response(version, joined),
        Ok(Err(JoinRefusal { error, member_id })) => refusal(version, code_of_group(&error), member_id.as_str().into()),
        Err(unavailable) => refusal(version, code_of_unavailable(unavailable), member_id),
    }
}

fn command(context: &RequestContext, request: JoinGroupRequest) -> Join {
    let client_id = context.client_id.as_deref().unwrap_or_default();
    let instance_id = request.group_instance_id.as_ref().map(|instance| InstanceId::from(instance.as_str()));
    let name = instance_id.as_ref().map_or(client_id, InstanceId::as_str);
    let protocol = |protocol: forebay_broker_wire::messages::join_group::JoinGroupRequestProtocol| Protocol {
        name: Arc::from(protocol.name.as_str()),
        metadata: protocol.metadata,
    };
    Join {
        group: request.group_id.as_str().into(),
        member_id: request.member_id.as_str().into(),
        new_member_id: format!("{name}-{}", uuid::Uuid::new_v4()).as_str().into(),
        instance_id,
        client_id: Arc::from(client_id),
        // As Kafka shows it.
        client_host: format!("/{}", context.client_host).into(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: if context.api_version >= 1 {
            request.rebalance_timeout_ms
        } else {
            request.session_timeout_ms
        },
        protocol_type: Arc::from(request.protocol_type.as_str()),
        protocols: request.protocols.into_iter().map(protocol).collect(),
        requires_known_member_id: context.api_version >= KNOWN_MEMBER_ID_FROM_VERSION,
        supports_skip_assignment: context.api_version >= SKIP_ASSIGNMENT_FROM_VERSION,
    }
}

fn response(version: i16, joined: Joined) -> JoinGroupResponse {
    let member = |member: JoinedMember| JoinGroupResponseMember {
        member_id: member.member_id.as_str().into(),
        group_instance_id: member.instance_id.map(|instance| instance.as_str().into()),
        metadata: member.metadata,
    };
    JoinGroupResponse {
        generation_id: joined.generation,
        protocol_type: joined.protocol_type.map(|kind| (&*kind).into()).filter(|_| has_protocol_type(version)),
        protocol_name: Some(joined.protocol_name.as_deref().unwrap_or_default().into()),
        leader: joined.leader.as_str().into(),
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id.as_str().into(),
        members: joined.members.into_iter().map(member).collect(),
        ..JoinGroupResponse::default()
    }
}

fn has_protocol_type(version: i16) -> bool {
    version >= NULLABLE_PROTOCOL_FROM_VERSION
}

fn refusal(version: i16, code: ErrorCode, member_id: Str) -> JoinGroupResponse {
    let protocol_name = if version >= NULLABLE_PROTOCOL_FROM_VERSION { None } else { Some(Str::new()) };
    JoinGroupResponse {
        error_code: code.code(),
        generation_id: -1,
        protocol_name,
        member_id,
        ..JoinGroupResponse::default()
    }
}
