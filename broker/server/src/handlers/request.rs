//! A received frame as a request: who asks what, in which version. Bodies are decoded by the handler table.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use forebay_broker_wire::frame::{FrameError, RequestHeader};
use forebay_broker_wire::primitives::{DecodeError, Decoder};
use forebay_broker_wire::types::{ApiKey, Str};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;

use super::{KEPT_FRAME_BYTES_MAX, versions};
use crate::net::budget::Charge;
use crate::net::connection::Peer;

/// What a handler may know of a request besides its body.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) api_version: i16,
    pub(crate) client_id: Option<Str>,
    pub(crate) client_host: Arc<str>,
    pub(crate) correlation_id: i32,
    /// Name of the listener the client came in by: it decides which address it is told.
    pub(crate) listener: Arc<str>,
    pub(crate) received_at: Instant,
    /// Told when the client sends its next request while this one waits.
    pub(crate) hurry: Arc<Notify>,
    /// Bytes of the budget that it holds while it is dealt with.
    pub(crate) held: Option<Held>,
}

/// What a request holds of the budget, however many look at it.
#[derive(Debug, Clone)]
pub(crate) struct Held(Arc<Mutex<Charge>>);

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().bytes()
    }

    /// What is decoded of the request takes no more than `bytes`.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        self.0.lock().shrink_to(bytes);
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) api_key: ApiKey,
    pub(crate) context: RequestContext,
    pub(crate) body: Decoder,
}

/// Why a request ends its connection: the protocol has no answer for these that the client could read.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    #[error("request header: {0}")]
    Header(#[source] DecodeError),
    #[error("API key {api_key} is not served")]
    UnknownApi { api_key: i16 },
    #[error("{api} version {version} is not served, only {min}-{max}")]
    UnknownVersion { api: &'static str, version: i16, min: i16, max: i16 },
    #[error("{api} version {version} request: {source}")]
    Body { api: &'static str, version: i16, source: DecodeError },
    #[error("{api} version {version} response: {source}")]
    Answer { api: &'static str, version: i16, source: FrameError },
    #[error("Produce with acks=0 failed: {message}")]
    ProduceWithoutAcks { message: String },
}

impl Request {
    pub(crate) fn parse(peer: &Peer, frame: Bytes) -> Result<Self, RequestError> {
        let received_at = Instant::now();
        let mut body = Decoder::new(frame);
        let header = RequestHeader::decode(&mut body).map_err(RequestError::Header)?;
        let RequestHeader { api_key, api_version, correlation_id, client_id } = header;
        let unknown = RequestError::UnknownApi { api_key };
        let api_key = ApiKey::from_i16(api_key).ok_or(unknown)?;
        let served = versions::served(api_key).ok_or(RequestError::UnknownApi { api_key: api_key.as_i16() })?;
        // ApiVersions alone can be answered in a version that the client did not ask for. What is told to clients but not
        // served (old Produce) is refused by its handler.
        let told = versions::find(api_key).is_some_and(|api| (api.min..=api.max).contains(&api_version));
        if !told && api_key != ApiKey::ApiVersions {
            let (min, max) = (*served.start(), *served.end());
            return Err(RequestError::UnknownVersion { api: api_key.name(), version: api_version, min, max });
        }
        let context = RequestContext {
            api_version,
            client_id,
            client_host: Arc::clone(&peer.host),
            correlation_id,
            listener: Arc::clone(&peer.listener),
            received_at,
            hurry: Arc::clone(&peer.hurry),
            held: None,
        };
        Ok(Self { api_key, context, body })
    }

    /// Gives it the charge of its frame, so that it can give back what it does not need. None of its parts keeps the frame any more
    /// when it is decoded.
    pub(crate) fn hold(mut self, charge: Charge) -> Self {
        if charge.bytes() > KEPT_FRAME_BYTES_MAX {
            self.context.client_id = self.context.client_id.map(|id| Str::from(&*id));
        }
        self.context.held = Some(Held(Arc::new(Mutex::new(charge))));
        self
    }

    /// Whether it may be held until there is something to answer.
    pub(crate) fn waits(&self) -> bool {
        self.api_key == ApiKey::Fetch
    }

    /// Whether the next request may begin before this one is answered.
    pub(crate) fn overlaps(&self) -> bool {
        let served = versions::served(self.api_key).is_some_and(|served| served.contains(&self.context.api_version));
        self.api_key == ApiKey::Produce && served
    }
}
