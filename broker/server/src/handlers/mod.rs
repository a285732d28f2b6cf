//! One file per API; here the one match that leads to them: decode, handle, encode.
//!
//! What must hold: a handler decides nothing about sockets and never blocks its thread; it gets a decoded request and
//! gives a response; errors inside are answers with Kafka's codes (`error_code.rs`). What can't be answered at all ends
//! the connection as a [`RequestError`].

mod alter_configs;
mod alter_partition_reassignments;
mod alter_replica_log_dirs;
mod api_versions;
mod config_resource;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_quorum;
mod describe_topic_partitions;
mod elect_leaders;
pub(crate) mod error_code;
pub(crate) mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
pub(crate) mod init_producer_id;
mod join_group;
mod leader_hint;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
pub(crate) mod lookup;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
pub(crate) mod pass_on;
pub(crate) mod produce;
mod produce_refused;
mod repeated;
pub(crate) mod request;
pub(crate) mod setbacks;
mod sync_group;
mod unregister_broker;
pub(crate) mod versions;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use forebay_broker_wire::frame::encode_response;
use forebay_broker_wire::messages::{Message, Request as WireRequest};
use forebay_broker_wire::primitives::{Decoder, Encoder};
use forebay_broker_wire::types::{ApiKey, ErrorCode};

use self::produce::PendingProduce;
pub(crate) use self::request::RequestContext;
use self::request::{Request, RequestError};
use crate::broker::Broker;
use crate::net::send::{Answer, FileRange};

/// Of larger frames a request keeps only what it needs while it waits: clients may put into them what nobody reads.
pub(crate) const KEPT_FRAME_BYTES_MAX: usize = 16 * 1024;

/// A request dealt with; no answer is due to a Produce with acks=0.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) api_key: ApiKey,
    pub(crate) received_at: Instant,
    pub(crate) answer: Option<Answer>,
}

type Handling<'a> = Pin<Box<dyn Future<Output = Result<Answer, RequestError>> + Send + 'a>>;

/// Takes in a Produce, to be handed over with those that came with it (`produce::hand_over`).
pub(crate) fn begin_produce(broker: &Arc<Broker>, mut request: Request) -> Result<PendingProduce, RequestError> {
    let body = decode(&request.context, &mut request.body)?;
    Ok(produce::begin(broker, request.context, body))
}

/// Handles any other request to its end.
pub(crate) async fn handle(broker: &Arc<Broker>, request: Request) -> Result<Finished, RequestError> {
    let Request { api_key, context, body } = request;
    let answer = route(broker, &context, api_key, body).await?;
    Ok(Finished { api_key, received_at: context.received_at, answer: Some(answer) })
}

