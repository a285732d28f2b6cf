//! A connection against a scripted peer: a TCP server in the test that answers as told.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_broker_wire::frame::{RequestHeader, encode_response};
use forebay_broker_wire::messages::Message;
use forebay_broker_wire::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use forebay_broker_wire::messages::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use forebay_broker_wire::messages::list_groups::ListGroupsRequest;
use forebay_broker_wire::primitives::{Decoder, Part};
use forebay_broker_wire::types::Str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Connection;
use crate::config::ClientConfig;
use crate::error::{ConnectError, RequestError};

/// Reads one frame and its header.
pub(crate) async fn receive(stream: &mut TcpStream) -> RequestHeader {
    let size = stream.read_i32().await.unwrap();
    let mut frame = BytesMut::zeroed(usize::try_from(size).unwrap());
    stream.read_exact(&mut frame).await.unwrap();
    RequestHeader::decode(&mut Decoder::new(frame.freeze())).unwrap()
}

pub(crate) fn frame<M: Message>(message: &M, version: i16, correlation_id: i32) -> Vec<u8> {
    let parts = encode_response(message, version, correlation_id).unwrap();
    parts
        .iter()
        .filter_map(|p| if let Part::Bytes(bytes) = p { Some(bytes.to_vec()) } else { None })
        .flatten()
        .collect()
}

fn offers(ranges: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let api_keys =
        ranges.iter().map(|&(api_key, min_version, max_version)| ApiVersion { api_key, min_version, max_version });
    ApiVersionsResponse { api_keys: api_keys.collect(), ..Default::default() }
}

/// A listener, and where it is.
pub(crate) async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Accepts a client and agrees on versions with it.
pub(crate) async fn accept(listener: &TcpListener, ranges: &[(i16, i16, i16)]) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let header = receive(&mut stream).await;
    stream.write_all(&frame(&offers(ranges), 3, header.correlation_id)).await.unwrap();
    stream
}

fn quick() -> ClientConfig {
    let soon = Duration::from_millis(300);
    ClientConfig { request_timeout: soon, connect_timeout: soon, max_frame_bytes: 1 << 16, ..Default::default() }
}

const DESCRIBE_CLUSTER: (i16, i16, i16) = (60, 0, 1);

#[tokio::test]
async fn answers_to_pipelined_requests_go_to_who_asked() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        let mut stream = accept(&listener, &[DESCRIBE_CLUSTER]).await;
        let mut answers = Vec::new();
        for n in 0..5 {
            let header = receive(&mut stream).await;
            assert_eq!(header.api_version, 1, "the highest version both know");
            let answer = DescribeClusterResponse { cluster_id: Str::from(format!("c{n}")), ..Default::default() };
            answers.extend(frame(&answer, 1, header.correlation_id));
        }
        stream.write_all(&answers).await.unwrap(); // only now, so all five were in flight
        stream
    });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    let request = DescribeClusterRequest::default();
    let five = tokio::join!(
        connection.send(&request),
        connection.send(&request),
        connection.send(&request),
        connection.send(&request),
        connection.send(&request),
    );
    let ids = [five.0, five.1, five.2, five.3, five.4].map(|r| r.unwrap().cluster_id);
    assert_eq!(ids, ["c0", "c1", "c2", "c3", "c4"]);
    drop(peer.await.unwrap());
}

#[tokio::test]
async fn a_broker_that_does_not_know_our_api_versions_is_asked_again_in_version_0() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let header = receive(&mut stream).await;
        let refusal = ApiVersionsResponse { error_code: 35, ..Default::default() };
        stream.write_all(&frame(&refusal, 0, header.correlation_id)).await.unwrap();
        let header = receive(&mut stream).await;
        assert_eq!(header.api_version, 0);
        stream.write_all(&frame(&offers(&[DESCRIBE_CLUSTER]), 0, header.correlation_id)).await.unwrap();
    });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    assert_eq!(connection.version_of::<DescribeClusterRequest>().unwrap(), 1);
    peer.await.unwrap();
}

