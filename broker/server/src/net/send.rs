//! Writes answers: bytes by `send`, ranges of segment files by `sendfile`, in order and without copying large ones.
//!
//! What must hold: once the size of an answer is on the wire, either all of its bytes follow or the connection ends; a
//! file that turned out shorter than announced is an error, never padding. A range of up to `COPY_BYTES` is read and sent
//! with its neighbours in one call, which is cheaper than a `sendfile`; a larger one goes in slices of `SLICE_BYTES`, and
//! the worker serves other connections between two slices.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use forebay_broker_wire::primitives::Part;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Above this, `sendfile` beats reading and writing.
const COPY_BYTES: u32 = 32 * 1024;
/// The most that one `sendfile` call moves, so that one large answer does not hold a worker (for less than half a millisecond). What consumers
/// ask of a partition goes in one: each yield wakes another worker.
const SLICE_BYTES: usize = 1024 * 1024;
/// Gathered bytes are sent when they reach this.
const GATHER_BYTES: usize = 64 * 1024;

/// A range of a segment file. The file stays readable while this lives, also when its segment is deleted meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct FileRange {
    pub(crate) file: Arc<File>,
    pub(crate) position: u64,
    pub(crate) length: u32,
}

/// An encoded answer: its frame in parts, and the file ranges that parts name by token.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) parts: Vec<Part>,
    pub(crate) files: Vec<FileRange>,
}

/// Gathers small pieces of one or more answers into few system calls.
#[derive(Debug)]
pub(crate) struct Sender<'a> {
    stream: &'a TcpStream,
    gathered: Vec<u8>,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Self {
        Self { stream, gathered: Vec::new() }
    }

    pub(crate) async fn put(&mut self, answer: &Answer) -> io::Result<()> {
        for part in &answer.parts {
            match part {
                Part::Bytes(bytes) => self.put_bytes(bytes).await?,
                Part::Region { token, length } => {
                    let file = usize::try_from(*token).ok().and_then(|token| answer.files.get(token));
                    match file {
                        Some(slice) if slice.length == *length => self.put_file(slice).await?,
                        _ => return Err(io::Error::other("an answer names a file range that it does not carry")),
                    }
                }
            }
        }
        Ok(())
    }

    async fn put_bytes(&mut self, bytes: &Bytes) -> io::Result<()> {
        if self.gathered.len() + bytes.len() <= GATHER_BYTES {
            self.gathered.extend_from_slice(bytes);
            return Ok(());
        }
        // IMPORTANT: only what is surely followed by more may be sent as such; the kernel holds it back up to 200 ms.
        self.send_gathered(!bytes.is_empty()).await?;
        send_all(self.stream, bytes, false).await
    }

    async fn put_file(&mut self, slice: &FileRange) -> io::Result<()> {
        if slice.length > COPY_BYTES {
            self.send_gathered(true).await?;
            return send_file(self.stream, slice).await;
        }
        let start = self.gathered.len();
        let length = usize::try_from(slice.length).map_err(io::Error::other)?;
        self.gathered.resize(start + length, 0);
        slice.file.read_exact_at(&mut self.gathered[start..], slice.position)?;
        if self.gathered.len() > GATHER_BYTES { self.send_gathered(false).await } else { Ok(()) }
    }

    /// Sends what is still gathered; the answers put so far are then wholly with the kernel.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        self.send_gathered(false).await
    }

    async fn send_gathered(&mut self, more: bool) -> io::Result<()> {
        send_all(self.stream, &self.gathered, more).await?;
        self.gathered.clear();
        Ok(())
    }
}

async fn send_all(stream: &TcpStream, mut bytes: &[u8], more: bool) -> io::Result<()> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    while !bytes.is_empty() {
        let sent = stream
            .async_io(Interest::WRITABLE, || rustix::net::send(stream, bytes, flags).map_err(io::Error::from))
            .await?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

async fn send_file(stream: &TcpStream, slice: &FileRange) -> io::Result<()> {
    let mut position = slice.position;
    let mut left = usize::try_from(slice.length).map_err(io::Error::other)?;
    while left > 0 {
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                rustix::fs::sendfile(stream, &*slice.file, Some(&mut position), left.min(SLICE_BYTES))
                    .map_err(io::Error::from)
            })
            .await?;
        if sent == 0 {
            let message = format!("a segment file ends {left} bytes before the end of an announced range");
            return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
        }
        left -= sent;
        // A full socket makes the next call wait anyway.
        if left > 0 && sent == SLICE_BYTES {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
