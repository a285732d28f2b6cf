//! Cuts the byte stream of a connection into frames: a four-byte size, then that many bytes.
//!
//! What must hold: a size outside `0..=socket.request.max.bytes` ends the connection before anything is allocated for it;
//! bytes of a frame are read only once they are charged to the budget, but for the first few, and memory is taken as they come,
//! not as they are announced; a frame that comes too slowly ends the connection (`pace.rs`), so that its bytes are free again; `next` can
//! be cancelled between any two bytes without losing one. An idle connection holds no buffer, nor one whose request waits.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use forebay_broker_wire::types::ApiKey;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::budget::{ByteBudget, Charge};
use super::buffers::{self, BUFFER_BYTES};
use super::pace::{Pace, Waiting};

const SIZE_BYTES: usize = 4;
/// What one read asks for when nothing is known of what comes: several small requests fit.
const READ_BYTES: usize = 8 * 1024;
/// What a frame is charged at first, when it is longer; then as much again as has come, up to so much at once.
const FIRST_CHARGE_BYTES: usize = 64 * 1024;
const NEXT_CHARGE_BYTES_MAX: usize = 1 << 20;
/// Requests up to this size get a buffer of their own, but for Produce.
const COPIED_BYTES_MAX: usize = 64 * 1024;
/// How often a large half frame looks whether others wait for its bytes.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const PRODUCE_KEY: [u8; 2] = ApiKey::Produce.as_i16().to_be_bytes();

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    pub(crate) charge: Charge,
}

#[derive(Debug, Error)]
pub(crate) enum FrameError {
    #[error("frame size {size} is outside 0..={max} (socket.request.max.bytes)")]
    Size { size: i32, max: u32 },
    #[error("the connection ended {missing} bytes before the end of a frame")]
    Cut { missing: usize },
    #[error("too little came in {waited:?}, {missing} bytes before the end of a frame")]
    Stalled { missing: usize, waited: Duration },
    #[error("reading from the socket: {0}")]
    Io(#[from] io::Error),
}

#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    /// What the buffer can hold in all, with the frames that were cut from it.
    buffer_bytes: usize,
    /// Size of the frame whose body is being read, and its charge so far.
    coming: Option<(usize, Charge)>,
    /// What may be read behind the coming frame.
    ahead: Charge,
    /// What the next read should bring, as far as the last one tells.
    expected_bytes: usize,
    max_bytes: u32,
    budget: ByteBudget,
    pace: Pace,
}

impl FrameReader {
    pub(crate) fn new(max_bytes: u32, budget: ByteBudget) -> Self {
        Self {
            buffer: BytesMut::new(),
            buffer_bytes: 0,
            coming: None,
            ahead: Charge::default(),
            expected_bytes: READ_BYTES,
            max_bytes,
            budget,
            pace: Pace::default(),
        }
    }

    /// The next frame; `None` when the client closed between two frames. Safe to cancel.
    pub(crate) async fn next(&mut self, stream: &TcpStream) -> Result<Option<Frame>, FrameError> {
        loop {
            self.learn_size()?;
            self.charge().await;
            if let Some(frame) = self.cut() {
                return Ok(Some(frame));
            }
            if self.coming.as_ref().is_none_or(|(size, _)| self.buffer.len() < *size) && !self.fill(stream).await? {
                return Ok(None);
            }
        }
    }

    /// The next frame, if it has come already and is charged.
    pub(crate) fn take(&mut self) -> Result<Option<Frame>, FrameError> {
        self.learn_size()?;
        Ok(self.cut())
    }

    fn learn_size(&mut self) -> Result<(), FrameError> {
        if self.coming.is_none() && self.buffer.len() >= SIZE_BYTES {
            let size = usize::try_from(peek_size(&self.buffer, self.max_bytes)?).unwrap_or(usize::MAX);
            self.buffer.advance(SIZE_BYTES);
            self.coming = Some((size, self.ahead.split(size)));
            self.pace.begin();
        }
        Ok(())
    }

    /// Charges the next bytes of the coming frame.
    async fn charge(&mut self) {
        let Some((size, charge)) = &mut self.coming else { return };
        let more = next_charge(*size, self.buffer.len().min(*size), charge.bytes());
        if more > 0 {
            self.budget.extend(charge, u32::try_from(more).unwrap_or(u32::MAX), *size).await;
        }
    }