#[tokio::test]
async fn an_api_the_broker_lacks_is_refused_before_anything_is_sent() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move { accept(&listener, &[DESCRIBE_CLUSTER, (16, 90, 99)]).await });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    let error = connection.send(&ListGroupsRequest::default()).await.unwrap_err();
    assert!(error.to_string().contains("speaks versions 90 to 99 of ListGroups"), "{error}");
    assert!(!connection.is_closed());
    drop(peer.await.unwrap());
}

#[tokio::test]
async fn silence_ends_the_request_and_the_connection() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move { accept(&listener, &[DESCRIBE_CLUSTER]).await });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    let _silent = peer.await.unwrap();
    let error = connection.send(&DescribeClusterRequest::default()).await.unwrap_err();
    assert!(matches!(error, RequestError::Timeout { .. }), "{error}");
    assert!(connection.is_closed());
    let after = connection.send(&DescribeClusterRequest::default()).await.unwrap_err();
    assert!(matches!(after, RequestError::Closed { .. }), "{after}");
}

#[tokio::test]
async fn an_answer_to_another_request_ends_the_connection() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        let mut stream = accept(&listener, &[DESCRIBE_CLUSTER]).await;
        let header = receive(&mut stream).await;
        let answer = frame(&DescribeClusterResponse::default(), 1, header.correlation_id + 1);
        stream.write_all(&answer).await.unwrap();
        stream
    });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    let error = connection.send(&DescribeClusterRequest::default()).await.unwrap_err();
    assert!(error.to_string().contains("where answer"), "{error}");
    drop(peer.await.unwrap());
}

#[tokio::test]
async fn a_frame_beyond_the_limit_is_not_read() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        let mut stream = accept(&listener, &[DESCRIBE_CLUSTER]).await;
        receive(&mut stream).await;
        stream.write_i32(i32::MAX).await.unwrap();
        stream
    });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    let error = connection.send(&DescribeClusterRequest::default()).await.unwrap_err();
    assert!(error.to_string().contains("allowed are 4 to 65536"), "{error}");
    drop(peer.await.unwrap());
}

#[tokio::test]
async fn a_broker_that_closes_is_named_in_the_error() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        let mut stream = accept(&listener, &[DESCRIBE_CLUSTER]).await;
        receive(&mut stream).await;
    });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    let error = connection.send(&DescribeClusterRequest::default()).await.unwrap_err().to_string();
    assert!(error.contains(&address) && error.contains("the broker closed it"), "{error}");
    peer.await.unwrap();
}

#[tokio::test]
async fn something_that_is_no_broker_is_told_apart_from_nobody() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    });
    let error = Connection::open(&address, &quick()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Handshake { .. }), "{error}");
    peer.await.unwrap();
    let nobody = Connection::open(&address, &quick()).await.unwrap_err();
    assert!(matches!(nobody, ConnectError::Io { .. }), "{nobody}");
    let malformed = Connection::open("localhost", &quick()).await.unwrap_err();
    assert!(matches!(malformed, ConnectError::Address { .. }), "{malformed}");
}

#[tokio::test]
async fn an_unanswered_request_does_not_shift_the_answers() {
    let (listener, address) = listener().await;
    let peer = tokio::spawn(async move {
        let mut stream = accept(&listener, &[DESCRIBE_CLUSTER]).await;
        receive(&mut stream).await; // has no answer
        let header = receive(&mut stream).await;
        let answer = DescribeClusterResponse { cluster_id: Str::from("second"), ..Default::default() };
        stream.write_all(&Bytes::from(frame(&answer, 1, header.correlation_id))).await.unwrap();
        stream
    });
    let connection = Connection::open(&address, &quick()).await.unwrap();
    connection.send_unanswered(&DescribeClusterRequest::default()).await.unwrap();
    let answer = connection.send(&DescribeClusterRequest::default()).await.unwrap();
    assert_eq!(answer.cluster_id, "second");
    drop(peer.await.unwrap());
}
