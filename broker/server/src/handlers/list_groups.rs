//! ListGroups: the groups that this broker coordinates.

use std::sync::Arc;

use forebay_broker_machines::groups::GroupListing;
use forebay_broker_wire::messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
use forebay_broker_wire::types::Str;

use super::error_code::code_of_unavailable;
use super::request::RequestContext;
use crate::broker::Broker;

/// The only type of group so far.
const GROUP_TYPE: &str = "classic";

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    match broker.groups.list().await {
        Ok(groups) => ListGroupsResponse {
            groups: groups.iter().filter(|group| wanted(&request, group)).map(listed).collect(),
            ..ListGroupsResponse::default()
        },
        Err(unavailable) => {
            ListGroupsResponse { error_code: code_of_unavailable(unavailable).code(), ..ListGroupsResponse::default() }
        }
    }
}

/// An empty filter takes all; names count without regard to case.
fn wanted(request: &ListGroupsRequest, group: &GroupListing) -> bool {
    let takes = |filter: &[Str], name: &str| filter.is_empty() || filter.iter().any(|f| f.eq_ignore_ascii_case(name));
    takes(&request.states_filter, group.state.name()) && takes(&request.types_filter, GROUP_TYPE)
}

fn listed(group: &GroupListing) -> ListedGroup {
    ListedGroup {
        group_id: group.group.as_str().into(),
        protocol_type: (&*group.protocol_type).into(),
        group_state: group.state.name().into(),
        group_type: GROUP_TYPE.into(),
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::groups::GroupState;

    use super::*;

    fn group() -> GroupListing {
        GroupListing { group: "g".into(), protocol_type: "consumer".into(), state: GroupState::Stable }
    }

    #[test]
    fn filters_take_what_they_name_and_empty_ones_everything() {
        let request = |states: &[&str], types: &[&str]| ListGroupsRequest {
            states_filter: states.iter().map(|name| Str::from(*name)).collect(),
            types_filter: types.iter().map(|name| Str::from(*name)).collect(),
        };
        for (states, types, is_wanted) in [
            (&[][..], &[][..], true),
            (&["stable", "Empty"], &["Classic"], true),
            (&["Empty"], &[], false),
            (&[], &["consumer"], false),
        ] {
            assert_eq!(wanted(&request(states, types), &group()), is_wanted, "{states:?} {types:?}");
        }
    }
}
