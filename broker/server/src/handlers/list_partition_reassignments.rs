//! ListPartitionReassignments: partitions on their way to other brokers. There are none: nothing here moves a partition.

use std::sync::Arc;

use forebay_broker_wire::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::request::RequestContext;
use crate::broker::Broker;

pub(super) async fn handle(
    _: &Arc<Broker>,
    _: &RequestContext,
    _: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default()
}
