//! DescribeCluster: the cluster's id, its brokers as the client's listener reaches them, and who leads the metadata.

use std::sync::Arc;

use forebay_broker_wire::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use forebay_broker_wire::types::{ErrorCode, Str};

use super::metadata::{CLUSTER_OPERATIONS, NO_OPERATIONS};
use super::request::RequestContext;
use crate::broker::Broker;

/// The protocol's numbers of what can be asked for.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let refused = match request.endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some((
            ErrorCode::MismatchedEndpointType,
            "this listener belongs to a broker, not to a controller".to_owned(),
        )),
        other => {
            let message = format!("endpoint type {other}: must be {BROKERS} (brokers) or {CONTROLLERS} (controllers)");
            Some((ErrorCode::UnsupportedEndpointType, message))
        }
    };
    let (code, message) = refused.map_or((ErrorCode::None, None), |(code, message)| (code, Some(message)));
    let operations = if request.include_cluster_authorized_operations { CLUSTER_OPERATIONS } else { NO_OPERATIONS };
    DescribeClusterResponse {
        error_code: code.code(),
        error_message: message.map(Str::from),
        endpoint_type: request.endpoint_type,
        cluster_id: broker.cluster_id().into(),
        controller_id: broker.config.broker_id,
        brokers: if code.is_none() { brokers(broker, context, request.include_fenced_brokers) } else { Vec::new() },
        cluster_authorized_operations: operations,
        ..DescribeClusterResponse::default()
    }
}

fn brokers(broker: &Broker, context: &RequestContext, include_fenced: bool) -> Vec<DescribeClusterBroker> {
    let image = broker.metadata.image();
    let shown = image.brokers().filter(|known| include_fenced || !known.fenced);
    let reached = shown.filter_map(|known| {
        let endpoint = known.endpoint(&context.listener)?;
        Some(DescribeClusterBroker {
            broker_id: known.id.0,
            host: endpoint.host.as_str().into(),
            port: i32::from(endpoint.port),
            rack: known.rack.as_deref().map(Str::from),
            is_fenced: known.fenced,
        })
    });
    reached.collect()
}
