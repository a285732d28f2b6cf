//! Frames between brokers: Kafka's size and request header, then JSON, then bytes that are not JSON.
//!
//! What must hold: nothing is allocated for what has not come; a frame above the limit ends the connection.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a stranger may send: a greeting.
pub(super) const GREETING_BYTES_MAX: usize = 64 << 10;
/// What a member of the cluster may send at once: many entries, or one with very many records.
pub(super) const FRAME_BYTES_MAX: usize = 256 << 20;
/// Memory is taken as bytes come, at most so much ahead.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// A request or an answer, taken apart.
#[derive(Debug)]
pub(super) struct Frame {
    /// 0 in an answer.
    pub(super) api_key: i16,
    pub(super) correlation_id: i32,
    json: Bytes,
    /// What follows the JSON.
    pub(super) rest: Bytes,
}

impl Frame {
    pub(super) fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.json).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// Sends a request.
pub(super) async fn send_request(
    stream: &mut TcpStream,
    (api_key, correlation_id): (i16, i32),
    body: &impl Serialize,
    rest: &[u8],
) -> io::Result<()> {
    let mut head = BytesMut::new();
    head.put_i16(api_key);
    head.put_i16(0);
    head.put_i32(correlation_id);
    head.put_i16(-1);
    send(stream, &head, body, rest).await
}

/// Sends an answer.
pub(super) async fn send_answer(stream: &mut TcpStream, correlation_id: i32, body: &impl Serialize) -> io::Result<()> {
    send(stream, &correlation_id.to_be_bytes(), body, &[]).await
}

async fn send(stream: &mut TcpStream, head: &[u8], body: &impl Serialize, rest: &[u8]) -> io::Result<()> {
    let json = serde_json::to_vec(body)?;
    let size = head.len() + 4 + json.len() + rest.len();
    if size > FRAME_BYTES_MAX {
        let message = format!("a frame of {size} bytes: must be at most {FRAME_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut frame = BytesMut::with_capacity(4 + size);
    frame.put_u32(u32::try_from(size).map_err(io::Error::other)?);
    frame.put_slice(head);
    frame.put_u32(u32::try_from(json.len()).map_err(io::Error::other)?);
    frame.put_slice(&json);
    frame.put_slice(rest);
    stream.write_all(&frame).await
}

/// The next request; none at a clean end.
pub(super) async fn read_request(stream: &mut TcpStream, bytes_max: usize) -> io::Result<Option<Frame>> {
    let Some(mut frame) = read(stream, bytes_max).await? else { return Ok(None) };
    let (api_key, _version, correlation_id) = (i16_of(&mut frame)?, i16_of(&mut frame)?, i32_of(&mut frame)?);
    let client_id = usize::try_from(i16_of(&mut frame)?).unwrap_or_default();
    take(&mut frame, client_id)?;
    split(frame, api_key, correlation_id).map(Some)
}

/// The answer to a request.
pub(super) async fn read_answer(stream: &mut TcpStream) -> io::Result<Frame> {
    let mut frame = read(stream, FRAME_BYTES_MAX).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let correlation_id = i32_of(&mut frame)?;
    split(frame, 0, correlation_id)
}

fn split(mut frame: Bytes, api_key: i16, correlation_id: i32) -> io::Result<Frame> {
    let length =
        usize::try_from(i32_of(&mut frame)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let json = take(&mut frame, length)?;
    Ok(Frame { api_key, correlation_id, json, rest: frame })
}

async fn read(stream: &mut TcpStream, bytes_max: usize) -> io::Result<Option<Bytes>> {
    let mut size = [0; 4];
    match stream.read(&mut size[..1]).await? {
        0 => return Ok(None),
        _ => stream.read_exact(&mut size[1..]).await?,
    };
    let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
    if size > bytes_max {
        let message = format!("a frame of {size} bytes: must be at most {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut frame = BytesMut::new();
    while frame.len() < size {
        let missing = size - frame.len();
        frame.reserve(missing.min(READ_AHEAD_BYTES.max(frame.len())));
        if stream.read_buf(&mut (&mut frame).limit(missing)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(frame.freeze()))
}

fn take(frame: &mut Bytes, length: usize) -> io::Result<Bytes> {
    if frame.len() < length {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame ends too early"));
    }
    Ok(frame.split_to(length))
}

fn i16_of(frame: &mut Bytes) -> io::Result<i16> {
    take(frame, 2).map(|mut bytes| bytes.get_i16())
}

fn i32_of(frame: &mut Bytes) -> io::Result<i32> {
    take(frame, 4).map(|mut bytes| bytes.get_i32())
}
