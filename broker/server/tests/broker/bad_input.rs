//! Bytes that are no protocol: at most their own connection ends.

use std::io::Write;

use forebay_broker_wire::messages::Message;
use forebay_broker_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use forebay_broker_wire::messages::metadata::MetadataRequest;
use forebay_broker_wire::primitives::Decoder;
use forebay_broker_wire::types::ErrorCode;

use crate::harness::TestBroker;

fn still_works(broker: &TestBroker) {
    let response = broker.client().call(&ApiVersionsRequest::default(), 0);
    assert_eq!(response.error_code, 0);
}

#[test]
fn a_frame_that_is_too_large_or_negative_ends_its_connection_only() {
    let broker = TestBroker::start_with(&["socket.request.max.bytes=10000"]);
    for size in [10_001_i32, i32::MAX, -1, i32::MIN] {
        let mut client = broker.client();
        client.stream.write_all(&size.to_be_bytes()).unwrap();
        assert!(client.is_closed(), "size {size}");
    }
    still_works(&broker);
}

#[test]
fn garbage_ends_its_connection_only() {
    let broker = TestBroker::start();
    let frames: [&[u8]; 6] = [
        b"",
        b"\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        // Metadata 0 that counts 54 million topics in eight bytes.
        b"\x00\x03\x00\x00\x03\x3c\x0c\x00\xb6",
        b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff",
        b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff",
    ];
    for frame in frames {
        let mut client = broker.client();
        client.stream.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
        client.stream.write_all(frame).unwrap();
        assert!(client.is_closed(), "{frame:?}");
    }
    still_works(&broker);
}

#[test]
fn every_api_with_a_cut_body_ends_its_connection_only() {
    let broker = TestBroker::start();
    for api_key in -1_i16..100 {
        let mut client = broker.client();
        let mut frame = Vec::new();
        frame.extend(api_key.to_be_bytes());
        frame.extend(3_i16.to_be_bytes());
        frame.extend(7_i32.to_be_bytes());
        frame.extend([0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x01]);
        client.stream.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
        client.stream.write_all(&frame).unwrap();
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        while !client.is_closed() {}
    }
    still_works(&broker);
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    // Header of version 2: null client id, no tagged fields; the body may be anything.
    client.stream.write_all(b"\x00\x00\x00\x0e\x00\x12\x00\x63\x00\x00\x00\x2a\xff\xff\x00\x01\x02\x03").unwrap();
    let mut decoder = Decoder::new(client.receive_frame());
    assert_eq!(decoder.i32("correlation id").unwrap(), 42);
    let response = ApiVersionsResponse::decode(&mut decoder, 0).unwrap();
    assert_eq!(response.error_code, ErrorCode::UnsupportedVersion.code());
    let own = response.api_keys.iter().find(|api| api.api_key == 18).unwrap();
    assert!(own.max_version >= 4);
    // The connection is good for the next try.
    assert_eq!(client.call(&ApiVersionsRequest::default(), 0).error_code, 0);
}

#[test]
fn an_unknown_version_of_another_api_ends_the_connection() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.stream.write_all(b"\x00\x00\x00\x0a\x00\x03\x00\x63\x00\x00\x00\x2a\xff\xff").unwrap();
    assert!(client.is_closed());
    let response = broker.client().call(&MetadataRequest { topics: None, ..MetadataRequest::default() }, 9);
    assert_eq!(response.brokers.len(), 1);
}

#[test]
fn produce_of_before_version_3_is_refused_in_its_own_words() {
    let broker = TestBroker::start();
    for version in 0_u8..=2 {
        let mut client = broker.client();
        // acks 1, timeout 0, one topic "t" with partition 7 and no records.
        let body = b"\xff\xff\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x07\xff\xff\xff\xff";
        let mut frame = vec![0, 0, 0, version, 0, 0, 0, 42];
        frame.extend(body);
        client.stream.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
        client.stream.write_all(&frame).unwrap();
        let mut expected =
            b"\x00\x00\x00\x2a\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x07\x00\x23".to_vec();
        expected.extend([0xff; 8]);
        expected.extend([0xff; 8].iter().take(if version == 2 { 8 } else { 0 }));
        expected.extend([0; 4].iter().take(if version >= 1 { 4 } else { 0 }));
        assert_eq!(client.receive_frame(), expected, "version {version}");
        assert_eq!(client.call(&ApiVersionsRequest::default(), 0).error_code, 0);
    }
}
