//! The controller listener: where other brokers call this one.
//!
//! What must hold: a stranger gets no further than the greeting; calls of one connection are answered one after another; how a
//! connection ends is told to those who conclude something from it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use openraft::async_runtime::watch::WatchReceiver;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::frames::{FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, read_request, send_answer};
use super::members;
use super::node::Quorum;
use super::protocol::{
    CONTROLLER_API_KEY, ControllerReply, ControllerRequest, Hello, PROTOCOL_VERSION, QUORUM_API_KEY, QuorumAnswer,
    QuorumRequest,
};
use super::types::VoterId;

/// Connections at once: each broker has a handful.
const CONNECTIONS_MAX: usize = 1024;
/// How long a stranger may take to greet.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// The largest snapshot that is taken in.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
/// Waited after a failed accept, which is mostly "too many open files": trying again at once would spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A connection's other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) voter: VoterId,
    /// Its own for each connection.
    pub(crate) connection: u64,
}

/// Answers what is asked of the controller, and hears which connections end.
pub(crate) trait Controller: Send + Sync + 'static {
    /// Answers a request.
    fn answer(&self, caller: Caller, request: ControllerRequest) -> impl Future<Output = ControllerReply> + Send;
    /// A connection has ended.
    fn closed(&self, caller: Caller);
}

/// Serves until this broker has left the quorum.
pub(crate) async fn serve<C: Controller>(quorum: Arc<Quorum>, controller: Arc<C>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let next = AtomicU64::new(0);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = quorum.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _address)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a broker's connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!("a connection to the controller listener is refused: {CONNECTIONS_MAX} are open");
            continue;
        };
        let (quorum, controller) = (Arc::clone(&quorum), Arc::clone(&controller));
        let number = next.fetch_add(1, Ordering::Relaxed);
        connections.spawn(async move {
            let _place = place;
            let mut connection = Connection { quorum, controller, stream, snapshot: BytesMut::new(), leads: false };
            if let Some(voter) = connection.greet().await {
                connection.serve(Caller { voter, connection: number }).await;
            }
        });
    }
}

struct Connection<C> {
    quorum: Arc<Quorum>,
    controller: Arc<C>,
    stream: TcpStream,
    /// The parts of a snapshot that have come.
    snapshot: BytesMut,
    /// The caller has called as the leader.
    leads: bool,
}

