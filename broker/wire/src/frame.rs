//! Frames: a 4-byte size, a header, a body. Which header a frame has depends on API and version, and is decided here only.
//! Reading a size and waiting for that many bytes is the connection's matter; everything here works on a whole frame without its size.

use thiserror::Error;

use crate::message::{ApiInfo, Message, Request};
use crate::messages::api_info;
use crate::primitives::{DecodeError, Decoder, EncodeError, Encoder, Part};
use crate::types::{ApiKey, Str};

/// Bytes that a frame's size takes.
pub const SIZE_BYTES: usize = 4;

/// Why a frame can't be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The body can't be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The frame's size does not fit its prefix.
    #[error("frame has {bytes} bytes, the most is {most}", most = i32::MAX)]
    TooLarge {
        /// Bytes the frame would have.
        bytes: usize,
    },
}

/// What goes before every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Which API; may be a key nobody knows.
    pub api_key: i16,
    /// Which version of it; may be a version nobody knows.
    pub api_version: i16,
    /// Comes back with the response.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads a header whose API and version need not be known: then its tagged fields, if any, are left to the body. An ApiVersions
    /// request of a version from the future is thus readable as far as answering it needs.
    pub fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let header = Self {
            api_key: decoder.i16("RequestHeader.request_api_key")?,
            api_version: decoder.i16("RequestHeader.request_api_version")?,
            correlation_id: decoder.i32("RequestHeader.correlation_id")?,
            // Never flexible, so that a broker can read it before it knows the version.
            client_id: decoder.string_opt(false, "RequestHeader.client_id")?,
        };
        if header.is_flexible() {
            decoder.skip_tagged("RequestHeader")?;
        }
        Ok(header)
    }

    /// Writes the header.
    pub fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.i16(self.api_key);
        encoder.i16(self.api_version);
        encoder.i32(self.correlation_id);
        encoder.string_opt(false, "RequestHeader.client_id", self.client_id.as_deref())?;
        if self.is_flexible() {
            encoder.uvarint(0);
        }
        Ok(())
    }

    /// The API, if it is one we have messages for.
    #[must_use]
    pub fn api(&self) -> Option<&'static ApiInfo> {
        ApiKey::from_i16(self.api_key).and_then(api_info)
    }

    fn is_flexible(&self) -> bool {
        self.api().is_some_and(|api| request_header_version(api, self.api_version) >= 2)
    }
}

/// 2 with tagged fields, else 1.
#[must_use]
pub fn request_header_version(api: &ApiInfo, version: i16) -> i16 {
    if api.is_flexible(version) { 2 } else { 1 }
}

/// 1 with tagged fields, else 0. ApiVersions always has 0: its client does not know yet what the broker speaks.
#[must_use]
pub fn response_header_version(api: &ApiInfo, version: i16) -> i16 {
    if api.key != ApiKey::ApiVersions && api.is_flexible(version) { 1 } else { 0 }
}

fn response_header_is_flexible(key: ApiKey, version: i16) -> bool {
    api_info(key).is_some_and(|api| response_header_version(api, version) >= 1)
}

/// Reads a response's header and returns the correlation id; the body follows.
pub fn decode_response_header(decoder: &mut Decoder, key: ApiKey, version: i16) -> Result<i32, DecodeError> {
    let correlation_id = decoder.i32("ResponseHeader.correlation_id")?;
    if response_header_is_flexible(key, version) {
        decoder.skip_tagged("ResponseHeader")?;
    }
    Ok(correlation_id)
}

/// A whole request frame, size included.
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<Str>,
) -> Result<Vec<Part>, FrameError> {
    let header = RequestHeader { api_key: R::API_KEY.as_i16(), api_version: version, correlation_id, client_id };
    frame(|encoder| {
        header.encode(encoder)?;
        request.encode(encoder, version)
    })
}

/// A whole response frame, size included.
pub fn encode_response<M: Message>(response: &M, version: i16, correlation_id: i32) -> Result<Vec<Part>, FrameError> {
    frame(|encoder| {
        encoder.i32(correlation_id);
        if response_header_is_flexible(M::API_KEY, version) {
            encoder.uvarint(0);
        }
        response.encode(encoder, version)
    })
}

