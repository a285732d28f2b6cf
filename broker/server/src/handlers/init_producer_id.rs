//! InitProducerId: gives an idempotent producer its id. Ids come from blocks that the metadata sets aside durably, so none
//! is given twice, also not over a crash.
//!
//! Transactions are not offered: a transactional id is refused with the error that a client can show.

use std::sync::Arc;

use forebay_broker_machines::metadata::{Command, ProducerIdBlock, Reply};
use forebay_broker_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use forebay_broker_wire::types::{ErrorCode, ProducerId};
use tokio::sync::Mutex;

use super::request::RequestContext;
use crate::broker::Broker;

/// What is left of the block that this broker holds.
#[derive(Debug, Default)]
pub(crate) struct ProducerIds {
    left: Mutex<std::ops::Range<i64>>,
}

impl ProducerIds {
    /// The next id; takes a new block when the last one is used up. One at a time, so that blocks are not wasted.
    async fn next(&self, broker: &Arc<Broker>) -> Option<ProducerId> {
        let mut left = self.left.lock().await;
        if left.is_empty() {
            let Ok(Reply::ProducerIds(ProducerIdBlock { first, count })) =
                broker.submit(Command::AllocateProducerIds).await
            else {
                return None;
            };
            *left = first..first + count;
        }
        left.next().map(ProducerId)
    }
}

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    if request.transactional_id.is_some() {
        let code = ErrorCode::TransactionalIdAuthorizationFailed;
        return InitProducerIdResponse { error_code: code.code(), ..InitProducerIdResponse::default() };
    }
    match broker.producer_ids.next(broker).await {
        Some(id) => {
            InitProducerIdResponse { producer_id: id.0, producer_epoch: 0, ..InitProducerIdResponse::default() }
        }
        None => {
            let code = ErrorCode::CoordinatorNotAvailable;
            InitProducerIdResponse { error_code: code.code(), ..InitProducerIdResponse::default() }
        }
    }
}
