//! ApiVersions: what this broker speaks. The only API that is answered whatever version is asked for.
//!
//! What must hold: a version from the future gets a version-0 answer with UNSUPPORTED_VERSION and our ranges, so that the
//! client can come again; a closed connection would make old clients guess.

use std::sync::Arc;

use forebay_broker_wire::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use forebay_broker_wire::primitives::Decoder;
use forebay_broker_wire::types::{ApiKey, ErrorCode};

use super::request::{RequestContext, RequestError};
use super::{decode, encode, versions};
use crate::broker::Broker;
use crate::net::send::Answer;

pub(crate) async fn answer(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut body: Decoder,
) -> Result<Answer, RequestError> {
    let served = versions::served(ApiKey::ApiVersions).is_some_and(|versions| versions.contains(&context.api_version));
    if !served {
        let context = RequestContext { api_version: 0, ..context.clone() };
        return encode(broker, &context, &response(ErrorCode::UnsupportedVersion), Vec::new());
    }
    let request = decode(context, &mut body)?;
    encode(broker, context, &response(check(broker, context, &request)), Vec::new())
}

fn check(broker: &Broker, context: &RequestContext, request: &ApiVersionsRequest) -> ErrorCode {
    if context.api_version >= 3
        && !(is_valid(&request.client_software_name) && is_valid(&request.client_software_version))
    {
        return ErrorCode::InvalidRequest;
    }
    // A client that learnt of another cluster or broker under this address has to start from its bootstrap list again.
    let other_cluster = request.cluster_id.as_deref().is_some_and(|id| id != broker.cluster_id());
    let other_broker = request.node_id >= 0 && request.node_id != broker.config.broker_id;
    if other_cluster || other_broker { ErrorCode::RebootstrapRequired } else { ErrorCode::None }
}

/// Letters, digits, `-` and `.`; both ends are letters or digits.
fn is_valid(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

fn response(error: ErrorCode) -> ApiVersionsResponse {
    let api_keys = versions::TABLE.iter().map(|api| ApiVersion {
        api_key: api.key.as_i16(),
        min_version: api.min,
        max_version: api.max,
    });
    ApiVersionsResponse { error_code: error.code(), api_keys: api_keys.collect(), ..ApiVersionsResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_checked_as_the_protocol_says() {
        assert!(is_valid("apache-kafka-java") && is_valid("4.4.0") && is_valid("x"));
        for name in ["", "-x", "x.", "a b", "a\0b", "ü"] {
            assert!(!is_valid(name), "{name:?}");
        }
    }

    #[test]
    fn every_api_of_the_table_is_told() {
        let told = response(ErrorCode::UnsupportedVersion);
        assert_eq!(told.error_code, 35);
        assert_eq!(told.api_keys.len(), versions::TABLE.len());
        let produce = told.api_keys.iter().find(|api| api.api_key == 0).unwrap();
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
    }
}
