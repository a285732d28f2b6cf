//! IncrementalAlterConfigs: set, delete, append and subtract. What is changed is in force before the answer leaves.

use std::sync::Arc;

use forebay_broker_machines::metadata::{Command, ConfigChange, ConfigOperation, Reply};
use forebay_broker_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use forebay_broker_wire::types::ErrorCode;

use super::config_resource::read_resource;
use super::error_code::{Failure, code_of_alter_configs, failure_of_submit};
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let changes = request.resources.iter().map(read).collect();
    let results = alter(broker, changes, request.validate_only).await;
    let answer = |(resource, result): (AlterConfigsResource, Result<(), Failure>)| AlterConfigsResourceResponse {
        error_code: result.as_ref().err().map_or(0, |failure| failure.code.code()),
        error_message: result.err().map(|failure| failure.message.into()),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
    };
    let responses = request.resources.into_iter().zip(results).map(answer).collect();
    IncrementalAlterConfigsResponse { responses, ..IncrementalAlterConfigsResponse::default() }
}

/// Has the changes decided that could be read; the results have the order of the changes.
pub(super) async fn alter(
    broker: &Arc<Broker>,
    read: Vec<Result<ConfigChange, Failure>>,
    validate_only: bool,
) -> Vec<Result<(), Failure>> {
    let changes: Vec<ConfigChange> = read.iter().filter_map(|change| change.as_ref().ok().cloned()).collect();
    let count = changes.len();
    let decided = match broker.submit(Command::AlterConfigs { changes, validate_only }).await {
        Ok(Reply::ConfigsAltered(results)) => {
            let refuse = |error| Failure::new(code_of_alter_configs(&error), error.to_string());
            results.into_iter().map(|result| result.map_err(refuse)).collect()
        }
        Ok(_) => vec![Err(Failure::new(ErrorCode::UnknownServerError, "the controller gave no answer")); count],
        Err(error) => vec![Err(failure_of_submit(&error)); count],
    };
    let mut decided = decided.into_iter();
    read.into_iter().map(|change| change.and_then(|_| decided.next().unwrap_or(Ok(())))).collect()
}

fn read(resource: &AlterConfigsResource) -> Result<ConfigChange, Failure> {
    let operations = resource.configs.iter().map(operation).collect::<Result<_, _>>()?;
    let whose = read_resource(resource.resource_type, &resource.resource_name)?;
    Ok(ConfigChange { resource: whose.into(), operations, replace_all: false })
}

fn operation(config: &AlterableConfig) -> Result<(String, ConfigOperation), Failure> {
    let refuse = |message: String| Failure::new(ErrorCode::InvalidRequest, message);
    let value = || {
        config
            .value
            .as_ref()
            .map(ToString::to_string)
            .ok_or_else(|| refuse(format!("{}: must have a value", config.name)))
    };
    let operation = match config.config_operation {
        0 => ConfigOperation::Set(value()?),
        1 => ConfigOperation::Delete,
        2 => ConfigOperation::Append(value()?),
        3 => ConfigOperation::Subtract(value()?),
        other => {
            let message =
                format!("{}: operation {other}: must be 0 (set), 1 (delete), 2 (append) or 3 (subtract)", config.name);
            return Err(refuse(message));
        }
    };
    Ok((config.name.to_string(), operation))
}
