//! A message known by name only: what tests and fuzzers do with all of them alike.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::message::{Data, Message};
use crate::primitives::{DecodeError, Decoder, EncodeError, Encoder};
use crate::types::ApiKey;

/// What is left of a message after it was read: how many bytes followed it, and how it is written again.
#[derive(Debug)]
pub struct Recoded {
    /// Bytes after the message.
    pub trailing_bytes: usize,
    /// The message as we write it.
    pub encoded: Result<Bytes, EncodeError>,
}

/// One message's codec.
#[derive(Clone, Debug)]
pub struct AnyMessage {
    /// The specification's name.
    pub name: &'static str,
    /// The API, of a request or response.
    pub api_key: Option<ApiKey>,
    /// The versions it has.
    pub versions: RangeInclusive<i16>,
    /// Reads the message and writes it again.
    pub recode: fn(Bytes, i16) -> Result<Recoded, DecodeError>,
    /// Writes the message's default.
    pub default: fn(i16) -> Result<Bytes, EncodeError>,
}

impl AnyMessage {
    /// The API that this is a request of.
    #[must_use]
    pub fn requested_api(&self) -> Option<ApiKey> {
        self.api_key.filter(|_| self.name.ends_with("Request"))
    }

    /// The codec of a request or a response.
    #[must_use]
    pub const fn message<M: Message + Default>(name: &'static str) -> Self {
        Self {
            name,
            api_key: Some(M::API_KEY),
            versions: M::VERSIONS,
            recode: |bytes, version| recode(bytes, |d| M::decode(d, version), |m, e| m.encode(e, version)),
            default: |version| encoded(|e| M::default().encode(e, version)),
        }
    }

    /// The codec of what is stored or embedded.
    #[must_use]
    pub const fn data<D: Data + Default>(name: &'static str) -> Self {
        Self {
            name,
            api_key: None,
            versions: D::VERSIONS,
            recode: |bytes, version| recode(bytes, |d| D::decode(d, version), |m, e| m.encode(e, version)),
            default: |version| encoded(|e| D::default().encode(e, version)),
        }
    }
}

fn recode<M>(
    bytes: Bytes,
    decode: impl FnOnce(&mut Decoder) -> Result<M, DecodeError>,
    encode: impl FnOnce(&M, &mut Encoder) -> Result<(), EncodeError>,
) -> Result<Recoded, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let message = decode(&mut decoder)?;
    Ok(Recoded { trailing_bytes: decoder.remaining(), encoded: encoded(|e| encode(&message, e)) })
}

fn encoded(encode: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) -> Result<Bytes, EncodeError> {
    let mut encoder = Encoder::new();
    encode(&mut encoder)?;
    Ok(encoder.into_bytes().unwrap_or_default())
}