fn route<'a>(broker: &'a Arc<Broker>, context: &'a RequestContext, api_key: ApiKey, body: Decoder) -> Handling<'a> {
    match api_key {
        ApiKey::AlterConfigs => serve(broker, context, body, alter_configs::handle),
        ApiKey::AlterPartitionReassignments => serve(broker, context, body, alter_partition_reassignments::handle),
        ApiKey::AlterReplicaLogDirs => serve(broker, context, body, alter_replica_log_dirs::handle),
        ApiKey::ApiVersions => Box::pin(api_versions::answer(broker, context, body)),
        ApiKey::CreatePartitions => serve(broker, context, body, create_partitions::handle),
        ApiKey::CreateTopics => serve(broker, context, body, create_topics::handle),
        ApiKey::DeleteRecords => serve(broker, context, body, delete_records::handle),
        ApiKey::DeleteTopics => serve(broker, context, body, delete_topics::handle),
        ApiKey::DescribeCluster => serve(broker, context, body, describe_cluster::handle),
        ApiKey::DescribeConfigs => serve(broker, context, body, describe_configs::handle),
        ApiKey::DescribeLogDirs => serve(broker, context, body, describe_log_dirs::handle),
        ApiKey::DescribeTopicPartitions => serve(broker, context, body, describe_topic_partitions::handle),
        ApiKey::ElectLeaders => serve(broker, context, body, elect_leaders::handle),
        ApiKey::Fetch => Box::pin(fetch::answer(broker, context, body)),
        ApiKey::IncrementalAlterConfigs => serve(broker, context, body, incremental_alter_configs::handle),
        ApiKey::InitProducerId => serve(broker, context, body, init_producer_id::handle),
        ApiKey::ListConfigResources => serve(broker, context, body, list_config_resources::handle),
        ApiKey::ListOffsets => serve(broker, context, body, list_offsets::handle),
        ApiKey::DescribeQuorum => serve(broker, context, body, describe_quorum::handle),
        ApiKey::ListPartitionReassignments => serve(broker, context, body, list_partition_reassignments::handle),
        ApiKey::Metadata => serve(broker, context, body, metadata::handle),
        ApiKey::OffsetForLeaderEpoch => serve(broker, context, body, offset_for_leader_epoch::handle),
        ApiKey::FindCoordinator => serve(broker, context, body, find_coordinator::handle),
        ApiKey::JoinGroup => serve(broker, context, body, join_group::handle),
        ApiKey::SyncGroup => serve(broker, context, body, sync_group::handle),
        ApiKey::Heartbeat => serve(broker, context, body, heartbeat::handle),
        ApiKey::LeaveGroup => serve(broker, context, body, leave_group::handle),
        ApiKey::OffsetCommit => serve(broker, context, body, offset_commit::handle),
        ApiKey::OffsetFetch => serve(broker, context, body, offset_fetch::handle),
        ApiKey::OffsetDelete => serve(broker, context, body, offset_delete::handle),
        ApiKey::ListGroups => serve(broker, context, body, list_groups::handle),
        ApiKey::DescribeGroups => serve(broker, context, body, describe_groups::handle),
        ApiKey::DeleteGroups => serve(broker, context, body, delete_groups::handle),
        ApiKey::UnregisterBroker => serve(broker, context, body, unregister_broker::handle),
        // Only versions that are refused come here; the others go by `begin_produce`.
        ApiKey::Produce => Box::pin(produce_refused::answer(broker, context, body)),
        // Whatever is not in the table of versions was refused before.
        _ => Box::pin(async move { Err(RequestError::UnknownApi { api_key: api_key.as_i16() }) }),
    }
}

fn serve<'a, R, F>(
    broker: &'a Arc<Broker>,
    context: &'a RequestContext,
    mut body: Decoder,
    handle: impl FnOnce(&'a Arc<Broker>, &'a RequestContext, R) -> F + Send + 'a,
) -> Handling<'a>
where
    R: WireRequest + Send + 'a,
    R::Response: Send,
    F: Future<Output = R::Response> + Send + 'a,
{
    Box::pin(async move {
        let request = decode(context, &mut body)?;
        let response = handle(broker, context, request).await;
        encode(broker, context, &response, Vec::new())
    })
}

fn decode<R: WireRequest>(context: &RequestContext, body: &mut Decoder) -> Result<R, RequestError> {
    let (api, version) = (R::API_KEY.name(), context.api_version);
    let request = R::decode(body, version).map_err(|source| RequestError::Body { api, version, source })?;
    let Some(held) = context.held.as_ref().filter(|held| held.bytes() > KEPT_FRAME_BYTES_MAX) else {
        return Ok(request);
    };
    let Some((slim, bytes)) = without_frame(&request, version) else { return Ok(request) };
    drop((request, std::mem::replace(body, Decoder::new(Bytes::new()))));
    held.shrink_to(bytes);
    Ok(slim)
}

/// The same request, whose texts are no slices of its frame; with the bytes that it keeps. What this version does not know of is gone.
fn without_frame<R: WireRequest>(request: &R, version: i16) -> Option<(R, usize)> {
    let mut encoder = Encoder::new();
    request.encode(&mut encoder, version).ok()?;
    let bytes = encoder.into_bytes()?;
    let kept = bytes.len();
    Some((R::decode(&mut Decoder::new(bytes), version).ok()?, kept))
}

/// The response as a frame; `files` are the ranges that its records name. Its error codes are counted here, for every API.
fn encode<M: Message>(
    broker: &Broker,
    context: &RequestContext,
    response: &M,
    files: Vec<FileRange>,
) -> Result<Answer, RequestError> {
    let (api, version) = (M::API_KEY.name(), context.api_version);
    response.for_each_error_code(&mut |code| broker.metrics.requests.error(M::API_KEY, ErrorCode::from_code(code)));
    let parts = encode_response(response, version, context.correlation_id).map_err(|source| RequestError::Answer {
        api,
        version,
        source,
    })?;
    Ok(Answer { parts, files })
}
