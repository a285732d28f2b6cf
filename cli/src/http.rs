//! One HTTP GET: enough to ask a broker on this machine for its status.

use std::time::Duration;

use anyhow::{Context, bail};
use forebay_broker_config::status::BrokerStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The most to wait for an answer.
const WITHIN: Duration = Duration::from_secs(2);
/// The largest answer taken.
const MOST_BYTES: u64 = 1 << 20;

/// What a broker says about itself.
pub(crate) async fn status(address: &str) -> anyhow::Result<BrokerStatus> {
    let body = timeout(WITHIN, get(address, "/status")).await.with_context(|| format!("{address} is silent"))??;
    serde_json::from_slice(&body).with_context(|| format!("{address} does not answer like a broker"))
}

async fn get(address: &str, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    // HTTP/1.0: the body ends with the connection and is never chunked.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer).await?;
    let text = answer.windows(4).position(|w| w == b"\r\n\r\n").context("no end of the HTTP header")?;
    let (header, body) = answer.split_at(text);
    let line = header.split(|b| *b == b'\r').next().unwrap_or_default();
    if !line.windows(5).any(|w| w == b" 200 " || w == b" 503 ") {
        bail!("{}", String::from_utf8_lossy(line));
    }
    Ok(body[4..].to_vec())
}
