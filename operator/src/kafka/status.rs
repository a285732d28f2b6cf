//! Reads a broker's `/status`: what is in force. A GET over TCP with bounds on time and size; an HTTP client library would
//! weigh more than the operator.

use std::net::IpAddr;
use std::time::Duration;

use forebay_broker_config::status::BrokerStatus;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Where brokers serve `/status`, `/metrics` and the probes.
pub(crate) const HTTP_PORT: u16 = 9644;

const TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Why there is no status.
#[derive(Debug, Error)]
pub(crate) enum StatusError {
    /// Nobody answers.
    #[error("no answer from {address}: {source}")]
    Io {
        /// Where.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("no answer from {address} within {TIMEOUT:?}")]
    Timeout {
        /// Where.
        address: String,
    },
    /// The answer is not a status.
    #[error("{address} answers {answer:?} instead of its status")]
    Answer {
        /// Where.
        address: String,
        /// The first line of what it says.
        answer: String,
    },
    /// The status can't be read.
    #[error("status of {address} can't be read: {source}")]
    Json {
        /// Where.
        address: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// What the broker at this address says about itself.
pub(crate) async fn read(ip: IpAddr, port: u16) -> Result<BrokerStatus, StatusError> {
    let address = std::net::SocketAddr::new(ip, port).to_string();
    let answer = match tokio::time::timeout(TIMEOUT, get(&address)).await {
        Err(_) => return Err(StatusError::Timeout { address }),
        Ok(Err(source)) => return Err(StatusError::Io { address, source }),
        Ok(Ok(answer)) => answer,
    };
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    if head.split(' ').nth(1) != Some("200") {
        let answer = head.lines().next().unwrap_or_default().chars().take(100).collect();
        return Err(StatusError::Answer { address, answer });
    }
    serde_json::from_str(body).map_err(|source| StatusError::Json { address, source })
}

/// HTTP/1.0, so that the answer is neither chunked nor followed by another one.
async fn get(address: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET /status HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn answered(answer: &'static str) -> Result<BrokerStatus, StatusError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        tokio::join!(serve, read(address.ip(), address.port())).1
    }

    #[tokio::test]
    async fn reads_a_status_and_says_what_else_it_got() {
        let status = answered(
            "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{\"brokerId\": 3, \"state\": \"running\"}",
        )
        .await;
        assert_eq!(status.unwrap().broker_id, 3);
        let error = answered("HTTP/1.0 503 Service Unavailable\r\n\r\nno").await.unwrap_err();
        assert!(error.to_string().contains("503 Service Unavailable"), "{error}");
        let error = answered("HTTP/1.0 200 OK\r\n\r\n<html>").await.unwrap_err();
        assert!(error.to_string().contains("can't be read"), "{error}");
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_an_error_with_the_address() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = read(free.ip(), free.port()).await.unwrap_err();
        assert!(error.to_string().contains(&free.to_string()), "{error}");
    }
}
