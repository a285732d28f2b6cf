//! One client connection: requests in, answers out in the order of the requests.
//!
//! What must hold: a request begins only when the one before it has been answered, as Kafka's clients expect (a commit
//! before the leave that follows it); only Produce requests overlap, because they are handed to the disk threads in order
//! and an idempotent producer keeps five of them on the way. A connection ends when the client closes it, when it breaks
//! the protocol, when it was idle for `connections.max.idle.ms`, or at shutdown after its last answer; never the broker
//! with it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::frame::{Frame, FrameError, FrameReader};
use super::send::{Answer, Sender};
use crate::broker::Broker;
use crate::handlers::produce::PendingProduce;
use crate::handlers::request::{Request, RequestError};
use crate::handlers::{self, Finished};

/// Produce requests that one connection may have on their way; more wait in its socket.
const IN_FLIGHT_MAX: usize = 64;

#[derive(Debug, Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("writing to the socket: {0}")]
    Write(#[source] io::Error),
}

/// Who is at the other end, as handlers and logs name it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) host: Arc<str>,
    pub(crate) listener: Arc<str>,
}

pub(crate) struct Connection {
    broker: Arc<Broker>,
    stream: TcpStream,
    peer: Peer,
    reader: FrameReader,
    in_flight: VecDeque<(PendingProduce, Frame)>,
}

impl Connection {
    pub(crate) fn new(broker: Arc<Broker>, stream: TcpStream, address: SocketAddr, listener: Arc<str>) -> Self {
        let reader = FrameReader::new(broker.limits.request_max_bytes, broker.budget.clone());
        let peer = Peer { host: address.ip().to_canonical().to_string().into(), listener };
        Self { broker, stream, peer, reader, in_flight: VecDeque::new() }
    }

    /// Serves until the connection ends. What ended it goes to the log at the level of its cause: clients come and go.
    pub(crate) async fn serve(mut self) {
        let host = Arc::clone(&self.peer.host);
        match self.run().await {
            Ok(()) => {}
            Err(ConnectionError::Frame(FrameError::Io(error)) | ConnectionError::Write(error)) => {
                tracing::debug!(client = %host, %error, "connection lost");
            }
            Err(error) => tracing::warn!(client = %host, %error, "connection closed: the client broke the protocol"),
        }
    }

    async fn run(&mut self) -> Result<(), ConnectionError> {
        let broker = Arc::clone(&self.broker);
        let idle_max = broker.limits.idle_max;
        let mut idle = std::pin::pin!(tokio::time::sleep(idle_max));
        let mut active_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                finished = front(&mut self.in_flight), if !self.in_flight.is_empty() => self.answer(finished).await?,
                frame = self.reader.next(&self.stream), if self.in_flight.len() < IN_FLIGHT_MAX => match frame? {
                    Some(frame) => {
                        self.receive(frame).await?;
                        active_at = Instant::now();
                    }
                    None => break,
                },
                () = &mut idle, if self.in_flight.is_empty() => {
                    if !rearm(idle.as_mut(), active_at, idle_max) {
                        tracing::debug!(client = %self.peer.host, "connection closed: idle");
                        break;
                    }
                }
                () = broker.shutdown.cancelled() => break,
            }
        }
        self.drain().await
    }

    async fn receive(&mut self, frame: Frame) -> Result<(), ConnectionError> {
        let request = Request::parse(&self.peer, frame.bytes.clone())?;
        if request.overlaps() {
            let pending = handlers::begin_produce(&self.broker, request).await?;
            self.in_flight.push_back((pending, frame));
            return Ok(());
        }
        self.drain().await?;
        let finished = handlers::handle(&self.broker, request).await?;
        let mut sender = Sender::new(&self.stream);
        put(&mut sender, &self.broker, &finished).await?;
        sender.finish().await.map_err(ConnectionError::Write)
    }

    /// Writes the answer of the oldest request on its way, with those behind it that are ready too.
    async fn answer(&mut self, first: Result<Finished, RequestError>) -> Result<(), ConnectionError> {
        let mut sender = Sender::new(&self.stream);
        let mut finished = Some(first);
        while let Some(next) = finished.take() {
            put(&mut sender, &self.broker, &next?).await?;
            if is_ready(&mut self.in_flight).await {
                finished = Some(front(&mut self.in_flight).await);
            }
        }
        sender.finish().await.map_err(ConnectionError::Write)
    }

    async fn drain(&mut self) -> Result<(), ConnectionError> {
        while !self.in_flight.is_empty() {
            let finished = front(&mut self.in_flight).await;
            self.answer(finished).await?;
        }
        Ok(())
    }
}

/// Waits for the oldest request on its way and takes it off the queue. Safe to cancel: taken only when finished.
async fn front(in_flight: &mut VecDeque<(PendingProduce, Frame)>) -> Result<Finished, RequestError> {
    if let Some((pending, _)) = in_flight.front_mut() {
        pending.ready().await;
    }
    match in_flight.pop_front() {
        Some((pending, _frame)) => pending.finish(),
        None => std::future::pending().await,
    }
}

async fn is_ready(in_flight: &mut VecDeque<(PendingProduce, Frame)>) -> bool {
    match in_flight.front_mut() {
        Some((pending, _)) => pending.is_ready().await,
        None => false,
    }
}

async fn put(sender: &mut Sender<'_>, broker: &Broker, finished: &Finished) -> Result<(), ConnectionError> {
    if let Some(answer) = &finished.answer {
        let answer: &Answer = answer;
        sender.put(answer).await.map_err(ConnectionError::Write)?;
    }
    broker.metrics.requests.observe(finished.api_key, finished.received_at.elapsed());
    Ok(())
}

/// One timer serves the connection's whole life: it is moved only when it fires too early. False when really idle.
fn rearm(mut idle: std::pin::Pin<&mut Sleep>, active_at: Instant, idle_max: Duration) -> bool {
    let deadline = active_at + idle_max;
    if Instant::now() >= deadline {
        return false;
    }
    idle.as_mut().reset(deadline);
    true
}
