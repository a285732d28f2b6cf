//! ListConfigResources: what has settings. Version 0 asks for client metrics alone, of which there are none.

use std::sync::Arc;

use forebay_broker_machines::metadata::MetadataImage;
use forebay_broker_wire::messages::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use forebay_broker_wire::types::{ErrorCode, Str};

use super::config_resource::{BROKER, TOPIC};
use super::request::RequestContext;
use crate::broker::Broker;

/// The protocol's numbers of all types that may be asked for: topic, broker, broker logger, client metrics, group.
const KNOWN: [i8; 5] = [TOPIC, BROKER, 8, 16, 32];
/// Types may be asked for from this version on.
const TYPES_FROM_VERSION: i16 = 1;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    if context.api_version < TYPES_FROM_VERSION {
        return ListConfigResourcesResponse::default();
    }
    let types = if request.resource_types.is_empty() { KNOWN.to_vec() } else { request.resource_types };
    if types.iter().any(|kind| !KNOWN.contains(kind)) {
        let error_code = ErrorCode::UnsupportedVersion.code();
        return ListConfigResourcesResponse { error_code, ..ListConfigResourcesResponse::default() };
    }
    let config_resources = resources(&broker.metadata.image(), &types);
    ListConfigResourcesResponse { config_resources, ..ListConfigResourcesResponse::default() }
}

fn resources(image: &MetadataImage, types: &[i8]) -> Vec<ConfigResource> {
    let mut resources = Vec::new();
    if types.contains(&TOPIC) {
        let topic = |name: &str| ConfigResource { resource_name: Str::from(name), resource_type: TOPIC };
        resources.extend(image.topics().map(|known| topic(&known.name)));
    }
    if types.contains(&BROKER) {
        let broker = |id: i32| ConfigResource { resource_name: id.to_string().into(), resource_type: BROKER };
        resources.extend(image.brokers().map(|known| broker(known.id.0)));
    }
    resources
}