impl<C: Controller> Connection<C> {
    /// Who calls, if it may.
    async fn greet(&mut self) -> Option<VoterId> {
        let greeted = async {
            self.stream.set_nodelay(true)?;
            let socket = SockRef::from(&self.stream);
            socket.set_tcp_keepalive(&TcpKeepalive::new())?;
            socket.set_keepalive(true)?;
            let Some(frame) = read_request(&mut self.stream, GREETING_BYTES_MAX).await? else { return Ok(None) };
            let (answer, voter) = match frame.parse() {
                Ok(QuorumRequest::Hello(hello)) if frame.api_key == QUORUM_API_KEY => self.judge(&hello),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "not a greeting of a broker")),
            };
            send_answer(&mut self.stream, frame.correlation_id, &answer).await?;
            Ok::<_, io::Error>(voter)
        };
        match timeout(GREETING_MAX, greeted).await {
            Ok(Ok(voter)) => voter,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection to the controller listener is closed");
                None
            }
            Err(_elapsed) => None,
        }
    }

    fn judge(&self, hello: &Hello) -> (QuorumAnswer, Option<VoterId>) {
        let own = &self.quorum.peers.hello;
        let refused = if hello.cluster_id != own.cluster_id {
            Some(format!(
                "broker {} belongs to cluster {}, this is cluster {} (forebay.cluster.id)",
                hello.from.broker.0, hello.cluster_id, own.cluster_id
            ))
        } else if hello.protocol != PROTOCOL_VERSION {
            let theirs = hello.protocol;
            Some(format!("broker {} speaks version {theirs}, this broker {PROTOCOL_VERSION}", hello.from.broker.0))
        } else {
            None
        };
        match refused {
            Some(message) => {
                tracing::warn!("metadata quorum: a connection is refused: {message}");
                (QuorumAnswer::Refused { message }, None)
            }
            None => (QuorumAnswer::Welcome(self.quorum.welcome()), Some(hello.from)),
        }
    }

    async fn serve(mut self, caller: Caller) {
        let ended = self.answer_all(caller).await;
        tracing::debug!(broker = caller.voter.broker.0, ?ended, "a broker's connection ended");
        self.controller.closed(caller);
        if self.leads {
            self.quorum.leader_hung_up(caller.voter);
        }
    }

    async fn answer_all(&mut self, caller: Caller) -> io::Result<()> {
        while let Some(frame) = read_request(&mut self.stream, FRAME_BYTES_MAX).await? {
            match frame.api_key {
                QUORUM_API_KEY => {
                    let answer = self.answer_quorum(caller, &frame).await?;
                    send_answer(&mut self.stream, frame.correlation_id, &answer).await?;
                }
                CONTROLLER_API_KEY => {
                    let answer = self.controller.answer(caller, frame.parse()?).await;
                    send_answer(&mut self.stream, frame.correlation_id, &answer).await?;
                }
                other => {
                    let message = format!("api key {other} is not served on the controller listener");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
            }
        }
        Ok(())
    }

    async fn answer_quorum(&mut self, caller: Caller, frame: &Frame) -> io::Result<QuorumAnswer> {
        let raft = &self.quorum.raft;
        let answer = match frame.parse()? {
            QuorumRequest::Hello(_) => QuorumAnswer::Welcome(self.quorum.welcome()),
            QuorumRequest::AppendEntries(request) => {
                let answer = raft.append_entries(request).await.map(QuorumAnswer::AppendEntries);
                self.hear_of_leader(caller.voter);
                answer.unwrap_or_else(failed)
            }
            QuorumRequest::Vote(request) => raft.vote(request).await.map_or_else(failed, QuorumAnswer::Vote),
            QuorumRequest::PreVote(request) => raft.pre_vote(request).await.map_or_else(failed, QuorumAnswer::Vote),
            QuorumRequest::TransferLeader(request) => {
                raft.handle_transfer_leader(request).await.map_or_else(failed, QuorumAnswer::TransferLeader)
            }
            QuorumRequest::SnapshotPart { at } => self.take_part(at, &frame.rest),
            QuorumRequest::InstallSnapshot { vote, meta, bytes } => {
                let snapshot: Bytes = std::mem::take(&mut self.snapshot).freeze();
                if snapshot.len() != bytes {
                    let message = format!("a snapshot of {bytes} bytes has come with {}", snapshot.len());
                    return Ok(QuorumAnswer::Failed { message });
                }
                let snapshot = super::types::Snapshot { meta, snapshot };
                let installed = raft.install_full_snapshot(vote, snapshot).await;
                self.hear_of_leader(caller.voter);
                installed.map_or_else(failed, QuorumAnswer::InstallSnapshot)
            }
            QuorumRequest::Join { address } => members::let_in(&self.quorum, caller.voter, address).await,
        };
        Ok(answer)
    }

    fn hear_of_leader(&mut self, caller: VoterId) {
        self.leads = self.quorum.raft.metrics().borrow_watched().current_leader == Some(caller);
        if self.leads {
            self.quorum.heard_of_leader();
        }
    }

    fn take_part(&mut self, at: usize, part: &[u8]) -> QuorumAnswer {
        if at == 0 {
            self.snapshot.clear();
        }
        let after = at.saturating_add(part.len());
        if at != self.snapshot.len() || after > SNAPSHOT_BYTES_MAX {
            let have = self.snapshot.len();
            let message =
                format!("a part of a snapshot at byte {at}..{after}: {have} bytes have come, {SNAPSHOT_BYTES_MAX} may");
            return QuorumAnswer::Failed { message };
        }
        self.snapshot.extend_from_slice(part);
        QuorumAnswer::SnapshotPart
    }
}

fn failed(error: impl std::fmt::Display) -> QuorumAnswer {
    QuorumAnswer::Failed { message: error.to_string() }
}
