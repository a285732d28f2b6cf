//! What every generated message can do, whatever it is.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::primitives::{DecodeError, Decoder, EncodeError, Encoder};
use crate::types::ApiKey;

/// What the generated modules use.
pub(crate) mod prelude {
    pub(crate) use std::ops::RangeInclusive;

    pub(crate) use bytes::Bytes;

    pub(crate) use super::{Data, Message, Request};
    pub(crate) use crate::primitives::{DecodeError, Decoder, EncodeError, Encoder, Records};
    pub(crate) use crate::types::{ApiKey, Str, Uuid};
}

/// A request or a response.
pub trait Message: Sized {
    /// The API it belongs to.
    const API_KEY: ApiKey;
    /// The versions it has.
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with varint lengths and tagged fields.
    const FLEXIBLE_FROM: Option<i16>;

    /// Reads the body, which starts after the header. Bytes that follow it are left to the caller.
    fn decode(decoder: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the body. A field that `version` does not have is dropped only where the protocol says that it may be; otherwise a value
    /// other than the default is an error.
    fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError>;

    /// Calls `f` with every error code in the message that is not 0; requests have none.
    fn for_each_error_code(&self, _f: &mut dyn FnMut(i16)) {}
}

/// A request, with what answers it.
pub trait Request: Message {
    /// What answers it.
    type Response: Message;
}

/// A message that is stored or embedded rather than sent: group records, transaction records, the consumer protocol. On disk and in
/// the consumer protocol a 16-bit number goes before it, see [`Data::to_prefixed_bytes`].
pub trait Data: Sized {
    /// The versions it has.
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with varint lengths and tagged fields.
    const FLEXIBLE_FROM: Option<i16>;
    /// For the records of a coordinator's log: the number that says which record it is, and that goes before the *key*.
    const RECORD_TYPE: Option<i16>;

    /// Reads the body.
    fn decode(decoder: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the body; see [`Message::encode`].
    fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError>;

    /// The body after its version: a coordinator's record value, or a subscription or assignment of the consumer protocol.
    fn to_prefixed_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        self.to_bytes_after(version, version)
    }

    /// The body after the record type: a coordinator's record key. Keys have one version only.
    fn to_key_bytes(&self) -> Result<Bytes, EncodeError> {
        self.to_bytes_after(Self::RECORD_TYPE.unwrap_or(*Self::VERSIONS.end()), *Self::VERSIONS.end())
    }

    /// The body at `version` after any 16-bit number.
    fn to_bytes_after(&self, prefix: i16, version: i16) -> Result<Bytes, EncodeError> {
        let mut encoder = Encoder::with_capacity(64);
        encoder.i16(prefix);
        self.encode(&mut encoder, version)?;
        Ok(encoder.into_bytes().unwrap_or_default())
    }

    /// Reads what [`Data::to_prefixed_bytes`] wrote. A version newer than ours is read as our newest, as the consumer protocol wants
    /// it: newer versions only add at the end.
    fn from_prefixed_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let version = decoder.i16("version")?;
        Self::decode(&mut decoder, version.min(*Self::VERSIONS.end()))
    }
}

/// The versions of an API, as the protocol has them; which of them a server offers is its own matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiInfo {
    /// The API.
    pub key: ApiKey,
    /// Lowest version.
    pub min: i16,
    /// Highest version whose format is settled.
    pub max: i16,
    /// Highest version there are messages for; above `max` where the protocol marks its newest as unstable.
    pub max_unstable: i16,
    /// The first version with varint lengths and tagged fields, for request and response alike.
    pub flexible_from: Option<i16>,
}

impl ApiInfo {
    /// Whether this version has varint lengths and tagged fields.
    #[must_use]
    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible_from.is_some_and(|from| version >= from)
    }
}
