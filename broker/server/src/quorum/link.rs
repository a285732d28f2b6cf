//! A connection to another broker's controller listener, from the calling side: one call at a time.
//!
//! What must hold: no call goes to a broker of another cluster, or to another disk than the one that is meant; a call that was given up
//! half way takes its connection with it, since the answer may still come.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frames::{read_answer, send_request};
use super::protocol::{Hello, QUORUM_API_KEY, QuorumAnswer, QuorumRequest, Welcome};
use super::types::Address;

/// How long a dial and its greeting may take.
const DIAL_MAX: Duration = Duration::from_millis(1000);

/// Why there is no connection, or no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// Nobody listens there: the process is not running.
    #[error("{address} refuses connections")]
    NobodyThere { address: Address },
    /// The network, or the time it takes.
    #[error("{address}: {source}")]
    Io { address: Address, source: io::Error },
    /// The other side does not accept us, or we do not accept it.
    #[error("{address}: {message}")]
    Refused { address: Address, message: String },
}

/// A connection that has been greeted.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    address: Address,
    next_id: i32,
    /// Who is at the other end.
    pub(crate) welcome: Welcome,
}

impl Link {
    /// Connects and greets.
    pub(super) async fn dial(address: &Address, hello: &Hello) -> Result<Self, LinkError> {
        let dialled = timeout(DIAL_MAX, Self::dial_and_greet(address, hello)).await;
        dialled.unwrap_or_else(|_elapsed| {
            Err(LinkError::Io { address: address.clone(), source: io::ErrorKind::TimedOut.into() })
        })
    }

    async fn dial_and_greet(address: &Address, hello: &Hello) -> Result<Self, LinkError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::ConnectionRefused => LinkError::NobodyThere { address: address.clone() },
            _ => LinkError::Io { address: address.clone(), source },
        };
        let mut stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let request = QuorumRequest::Hello(hello.clone());
        send_request(&mut stream, (QUORUM_API_KEY, 0), &request, &[]).await.map_err(failed)?;
        let refused = |message: String| LinkError::Refused { address: address.clone(), message };
        match read_answer(&mut stream).await.and_then(|frame| frame.parse()).map_err(failed)? {
            QuorumAnswer::Welcome(welcome) if welcome.cluster_id == hello.cluster_id => {
                Ok(Self { stream, address: address.clone(), next_id: 1, welcome })
            }
            QuorumAnswer::Welcome(welcome) => Err(refused(format!(
                "belongs to cluster {}, this broker to {} (forebay.cluster.id)",
                welcome.cluster_id, hello.cluster_id
            ))),
            QuorumAnswer::Refused { message } => Err(refused(message)),
            other => Err(refused(format!("answers a greeting by {other:?}"))),
        }
    }

    /// One call. After an error, or when it is dropped before its end, the link is of no use.
    pub(super) async fn call<T: DeserializeOwned>(
        &mut self,
        api_key: i16,
        request: &impl Serialize,
        rest: &[u8],
        time_max: Duration,
    ) -> Result<T, LinkError> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let stream = &mut self.stream;
        let called = timeout(time_max, async {
            send_request(stream, (api_key, id), request, rest).await?;
            let answer = read_answer(stream).await?;
            if answer.correlation_id != id {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to another request"));
            }
            answer.parse()
        });
        let called = called.await.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        called.map_err(|source| LinkError::Io { address: self.address.clone(), source })
    }

    /// One call of the quorum.
    pub(super) async fn call_quorum(
        &mut self,
        request: &QuorumRequest,
        rest: &[u8],
        time_max: Duration,
    ) -> Result<QuorumAnswer, LinkError> {
        self.call(QUORUM_API_KEY, request, rest, time_max).await
    }
}