fn frame(content: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) -> Result<Vec<Part>, FrameError> {
    let mut encoder = Encoder::with_capacity(256);
    encoder.i32(0);
    content(&mut encoder)?;
    let bytes = encoder.len() - SIZE_BYTES;
    encoder.patch_i32(0, i32::try_from(bytes).map_err(|_| FrameError::TooLarge { bytes })?);
    Ok(encoder.finish())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
    use crate::messages::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};
    use crate::messages::heartbeat::HeartbeatResponse;
    use crate::primitives::Records;

    fn whole(parts: Vec<Part>) -> Vec<u8> {
        let bytes = parts.into_iter().map(|part| match part {
            Part::Bytes(bytes) => bytes,
            Part::Region { length, .. } => Bytes::from(vec![b'R'; length as usize]),
        });
        bytes.collect::<Vec<_>>().concat()
    }

    #[test]
    fn a_request_is_read_as_it_was_sent() {
        let request = ApiVersionsRequest { client_software_name: "forebay".into(), ..Default::default() };
        for (version, header_tags) in [(0, 0), (3, 1)] {
            let request = if version < 3 { ApiVersionsRequest::default() } else { request.clone() };
            let frame = whole(encode_request(&request, version, 7, Some("cli".into())).unwrap());
            let size = u32::from_be_bytes(*frame.first_chunk().unwrap()) as usize;
            assert_eq!(size, frame.len() - SIZE_BYTES);
            assert_eq!(&frame[4..17], [0, 18, 0, version.to_be_bytes()[1], 0, 0, 0, 7, 0, 3, b'c', b'l', b'i']);
            let mut decoder = Decoder::new(Bytes::from(frame).slice(SIZE_BYTES..));
            let before = decoder.remaining();
            let header = RequestHeader::decode(&mut decoder).unwrap();
            assert_eq!(before - decoder.remaining(), 13 + header_tags);
            assert_eq!((header.api_version, header.correlation_id, header.client_id), (version, 7, Some("cli".into())));
            assert_eq!(ApiVersionsRequest::decode(&mut decoder, version), Ok(request));
        }
    }

    #[test]
    fn a_version_from_the_future_is_readable_up_to_the_body() {
        let bytes = Bytes::from_static(&[0, 18, 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0, 1, 2]);
        let header = RequestHeader::decode(&mut Decoder::new(bytes)).unwrap();
        assert_eq!((header.api_version, header.client_id), (99, None));
        let unknown = Bytes::from_static(&[0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff]);
        let header = RequestHeader::decode(&mut Decoder::new(unknown)).unwrap();
        assert_eq!(header.api(), None);
    }

    #[test]
    fn a_response_to_api_versions_never_has_tagged_fields_in_its_header() {
        let response = ApiVersionsResponse {
            api_keys: vec![ApiVersion { api_key: 18, ..Default::default() }],
            ..Default::default()
        };
        let frame = whole(encode_response(&response, 3, 9).unwrap());
        assert_eq!(&frame[4..11], [0, 0, 0, 9, 0, 0, 2]);
        let frame = whole(encode_response(&HeartbeatResponse::default(), 4, 9).unwrap());
        assert_eq!(&frame[4..9], [0, 0, 0, 9, 0]);
        let mut decoder = Decoder::new(Bytes::from(frame).slice(SIZE_BYTES..));
        assert_eq!(decode_response_header(&mut decoder, ApiKey::Heartbeat, 4), Ok(9));
        assert_eq!(HeartbeatResponse::decode(&mut decoder, 4), Ok(HeartbeatResponse::default()));
    }

    #[test]
    fn a_frames_size_counts_the_regions_in_it() {
        let partition =
            PartitionData { records: Some(Records::Region { token: 3, length: 500 }), ..Default::default() };
        let topic = FetchableTopicResponse { partitions: vec![partition], ..Default::default() };
        let response = FetchResponse { responses: vec![topic], ..Default::default() };
        let parts = encode_response(&response, 16, 1).unwrap();
        assert!(parts.contains(&Part::Region { token: 3, length: 500 }));
        let frame = whole(parts);
        let size = u32::from_be_bytes(*frame.first_chunk().unwrap()) as usize;
        assert_eq!(size, frame.len() - SIZE_BYTES);
        let mut decoder = Decoder::new(Bytes::from(frame).slice(SIZE_BYTES..));
        decode_response_header(&mut decoder, ApiKey::Fetch, 16).unwrap();
        let read = FetchResponse::decode(&mut decoder, 16).unwrap();
        let records = read.responses[0].partitions[0].records.as_ref().unwrap();
        assert_eq!(records.as_bytes().unwrap(), &vec![b'R'; 500]);
    }

    #[test]
    fn error_codes_are_found_however_deep_they_are() {
        let failed = |error_code| PartitionData { error_code, ..Default::default() };
        let topic = FetchableTopicResponse { partitions: vec![failed(0), failed(6), failed(1)], ..Default::default() };
        let response = FetchResponse { error_code: 70, responses: vec![topic], ..Default::default() };
        let mut codes = Vec::new();
        response.for_each_error_code(&mut |code| codes.push(code));
        assert_eq!(codes, [70, 6, 1]);
    }
}
