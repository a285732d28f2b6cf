//! One client connection: requests in, answers out in the order of the requests.
//!
//! What must hold: a request begins only when the one before it has been answered, as Kafka's clients expect (a commit
//! before the leave that follows it); only Produce requests overlap, because they are handed to the disk threads in order
//! and an idempotent producer keeps five of them on the way. A connection ends when the client closes it, when it breaks
//! the protocol, when it was idle for `connections.max.idle.ms`, or at shutdown after its last answer; never the broker
//! with it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, timeout};

use super::frame::{Frame, FrameError, FrameReader};
use super::in_flight::InFlight;
use super::lines::Line;
use super::send::{Answer, Sender};
use crate::broker::Broker;
use crate::handlers::request::{Request, RequestError};
use crate::handlers::{self, Finished};

/// How long a client may take to take its answers while it has requests on their way.
const SHORT_ANSWERS_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("writing to the socket: {0}")]
    Write(#[source] io::Error),
    #[error("the client takes no bytes of its answers")]
    Stuck,
    #[error("the client closed the connection without waiting for its answer")]
    HungUp,
}

/// Who is at the other end, as handlers and logs name it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) host: Arc<str>,
    pub(crate) listener: Arc<str>,
    /// Told when it sends another request while one waits for bytes: a follower has more to ask for.
    pub(crate) hurry: Arc<Notify>,
}

pub(crate) struct Connection {
    broker: Arc<Broker>,
    line: Arc<Line>,
    peer: Peer,
    reader: FrameReader,
    in_flight: InFlight,
}

impl Connection {
    pub(crate) fn new(broker: Arc<Broker>, line: Arc<Line>, address: SocketAddr, listener: Arc<str>) -> Self {
        let peer = Peer { host: address.ip().to_canonical().to_string().into(), listener, hurry: Arc::default() };
        let budget = broker.budget.of_client(&peer.host);
        let reader = FrameReader::new(broker.limits.request_max_bytes, budget);
        let in_flight = InFlight::new(broker.limits.in_flight_max);
        Self { broker, line, peer, reader, in_flight }
    }

    /// Serves until the connection ends. What ended it goes to the log at the level of its cause: clients come and go.
    pub(crate) async fn serve(mut self) {
        let host = Arc::clone(&self.peer.host);
        match self.run().await {
            Ok(()) => {}
            Err(
                error @ (ConnectionError::Frame(FrameError::Io(_))
                | ConnectionError::Write(_)
                | ConnectionError::HungUp),
            ) => {
                tracing::debug!(client = %host, %error, "connection lost");
            }
            Err(ConnectionError::Request(error @ RequestError::Answer { .. })) => {
                tracing::error!(client = %host, %error, "connection closed: this broker made an answer that can't be sent");
            }
            Err(error @ (ConnectionError::Stuck | ConnectionError::Frame(FrameError::Stalled { .. }))) => {
                tracing::info!(client = %host, %error, "connection closed");
            }
            Err(error) => match self.broker.warnings.allow(Instant::now().into_std()) {
                Some(silent) => {
                    tracing::warn!(client = %host, %error, silent, "connection closed: the client broke the protocol");
                }
                None => tracing::debug!(client = %host, %error, "connection closed: the client broke the protocol"),
            },
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
                finished = self.in_flight.front(), if !self.in_flight.is_empty() => self.answer(finished).await?,
                frame = self.reader.next(&self.line.stream), if self.in_flight.has_room() => match frame? {
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

    /// Takes in a frame and what has come with it: Produce requests that came together are written together, and answered together.
    async fn receive(&mut self, frame: Frame) -> Result<(), ConnectionError> {
        let received = self.receive_all(frame).await;
        self.in_flight.hand_over(&self.broker, &self.line).await;
        received
    }

    async fn receive_all(&mut self, frame: Frame) -> Result<(), ConnectionError> {
        let mut next = Some(frame);
        while let Some(frame) = next {
            let Frame { bytes, charge } = frame;
            let frame_bytes = bytes.len();
            let request = Request::parse(&self.peer, bytes)?;
            if request.overlaps() {
                let pending = handlers::begin_produce(&self.broker, request)?;
                self.in_flight.push(pending, frame_bytes, charge);
            } else {
                self.in_flight.hand_over(&self.broker, &self.line).await;
                self.drain().await?;
                self.handle(request.hold(charge)).await?;
            }
            next = if self.in_flight.has_room() { self.reader.take()? } else { None };
        }
        Ok(())
    }

    /// What the request holds of the budget ends with its handling: a client that takes no answers holds nothing.
    async fn handle(&mut self, request: Request) -> Result<(), ConnectionError> {
        self.reader.let_go();
        let finished = if request.waits() && self.reader.is_empty() {
            // A long poll whose client has gone would hold its partitions' waiters for nothing.
            tokio::select! {
                biased;
                finished = handlers::handle(&self.broker, request) => finished?,
                () = hung_up(&self.line.stream, &self.peer.hurry) => return Err(ConnectionError::HungUp),
            }
        } else {
            if request.waits() {
                self.peer.hurry.notify_one();
            }
            handlers::handle(&self.broker, request).await?
        };
        self.write(async |sender, broker| put(sender, broker, &finished).await).await
    }

    /// Writes what `put` puts; a client that takes nothing for as long as it may be idle is given up, and much earlier when requests of it
    /// are on their way: they hold bytes of the budget, and answers to Produce are short.
    async fn write(
        &mut self,
        put_all: impl AsyncFnOnce(&mut Sender<'_>, &Broker) -> Result<(), ConnectionError>,
    ) -> Result<(), ConnectionError> {
        let mut sender = Sender::new(&self.line.stream);
        let written = async {
            put_all(&mut sender, &self.broker).await?;
            sender.finish().await.map_err(ConnectionError::Write)
        };
        let idle_max = self.broker.limits.idle_max;
        let patience = if self.in_flight.is_empty() { idle_max } else { idle_max.min(SHORT_ANSWERS_MAX) };
        timeout(patience, written).await.unwrap_or(Err(ConnectionError::Stuck))
    }

    /// Writes the answer of the oldest request on its way, with those behind it that are ready too, and hands over what had to wait for it.
    async fn answer(&mut self, first: Result<Finished, RequestError>) -> Result<(), ConnectionError> {
        let mut finished = vec![first];
        while self.in_flight.is_ready().await {
            finished.push(self.in_flight.front().await);
        }
        self.in_flight.hand_over(&self.broker, &self.line).await;
        self.write(async |sender, broker| {
            for next in finished {
                put(sender, broker, &next?).await?;
            }
            Ok(())
        })
        .await
    }

    async fn drain(&mut self) -> Result<(), ConnectionError> {
        while !self.in_flight.is_empty() {
            let finished = self.in_flight.front().await;
            self.answer(finished).await?;
        }
        Ok(())
    }
}

/// Returns when the client has closed its side; when it sends more instead, that is told and this never returns.
async fn hung_up(stream: &TcpStream, hurry: &Notify) {
    match stream.peek(&mut [0]).await {
        Ok(0) | Err(_) => {}
        Ok(_) => {
            hurry.notify_one();
            std::future::pending::<()>().await;
        }
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
