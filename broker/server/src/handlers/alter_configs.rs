//! AlterConfigs, the older way: the settings given replace all that a resource has of its own.

use std::sync::Arc;

use forebay_broker_machines::metadata::{ConfigChange, ConfigOperation};
use forebay_broker_wire::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use forebay_broker_wire::types::ErrorCode;

use super::config_resource::read_resource;
use super::error_code::Failure;
use super::incremental_alter_configs::alter;
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let changes = request.resources.iter().map(read).collect();
    let results = alter(broker, changes, request.validate_only).await;
    let answer = |(resource, result): (AlterConfigsResource, Result<(), Failure>)| AlterConfigsResourceResponse {
        error_code: result.as_ref().err().map_or(0, |failure| failure.code.code()),
        error_message: result.err().map(|failure| failure.message.into()),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
    };
    let responses = request.resources.into_iter().zip(results).map(answer).collect();
    AlterConfigsResponse { responses, ..AlterConfigsResponse::default() }
}

fn read(resource: &AlterConfigsResource) -> Result<ConfigChange, Failure> {
    let mut operations = Vec::with_capacity(resource.configs.len());
    for config in &resource.configs {
        let Some(value) = &config.value else {
            return Err(Failure::new(ErrorCode::InvalidRequest, format!("{}: must have a value", config.name)));
        };
        operations.push((config.name.to_string(), ConfigOperation::Set(value.to_string())));
    }
    let whose = read_resource(resource.resource_type, &resource.resource_name)?;
    Ok(ConfigChange { resource: whose.into(), operations, replace_all: true })
}
