//! One TCP connection to one broker: versions agreed once, requests pipelined, answers matched in order.
//! Any failure, a late answer included, ends the connection: what came after it could not be trusted to match.

mod io;
#[cfg(test)]
pub(crate) mod tests;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_broker_wire::frame;
use forebay_broker_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use forebay_broker_wire::messages::{Message, Request};
use forebay_broker_wire::primitives::{Decoder, Part};
use forebay_broker_wire::types::{ErrorCode, Str};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::ClientConfig;
use crate::error::{ConnectError, RequestError};
use io::{Ended, Outgoing};
use versions::Versions;

/// A connection; dropping it closes it. Requests may be sent from many tasks at once.
#[derive(Debug)]
pub struct Connection {
    address: String,
    client_id: Str,
    request_timeout: Duration,
    outgoing: mpsc::Sender<Outgoing>,
    ended: Arc<Ended>,
    tasks: [JoinHandle<()>; 2],
    versions: Versions,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Connection {
    /// Connects to `host:port` and agrees on versions.
    pub async fn open(address: &str, config: &ClientConfig) -> Result<Self, ConnectError> {
        if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(ConnectError::Address { address: address.to_owned() });
        }
        let io = |source| ConnectError::Io { address: address.to_owned(), source };
        let stream = timeout(config.connect_timeout, TcpStream::connect(address))
            .await
            .map_err(|_| ConnectError::Timeout { address: address.to_owned(), after: config.connect_timeout })?
            .map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        let mut connection = Self::start(stream, address, config);
        connection.versions = connection
            .agree_on_versions()
            .await
            .map_err(|source| ConnectError::Handshake { address: address.to_owned(), source: Box::new(source) })?;
        Ok(connection)
    }

    fn start(stream: TcpStream, address: &str, config: &ClientConfig) -> Self {
        let (read, write) = stream.into_split();
        let (outgoing, requests) = mpsc::channel(config.max_in_flight);
        let (waiting, answers) = mpsc::channel(config.max_in_flight);
        let ended = Arc::new(Ended::default());
        let tasks = [
            tokio::spawn(io::write_requests(write, requests, waiting, Arc::clone(&ended))),
            tokio::spawn(io::read_answers(read, answers, config.max_frame_bytes, Arc::clone(&ended))),
        ];
        Self {
            address: address.to_owned(),
            client_id: Str::from(config.client_id.as_str()),
            request_timeout: config.request_timeout,
            outgoing,
            ended,
            tasks,
            versions: Versions::default(),
        }
    }

    /// Asks with the newest version we know; a broker that does not know it says so in version 0, and tells its own range (KIP-511).
    async fn agree_on_versions(&self) -> Result<Versions, RequestError> {
        let request = ApiVersionsRequest {
            client_software_name: Str::from_static("forebay"),
            client_software_version: Str::from_static(env!("CARGO_PKG_VERSION")),
            ..Default::default()
        };
        // Version 3 says everything we want to know; newer ones only add checks of cluster and node id.
        let first = self.exchange(&request, 3, self.request_timeout).await?;
        let response = if starts_with_unsupported_version(&first) {
            let again = self.exchange(&ApiVersionsRequest::default(), 0, self.request_timeout).await?;
            self.decode::<ApiVersionsRequest>(again, 0)?
        } else {
            self.decode::<ApiVersionsRequest>(first, 3)?
        };
        RequestError::check(response.error_code, None, || "ApiVersions".to_owned())?;
        Ok(offered(&response))
    }

    /// Where it is connected to.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether it can't be used any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ended.reason().is_some() || self.outgoing.is_closed()
    }

    /// The version that requests of this kind are sent in: the highest that both sides know.
    pub fn version_of<R: Request>(&self) -> Result<i16, RequestError> {
        self.versions.common::<R>(&self.address)
    }

    /// Sends a request and waits for its answer.
    pub async fn send<R: Request>(&self, request: &R) -> Result<R::Response, RequestError> {
        self.send_waiting(request, Duration::ZERO).await
    }

    /// As [`Connection::send`], for requests that the broker may take `longer` to answer because they ask it to wait.
    pub async fn send_waiting<R: Request>(&self, request: &R, longer: Duration) -> Result<R::Response, RequestError> {
        let version = self.version_of::<R>()?;
        self.send_in(request, version, longer).await
    }

    /// As [`Connection::send_waiting`], in a version the caller has picked from what both sides know.
    pub async fn send_in<R: Request>(
        &self,
        request: &R,
        version: i16,
        longer: Duration,
    ) -> Result<R::Response, RequestError> {
        let answer = self.exchange(request, version, self.request_timeout + longer).await?;
        self.decode::<R>(answer, version)
    }

    /// Sends a request that has no answer: Produce with acks=0.
    pub async fn send_unanswered<R: Request>(&self, request: &R) -> Result<(), RequestError> {
        self.send_unanswered_in(request, self.version_of::<R>()?).await
    }

    /// As [`Connection::send_unanswered`], in a version the caller has picked.
    pub async fn send_unanswered_in<R: Request>(&self, request: &R, version: i16) -> Result<(), RequestError> {
        let correlation_id = self.ended.next_correlation_id();
        let parts = self.encode(request, version, correlation_id)?;
        let sent = self.outgoing.send(Outgoing { parts, correlation_id, answer: None }).await;
        sent.map_err(|_| self.closed::<R>())
    }

    async fn exchange<R: Request>(&self, request: &R, version: i16, wait: Duration) -> Result<Bytes, RequestError> {
        let correlation_id = self.ended.next_correlation_id();
        let parts = self.encode(request, version, correlation_id)?;
        let (answer, answered) = oneshot::channel();
        let whole = async {
            let sent = self.outgoing.send(Outgoing { parts, correlation_id, answer: Some(answer) }).await;
            sent.map_err(|_| self.closed::<R>())?;
            answered.await.map_err(|_| self.closed::<R>())
        };
        match timeout(wait, whole).await {
            Ok(answered) => answered,
            Err(_) => {
                let late = RequestError::Timeout { address: self.address.clone(), api: R::API_KEY.name(), after: wait };
                self.ended.because(&late.to_string());
                self.tasks.iter().for_each(JoinHandle::abort);
                Err(late)
            }
        }
    }

    fn encode<R: Request>(&self, request: &R, version: i16, correlation_id: i32) -> Result<Vec<Part>, RequestError> {
        frame::encode_request(request, version, correlation_id, Some(self.client_id.clone()))
            .map_err(|source| RequestError::Encode { api: R::API_KEY.name(), version, source })
    }

    fn decode<R: Request>(&self, answer: Bytes, version: i16) -> Result<R::Response, RequestError> {
        let mut decoder = Decoder::new(answer);
        frame::decode_response_header(&mut decoder, R::API_KEY, version)
            .and_then(|_| R::Response::decode(&mut decoder, version))
            .map_err(|source| RequestError::Decode {
                address: self.address.clone(),
                api: R::API_KEY.name(),
                version,
                source,
            })
    }

    fn closed<R: Request>(&self) -> RequestError {
        RequestError::Closed {
            address: self.address.clone(),
            api: R::API_KEY.name(),
            reason: self.ended.reason().unwrap_or_else(|| "closed".to_owned()),
        }
    }
}

/// An answer to ApiVersions in a version that the broker does not know starts with error 35 after the correlation id.
fn starts_with_unsupported_version(answer: &[u8]) -> bool {
    answer.get(4..6).is_some_and(|code| code == (ErrorCode::UnsupportedVersion as i16).to_be_bytes())
}

fn offered(response: &ApiVersionsResponse) -> Versions {
    response.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect()
}
