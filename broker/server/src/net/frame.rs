//! Cuts the byte stream of a connection into frames: a four-byte size, then that many bytes.
//!
//! What must hold: a size outside `0..=socket.request.max.bytes` ends the connection before anything is allocated for it;
//! the body of a frame is read only once its bytes are charged to the budget; `next` can be cancelled between any two
//! bytes without losing one. An idle connection holds no buffer.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;
use tokio::net::TcpStream;

use super::budget::{ByteBudget, Charge};

const SIZE_BYTES: usize = 4;
/// What one read asks for when the size of the coming frame is not known yet: several small requests fit.
const READ_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    _charge: Charge,
}

#[derive(Debug, Error)]
pub(crate) enum FrameError {
    #[error("frame size {size} is outside 0..={max} (socket.request.max.bytes)")]
    Size { size: i32, max: u32 },
    #[error("the connection ended {missing} bytes before the end of a frame")]
    Cut { missing: usize },
    #[error("reading from the socket: {0}")]
    Io(#[from] io::Error),
}

#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    /// Size and charge of the frame whose body is being read.
    coming: Option<(usize, Charge)>,
    max_bytes: u32,
    budget: ByteBudget,
}

impl FrameReader {
    pub(crate) fn new(max_bytes: u32, budget: ByteBudget) -> Self {
        Self { buffer: BytesMut::new(), coming: None, max_bytes, budget }
    }

    /// The next frame; `None` when the client closed between two frames. Safe to cancel.
    pub(crate) async fn next(&mut self, stream: &TcpStream) -> Result<Option<Frame>, FrameError> {
        loop {
            if self.coming.is_none() && self.buffer.len() >= SIZE_BYTES {
                let size = peek_size(&self.buffer, self.max_bytes)?;
                // Charged before the four bytes are taken, so that a cancelled wait starts again from the same state.
                let charge = self.budget.charge(size).await;
                self.buffer.advance(SIZE_BYTES);
                self.coming = Some((usize::try_from(size).unwrap_or(usize::MAX), charge));
            }
            let wanted = match &self.coming {
                Some((size, _)) => *size,
                None => SIZE_BYTES,
            };
            match self.coming.take_if(|(size, _)| self.buffer.len() >= *size) {
                Some((size, charge)) => {
                    let bytes = self.buffer.split_to(size).freeze();
                    if self.buffer.is_empty() {
                        self.buffer = BytesMut::new();
                    }
                    return Ok(Some(Frame { bytes, _charge: charge }));
                }
                None => {
                    if !self.fill(stream, wanted).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether nothing of the next frame has been read yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.coming.is_none()
    }

    /// Reads once, towards `wanted` buffered bytes. False at a clean end of the stream.
    async fn fill(&mut self, stream: &TcpStream, wanted: usize) -> Result<bool, FrameError> {
        loop {
            stream.readable().await?;
            let missing = wanted.saturating_sub(self.buffer.len());
            self.buffer.reserve(missing.max(if self.coming.is_some() { 1 } else { READ_BYTES }));
            match stream.try_read_buf(&mut self.buffer) {
                Ok(0) if self.buffer.is_empty() && self.coming.is_none() => return Ok(false),
                Ok(0) => return Err(FrameError::Cut { missing }),
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.buffer.is_empty() {
                        self.buffer = BytesMut::new();
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
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
}