    fn cut(&mut self) -> Option<Frame> {
        let whole = |(size, charge): &mut (usize, Charge)| self.buffer.len() >= *size && charge.bytes() >= *size;
        let (size, charge) = self.coming.take_if(whole)?;
        // What handlers keep of a request must not keep the buffer; batches are kept no longer than until they are written.
        let copied = size <= COPIED_BYTES_MAX && !self.buffer.starts_with(&PRODUCE_KEY);
        let bytes = if copied {
            let bytes = Bytes::copy_from_slice(&self.buffer[..size]);
            self.buffer.advance(size);
            bytes
        } else {
            self.buffer.split_to(size).freeze()
        };
        Some(Frame { bytes, charge })
    }

    /// Whether nothing of the next frame has been read yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.coming.is_none()
    }

    /// Reads once, of a frame what is charged. False at a clean end of the stream.
    async fn fill(&mut self, stream: &TcpStream) -> Result<bool, FrameError> {
        loop {
            self.let_go();
            match &self.coming {
                Some((size, _)) => {
                    let missing = size.saturating_sub(self.buffer.len());
                    let waiting = self.pace.wait();
                    let ready = readable(stream, &waiting, &self.budget, self.buffer.len()).await;
                    let waited = waiting.end();
                    ready.ok_or(FrameError::Stalled { missing, waited })??;
                }
                None => stream.readable().await?,
            }
            let room = self.make_room();
            match stream.try_read_buf(&mut (&mut self.buffer).limit(room)) {
                Ok(0) if self.is_empty() => return Ok(false),
                Ok(0) => return Err(FrameError::Cut { missing: self.missing_bytes() }),
                Ok(read) => {
                    self.pace.came(read);
                    self.expected_bytes = expected_after(self.expected_bytes, read, room);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Holds no memory while nothing comes.
    pub(crate) fn let_go(&mut self) {
        if self.buffer.is_empty() && self.buffer_bytes > 0 {
            buffers::give(std::mem::take(&mut self.buffer), std::mem::take(&mut self.buffer_bytes));
        }
        if self.is_empty() {
            self.ahead = Charge::default();
        }
    }

    /// Makes room for what one read may bring, and says how much that is.
    fn make_room(&mut self) -> usize {
        let (come, expected) = (self.buffer.len(), self.expected_bytes);
        let room = match &self.coming {
            // Of a frame that is not wholly charged, nothing behind it.
            Some((size, charge)) if charge.bytes() < *size => charge.bytes().saturating_sub(come),
            Some((size, _)) => size.saturating_sub(come) + self.read_ahead(expected),
            None => READ_BYTES + self.read_ahead(expected.saturating_sub(READ_BYTES)),
        };
        if self.buffer_bytes == 0 && room > READ_BYTES {
            self.buffer = buffers::take();
        }
        // Grows to twice what it was, so that what has come is not copied each time, and never by what is only announced.
        self.buffer.reserve(room);
        self.buffer_bytes = self.buffer_bytes.max(self.buffer.capacity());
        room
    }

    /// How far a read may go beyond what it must bring: only as far as the budget has bytes to spare.
    fn read_ahead(&mut self, wanted: usize) -> usize {
        if wanted > self.ahead.bytes() {
            let more = u32::try_from(wanted - self.ahead.bytes()).unwrap_or(u32::MAX);
            self.budget.try_extend(&mut self.ahead, more);
        }
        self.ahead.bytes()
    }

    fn missing_bytes(&self) -> usize {
        self.coming.as_ref().map_or(SIZE_BYTES, |(size, _)| *size).saturating_sub(self.buffer.len())
    }
}

/// Waits for more of a frame of which `come` bytes are there; `None` when it has taken too long, which is soon if others wait for its bytes.
async fn readable(
    stream: &TcpStream,
    waiting: &Waiting<'_>,
    budget: &ByteBudget,
    come: usize,
) -> Option<io::Result<()>> {
    let holds_much = come > FIRST_CHARGE_BYTES;
    loop {
        let left = waiting.left(holds_much && budget.is_short());
        if left.is_zero() {
            return None;
        }
        let until_next_look = if holds_much { left.min(LOOK_EVERY) } else { left };
        if let Ok(ready) = timeout(until_next_look, stream.readable()).await {
            return Some(ready);
        }
    }
}

/// How many bytes more of a frame to charge: it begins with a few, whatever had been read ahead of it; then those charged must have come.
fn next_charge(size: usize, come: usize, charged: usize) -> usize {
    if charged >= size || (come < charged && charged >= FIRST_CHARGE_BYTES) {
        return 0;
    }
    (come + come.clamp(FIRST_CHARGE_BYTES, NEXT_CHARGE_BYTES_MAX)).min(size).saturating_sub(charged)
}

/// What the next read should bring, after one that had so much room: a full one says nothing of what is still there.
fn expected_after(expected: usize, read: usize, room: usize) -> usize {
    let twice = (read * 2).clamp(READ_BYTES, BUFFER_BYTES);
    if read < room { twice } else { twice.max(expected) }
}

fn peek_size(buffer: &[u8], max_bytes: u32) -> Result<u32, FrameError> {
    let mut head = [0; SIZE_BYTES];
    head.copy_from_slice(&buffer[..SIZE_BYTES]);
    let size = i32::from_be_bytes(head);
    match u32::try_from(size) {
        Ok(bytes) if bytes <= max_bytes => Ok(bytes),
        _ => Err(FrameError::Size { size, max: max_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), server.unwrap().0)
    }

    fn reader(max_bytes: u32) -> FrameReader {
        FrameReader::new(max_bytes, ByteBudget::new(1 << 20))
    }

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_however_they_are_split() {
        let (mut client, server) = pair().await;
        let mut reader = reader(100_000);
        let big = vec![7; 50_000];
        let writer = tokio::spawn({
            let big = big.clone();
            async move {
                client.write_all(&[0, 0, 0, 3, 1, 2, 3, 0, 0]).await.unwrap();
                tokio::task::yield_now().await;
                client.write_all(&[0, 0]).await.unwrap();
                client.write_all(&50_000_i32.to_be_bytes()).await.unwrap();
                client.write_all(&big).await.unwrap();
            }
        });
        assert_eq!(&reader.next(&server).await.unwrap().unwrap().bytes[..], [1, 2, 3]);
        assert!(reader.next(&server).await.unwrap().unwrap().bytes.is_empty());
        assert_eq!(&reader.next(&server).await.unwrap().unwrap().bytes[..], big);
        writer.await.unwrap();
        assert!(reader.next(&server).await.unwrap().is_none());
    }

    #[test]
    fn a_frame_is_charged_as_it_comes_and_its_first_bytes_at_once() {
        let (first, large) = (FIRST_CHARGE_BYTES, 10 << 20);
        assert_eq!(next_charge(large, 0, 0), first);
        assert_eq!(next_charge(large, first - 1, first), 0);
        assert_eq!(next_charge(large, first, first), first);
        assert_eq!(next_charge(large, 4 << 20, 4 << 20), NEXT_CHARGE_BYTES_MAX);
        assert_eq!(next_charge(large, large - 10, large - 10), 10);
        // What was read ahead ends just before what was charged ahead: no read of 4 bytes for that.
        assert_eq!(next_charge(65_185, 8_188, 8_192), 65_185 - 8_192);
        assert_eq!(next_charge(65_185, 100, 65_185), 0);
    }

    #[test]
    fn a_full_read_does_not_lower_what_is_expected() {
        assert_eq!(expected_after(BUFFER_BYTES, 4, 4), BUFFER_BYTES);
        assert_eq!(expected_after(BUFFER_BYTES, 4, 100), READ_BYTES);
        assert_eq!(expected_after(READ_BYTES, 50_000, 50_000), 100_000);
        assert_eq!(expected_after(READ_BYTES, 1 << 20, 2 << 20), BUFFER_BYTES);
    }

    #[tokio::test]
    async fn a_size_beyond_the_limit_or_below_zero_is_refused() {
        for size in [101_i32, -1, i32::MIN, i32::MAX] {
            let (mut client, server) = pair().await;
            client.write_all(&size.to_be_bytes()).await.unwrap();
            let error = reader(100).next(&server).await.unwrap_err();
            assert!(matches!(error, FrameError::Size { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_frame_is_an_error() {
        let (mut client, server) = pair().await;
        client.write_all(&[0, 0, 0, 9, 1]).await.unwrap();
        drop(client);
        assert!(matches!(reader(100).next(&server).await, Err(FrameError::Cut { missing: 8 })));
    }

    #[tokio::test]
    async fn a_frame_that_is_only_announced_takes_the_budget_from_nobody() {
        let budget = ByteBudget::new(1 << 20);
        let (mut promising, server) = pair().await;
        promising.write_all(&(1_i32 << 20).to_be_bytes()).await.unwrap();
        let mut first = FrameReader::new(1 << 20, budget.clone());
        assert!(timeout(Duration::from_millis(50), first.next(&server)).await.is_err());
        let (mut honest, server) = pair().await;
        honest.write_all(&[0, 0, 0, 3, 1, 2, 3]).await.unwrap();
        let mut second = FrameReader::new(1 << 20, budget.clone());
        let frame = timeout(Duration::from_secs(10), second.next(&server)).await.expect("the budget is free");
        assert_eq!(&frame.unwrap().unwrap().bytes[..], [1, 2, 3]);
    }

    #[tokio::test]
    async fn half_a_frame_holds_memory_for_what_has_come_not_for_what_is_announced() {
        let (mut client, server) = pair().await;
        let come = 1 << 20;
        let mut reader = FrameReader::new(100_000_000, ByteBudget::new(256 << 20));
        let sent = async {
            client.write_all(&100_000_000_i32.to_be_bytes()).await.unwrap();
            client.write_all(&vec![7; come]).await.unwrap();
        };
        let read = timeout(Duration::from_millis(500), reader.next(&server));
        let ((), read) = tokio::join!(sent, read);
        assert!(read.is_err(), "it is not whole");
        assert_eq!(reader.buffer.len(), come);
        assert!(reader.buffer.capacity() <= 2 * come + BUFFER_BYTES, "{}", reader.buffer.capacity());
    }

    #[tokio::test]
    async fn frames_larger_together_than_the_budget_are_all_read_to_their_ends() {
        let budget = ByteBudget::new(1 << 20);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (mut client, server) = pair().await;
            let mut reader = FrameReader::new(1 << 20, budget.clone());
            tasks.spawn(async move {
                client.write_all(&500_000_i32.to_be_bytes()).await.unwrap();
                client.write_all(&vec![7; 500_000]).await.unwrap();
            });
            tasks.spawn(async move {
                assert_eq!(reader.next(&server).await.unwrap().unwrap().bytes.len(), 500_000);
            });
        }
        let all = async {
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        };
        timeout(Duration::from_secs(20), all).await.expect("no frame waits for another for ever");
    }

    #[tokio::test]
    async fn a_frame_that_stands_still_ends_the_connection_and_an_idle_connection_does_not() {
        let (mut client, server) = pair().await;
        let stall_max = Duration::from_millis(50);
        let mut reader = FrameReader { pace: Pace::new(stall_max), ..reader(100) };
        assert!(timeout(stall_max * 4, reader.next(&server)).await.is_err());
        client.write_all(&[0, 0, 0, 9, 1]).await.unwrap();
        let ended = timeout(Duration::from_secs(10), reader.next(&server)).await.expect("given up by then");
        assert!(matches!(ended, Err(FrameError::Stalled { missing: 8, .. })));
    }

    #[tokio::test]
    async fn large_frames_that_stand_still_make_room_when_others_wait_for_their_bytes() {
        let budget = ByteBudget::new(1 << 20);
        let mut standing = tokio::task::JoinSet::new();
        // The first takes the budget, the second is the one that may go beyond it.
        for _ in 0..2 {
            let (mut client, server) = pair().await;
            let mut reader = FrameReader::new(1 << 20, budget.clone());
            client.write_all(&1_000_000_i32.to_be_bytes()).await.unwrap();
            client.write_all(&vec![7; 900_000]).await.unwrap();
            standing.spawn(async move {
                let ended = reader.next(&server).await;
                drop(client);
                ended
            });
        }
        let (mut honest, server) = pair().await;
        honest.write_all(&300_000_i32.to_be_bytes()).await.unwrap();
        honest.write_all(&vec![7; 300_000]).await.unwrap();
        let mut reader = FrameReader::new(1 << 20, budget.clone());
        let frame = timeout(Duration::from_secs(15), reader.next(&server)).await.expect("there is room by then");
        assert_eq!(frame.unwrap().unwrap().bytes.len(), 300_000);
        let ended = standing.join_next().await.unwrap().unwrap();
        assert!(matches!(ended, Err(FrameError::Stalled { missing: 100_000, .. })), "{ended:?}");
    }

    #[tokio::test]
    async fn a_frame_of_which_a_byte_comes_now_and_then_ends_the_connection() {
        let (mut client, server) = pair().await;
        let mut reader = FrameReader { pace: Pace::new(Duration::from_millis(300)), ..reader(1 << 20) };
        client.write_all(&(1_i32 << 20).to_be_bytes()).await.unwrap();
        let trickle = async {
            while client.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::select! {
            ended = timeout(Duration::from_secs(10), reader.next(&server)) => ended.expect("given up by then"),
            () = trickle => panic!("the client's writes fail"),
        };
        assert!(matches!(ended, Err(FrameError::Stalled { .. })), "{ended:?}");
    }
}
