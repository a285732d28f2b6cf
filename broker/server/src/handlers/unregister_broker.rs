//! UnregisterBroker: a stopped broker that will not come again is taken off the list.

use std::sync::Arc;

use forebay_broker_machines::metadata::{Command, Reply, UnregisterError};
use forebay_broker_wire::messages::unregister_broker::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use forebay_broker_wire::types::{BrokerId, ErrorCode};

use super::error_code::{Failure, failure_of_submit, no_answer};
use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse {
    let failure = match broker.submit(Command::UnregisterBroker { broker_id: BrokerId(request.broker_id) }).await {
        Ok(Reply::Unregistered(Ok(()))) => return UnregisterBrokerResponse::default(),
        Ok(Reply::Unregistered(Err(error))) => {
            let code = match error {
                UnregisterError::NotRegistered { .. } => ErrorCode::BrokerIdNotRegistered,
                UnregisterError::AtWork { .. } => ErrorCode::InvalidRequest,
            };
            Failure::new(code, error.to_string())
        }
        Ok(_) => no_answer(),
        Err(error) => failure_of_submit(&error),
    };
    UnregisterBrokerResponse {
        error_code: failure.code.code(),
        error_message: Some(failure.message.into()),
        ..UnregisterBrokerResponse::default()
    }
}
