//! The two tasks of a connection: one writes requests, one reads answers. Brokers answer in the order asked, so the reader
//! takes the oldest waiting request for each answer and checks its correlation id.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes, BytesMut};
use forebay_broker_wire::frame::SIZE_BYTES;
use forebay_broker_wire::primitives::Part;
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// What a read makes room for at least.
const READ_BYTES_MIN: usize = 16 << 10;
/// So much room is made on the word of a size prefix; more as bytes really arrive.
const READ_AHEAD_BYTES_MAX: usize = 1 << 20;
/// A larger buffer is not kept for the next answer: what a follower is sent at a time fits, and new memory costs as much as the copying.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Smaller answers get memory of their own: who keeps a part of one must not keep the whole buffer.
const SHARED_FROM_BYTES: usize = 16 << 10;

/// A request on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) parts: Vec<Part>,
    pub(super) correlation_id: i32,
    /// Where its answer goes; none for requests that have no answer.
    pub(super) answer: Option<oneshot::Sender<Bytes>>,
}

/// A request whose answer is to come.
type Waiting = (i32, oneshot::Sender<Bytes>);

/// What a connection's parts share: its counter, and why it ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    correlation_id: AtomicI32,
    reason: OnceLock<String>,
}

impl Ended {
    pub(super) fn next_correlation_id(&self) -> i32 {
        self.correlation_id.fetch_add(1, Ordering::Relaxed) & i32::MAX
    }

    /// Notes why the connection ended; the first reason stays.
    pub(super) fn because(&self, reason: &str) {
        let _ = self.reason.set(reason.to_owned());
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.reason.get().cloned()
    }
}

/// Writes requests until the connection is dropped or a write fails.
pub(super) async fn write_requests(
    write: OwnedWriteHalf,
    mut requests: mpsc::Receiver<Outgoing>,
    waiting: mpsc::Sender<Waiting>,
    ended: Arc<Ended>,
) {
    let mut write = BufWriter::new(write);
    while let Some(request) = requests.recv().await {
        let last = requests.is_empty();
        if let Err(reason) = write_one(&mut write, request, &waiting, last).await {
            ended.because(&reason);
            return;
        }
    }
}

async fn write_one(
    write: &mut BufWriter<OwnedWriteHalf>,
    request: Outgoing,
    waiting: &mpsc::Sender<Waiting>,
    flush: bool,
) -> Result<(), String> {
    if let Some(answer) = request.answer {
        // The queue is full when too many requests are in flight; what is buffered must go out or nothing is ever answered.
        let entry = (request.correlation_id, answer);
        if let Err(mpsc::error::TrySendError::Full(entry)) = waiting.try_send(entry) {
            write.flush().await.map_err(|e| format!("write failed: {e}"))?;
            waiting.send(entry).await.map_err(|_| "the reader ended".to_owned())?;
        }
    }
    for part in &request.parts {
        if let Part::Bytes(bytes) = part {
            write.write_all(bytes).await.map_err(|e| format!("write failed: {e}"))?;
        }
    }
    if flush {
        write.flush().await.map_err(|e| format!("write failed: {e}"))?;
    }
    Ok(())
}

/// Reads answers until the broker closes, a read fails, or an answer matches no request.
pub(super) async fn read_answers(
    mut read: OwnedReadHalf,
    mut answers: mpsc::Receiver<Waiting>,
    max_frame_bytes: usize,
    ended: Arc<Ended>,
) {
    let mut buffer = BytesMut::new();
    loop {
        match read_one(&mut read, &mut buffer, &mut answers, max_frame_bytes).await {
            Ok((answer, frame)) => {
                let _ = answer.send(frame); // who asked may have gone
            }
            Err(reason) => {
                ended.because(&reason);
                return;
            }
        }
    }
}

async fn read_one(
    read: &mut OwnedReadHalf,
    buffer: &mut BytesMut,
    answers: &mut mpsc::Receiver<Waiting>,
    max_frame_bytes: usize,
) -> Result<(oneshot::Sender<Bytes>, Bytes), String> {
    if !read_up_to(read, buffer, SIZE_BYTES).await? {
        return Err("the broker closed it".to_owned());
    }
    let size = buffer.get_i32();
    let bytes = usize::try_from(size).ok().filter(|bytes| (4..=max_frame_bytes).contains(bytes));
    let bytes = bytes.ok_or_else(|| format!("answer of {size} bytes, allowed are 4 to {max_frame_bytes}"))?;
    if !read_up_to(read, buffer, bytes).await? {
        return Err("the broker closed it within an answer".to_owned());
    }
    let frame = buffer.split_to(bytes);
    let frame = if bytes < SHARED_FROM_BYTES { Bytes::copy_from_slice(&frame) } else { frame.freeze() };
    // Nor a large one when the answers are small.
    if bytes > KEPT_BYTES_MAX || (bytes < SHARED_FROM_BYTES && buffer.capacity() > READ_AHEAD_BYTES_MAX) {
        *buffer = BytesMut::from(&buffer[..]);
    }
    let id = frame.first_chunk::<4>().map(|id| i32::from_be_bytes(*id));
    match answers.try_recv() {
        Ok((expected, answer)) if Some(expected) == id => Ok((answer, frame)),
        Ok((expected, _)) => Err(format!("answer {id:?} came where answer {expected} was due")),
        Err(_) => Err(format!("answer {id:?} to nothing that was asked")),
    }
}

/// Reads until so many bytes are there; false when the broker closed it before.
async fn read_up_to(read: &mut OwnedReadHalf, buffer: &mut BytesMut, bytes: usize) -> Result<bool, String> {
    let failed = |e: std::io::Error| format!("read failed: {e}");
    while buffer.len() < bytes {
        // Room is made when something has come: by then the answer before it is mostly done with, and its memory free again.
        read.readable().await.map_err(failed)?;
        let missing = bytes - buffer.len();
        buffer.reserve(missing.min(READ_AHEAD_BYTES_MAX.max(buffer.len())).max(READ_BYTES_MIN));
        match read.try_read_buf(buffer) {
            Ok(0) => return Ok(false),
            Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return Err(failed(e)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(true)
}
