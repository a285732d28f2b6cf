//! DeleteGroups: empty groups and all they have committed.

use std::sync::Arc;

use forebay_broker_wire::messages::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
use forebay_broker_wire::types::Str;

use super::error_code::{Failure, code_of_group, code_of_unavailable};
use super::request::RequestContext;
use crate::broker::Broker;

const MESSAGE_FROM_VERSION: i16 = 3;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group_id in request.groups_names {
        let failure = delete(broker, &group_id).await.err();
        let message = failure.as_ref().filter(|_| context.api_version >= MESSAGE_FROM_VERSION);
        results.push(DeletableGroupResult {
            group_id,
            error_code: failure.as_ref().map_or(0, |failure| failure.code.code()),
            error_message: message.map(|failure| Str::from(failure.message.as_str())),
        });
    }
    DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() }
}

async fn delete(broker: &Arc<Broker>, group_id: &Str) -> Result<(), Failure> {
    match broker.groups.delete(group_id.as_str().into()).await {
        Ok(result) => result.map_err(|error| Failure::new(code_of_group(&error), error.to_string())),
        Err(unavailable) => Err(Failure::new(code_of_unavailable(unavailable), unavailable.to_string())),
    }
}
