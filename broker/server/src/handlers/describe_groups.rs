//! DescribeGroups: members and state of groups. A group that does not exist is `Dead`, from version 6 on an error.

use std::sync::Arc;

use forebay_broker_machines::groups::{GroupDescription, GroupError, GroupState, MemberDescription};
use forebay_broker_wire::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use forebay_broker_wire::types::Str;

use super::error_code::{Failure, code_of_group, code_of_unavailable};
use super::repeated::Repeated;
use super::request::RequestContext;
use crate::broker::Broker;

const NOT_FOUND_FROM_VERSION: i16 = 6;
/// "Not asked for", by the protocol.
const NO_OPERATIONS: i32 = i32::MIN;
/// Bits of Kafka's ACL operations on groups: read, delete, describe, describe configs, alter configs.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    let repeated = Repeated::among(request.groups.iter().map(|id| &**id));
    for group_id in &request.groups {
        let mut group = match repeated.refuse(group_id, "group") {
            Ok(()) => describe(broker, context.api_version, group_id.clone()).await,
            Err(failure) => refused(context.api_version, group_id.clone(), failure),
        };
        let told = request.include_authorized_operations && group.error_code == 0;
        group.authorized_operations = if told { GROUP_OPERATIONS } else { NO_OPERATIONS };
        groups.push(group);
    }
    DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() }
}

fn refused(version: i16, group_id: Str, failure: Failure) -> DescribedGroup {
    DescribedGroup {
        error_code: failure.code.code(),
        error_message: (version >= NOT_FOUND_FROM_VERSION).then(|| failure.message.into()),
        group_id,
        ..DescribedGroup::default()
    }
}

async fn describe(broker: &Arc<Broker>, version: i16, group_id: Str) -> DescribedGroup {
    match broker.groups.describe(group_id.as_str().into()).await {
        Ok(Ok(description)) => described(group_id, description),
        Ok(Err(error)) => {
            let not_found = matches!(error, GroupError::GroupNotFound { .. });
            let says_so = version >= NOT_FOUND_FROM_VERSION;
            DescribedGroup {
                error_code: if not_found && !says_so { 0 } else { code_of_group(&error).code() },
                error_message: says_so.then(|| error.to_string().into()),
                group_state: if not_found { GroupState::Dead.name().into() } else { Str::new() },
                group_id,
                ..DescribedGroup::default()
            }
        }
        Err(unavailable) => DescribedGroup {
            error_code: code_of_unavailable(unavailable).code(),
            error_message: (version >= NOT_FOUND_FROM_VERSION).then(|| unavailable.to_string().into()),
            group_id,
            ..DescribedGroup::default()
        },
    }
}

fn described(group_id: Str, group: GroupDescription) -> DescribedGroup {
    let member = |member: MemberDescription| DescribedGroupMember {
        member_id: member.member_id.as_str().into(),
        group_instance_id: member.instance_id.map(|instance| instance.as_str().into()),
        client_id: (&*member.client_id).into(),
        client_host: (&*member.client_host).into(),
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    };
    DescribedGroup {
        group_id,
        group_state: group.state.name().into(),
        protocol_type: (&*group.protocol_type).into(),
        protocol_data: (&*group.protocol_name).into(),
        members: group.members.into_iter().map(member).collect(),
        ..DescribedGroup::default()
    }
}
