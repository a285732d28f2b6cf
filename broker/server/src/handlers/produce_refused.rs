//! Produce 0 to 2: told to clients because old ones derive features from it, and refused with an answer they can read.
//!
//! These versions carry record formats from before version 2 and have no generated messages; what is needed of them is
//! small and written out here. With acks=0 no answer may be given: then the connection ends.

use std::sync::Arc;

use forebay_broker_wire::primitives::{DecodeError, Decoder, EncodeError, Encoder, Part};
use forebay_broker_wire::types::{ApiKey, ErrorCode, Str};

use super::request::{RequestContext, RequestError};
use crate::broker::Broker;
use crate::net::send::Answer;

struct Asked {
    acks: i16,
    topics: Vec<(Str, Vec<i32>)>,
}

pub(crate) async fn answer(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut body: Decoder,
) -> Result<Answer, RequestError> {
    let (api, version) = (ApiKey::Produce.name(), context.api_version);
    let asked = decode(&mut body).map_err(|source| RequestError::Body { api, version, source })?;
    if asked.acks == 0 {
        let message = format!("version {version} is not supported");
        return Err(RequestError::ProduceWithoutAcks { message });
    }
    broker.metrics.requests.error(ApiKey::Produce, ErrorCode::UnsupportedVersion);
    let parts = encode(context, &asked).map_err(|error| RequestError::Answer { api, version, source: error.into() })?;
    Ok(Answer { parts, files: Vec::new() })
}

fn decode(body: &mut Decoder) -> Result<Asked, DecodeError> {
    let acks = body.i16("ProduceRequest.acks")?;
    body.i32("ProduceRequest.timeout_ms")?;
    let topics = body.array(false, "ProduceRequest.topic_data", 6, |body| {
        let name = body.string(false, "TopicProduceData.name")?;
        let partitions = body.array(false, "TopicProduceData.partition_data", 8, |body| {
            let index = body.i32("PartitionProduceData.index")?;
            body.bytes_opt(false, "PartitionProduceData.records")?;
            Ok(index)
        })?;
        Ok((name, partitions))
    })?;
    Ok(Asked { acks, topics })
}

fn encode(context: &RequestContext, asked: &Asked) -> Result<Vec<Part>, EncodeError> {
    let mut body = Encoder::new();
    body.i32(context.correlation_id);
    body.array(false, "ProduceResponse.responses", &asked.topics, |body, (name, partitions)| {
        body.string(false, "TopicProduceResponse.name", name)?;
        body.array(false, "TopicProduceResponse.partition_responses", partitions, |body, index| {
            body.i32(*index);
            body.i16(ErrorCode::UnsupportedVersion.code());
            body.i64(-1);
            if context.api_version >= 2 {
                body.i64(-1);
            }
            Ok(())
        })
    })?;
    if context.api_version >= 1 {
        body.i32(0);
    }
    let bytes = body.into_bytes().unwrap_or_default();
    let mut frame = Encoder::new();
    frame.bytes(false, "frame", &bytes)?;
    Ok(frame.finish())
}
