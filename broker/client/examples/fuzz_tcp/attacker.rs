//! One connection that sends damage: mostly well-formed frames with a damaged body, at times a damaged header or size, at times a
//! request without damage. What comes back is read and thrown away; waiting is kept short, as many requests wait on purpose.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use forebay_broker_wire::frame::RequestHeader;
use forebay_broker_wire::fuzzing::{Corpus, Random, Sample, mutate};
use forebay_broker_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use forebay_broker_wire::messages::{Message, Request};
use forebay_broker_wire::primitives::{Decoder, Encoder, Part};

/// How long an answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const MAX_BODY_BYTES: usize = 16 * 1024;

/// What became of the requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) unanswered: u64,
    pub(crate) closed: u64,
}

impl Counts {
    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            answered: self.answered + other.answered,
            unanswered: self.unanswered + other.unanswered,
            closed: self.closed + other.closed,
        }
    }
}

/// One run's samples and progress, shared by its connections.
#[derive(Debug)]
pub(crate) struct Attack {
    address: SocketAddr,
    seed: u64,
    requests: u64,
    next: AtomicU64,
    /// Requests in versions that the broker offers.
    offered: Vec<Sample>,
    /// All other requests.
    others: Vec<Sample>,
}

enum Answer {
    Came,
    TookTooLong,
    Closed,
}

impl Attack {
    pub(crate) fn new(address: SocketAddr, seed: u64, requests: u64) -> Result<Self> {
        let versions = api_versions(address)?;
        let samples = Corpus::load()?.messages;
        let requests_only = samples.into_iter().filter(|sample| sample.codec.requested_api().is_some());
        let (offered, others): (Vec<_>, Vec<_>) = requests_only.partition(|sample| {
            let key = sample.codec.requested_api().map(|api| api.as_i16());
            let ranges = &versions.api_keys;
            ranges.iter().any(|range| {
                Some(range.api_key) == key && (range.min_version..=range.max_version).contains(&sample.version)
            })
        });
        ensure!(!offered.is_empty() && !others.is_empty(), "the broker offers all versions of all requests, or none");
        Ok(Self { address, seed, requests, next: AtomicU64::new(0), offered, others })
    }

    /// Sends requests until all connections together have sent enough, or none can connect any more.
    pub(crate) fn run(&self) -> Counts {
        let mut counts = Counts::default();
        let mut connection = None;
        loop {
            let execution = self.next.fetch_add(1, Ordering::Relaxed);
            if execution >= self.requests {
                return counts;
            }
            let mut random = Random::new(self.seed, execution);
            let frame = self.frame(&mut random);
            let stream = match connection.take() {
                Some(stream) => stream,
                None => match connect(self.address) {
                    Ok(stream) => stream,
                    Err(_) => return counts, // whether the broker is gone is asked by the caller
                },
            };
            counts.sent += 1;
            match exchange(&stream, &frame) {
                Answer::Came => {
                    counts.answered += 1;
                    connection = Some(stream);
                }
                Answer::TookTooLong => counts.unanswered += 1,
                Answer::Closed => counts.closed += 1,
            }
        }
    }

    fn frame(&self, random: &mut Random) -> Vec<u8> {
        let sample = if random.below(16) == 0 { random.pick(&self.others) } else { random.pick(&self.offered) };
        let other = &random.pick(&self.offered).bytes;
        let mut body = sample.bytes.clone();
        if random.below(3) != 0 {
            body = mutate(random, &body, other, MAX_BODY_BYTES);
        }
        let mut frame = Bytes::from([&header(sample), &body[..]].concat());
        if random.below(16) == 0 {
            frame = mutate(random, &frame, other, MAX_BODY_BYTES);
        }
        let size = match random.below(64) {
            0 => u32::try_from(random.below(u32::MAX as usize)).unwrap_or(u32::MAX),
            _ => u32::try_from(frame.len()).unwrap_or(u32::MAX),
        };
        [&size.to_be_bytes(), &frame[..]].concat()
    }
}

fn header(sample: &Sample) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let header = RequestHeader {
        api_key: sample.codec.requested_api().map_or(-1, |api| api.as_i16()),
        api_version: sample.version,
        correlation_id: 7,
        client_id: Some("fuzzer".into()),
    };
    // The name is short enough for any header.
    let _ = header.encode(&mut encoder);
    encoder.into_bytes().unwrap_or_default().to_vec()
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(CONNECT_WITHIN))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn exchange(mut stream: &TcpStream, frame: &[u8]) -> Answer {
    let mut size = [0; 4];
    if stream.write_all(frame).is_err() {
        return Answer::Closed;
    }
    let read = stream.read_exact(&mut size).and_then(|()| {
        let size = u64::from(u32::from_be_bytes(size));
        let copied = std::io::copy(&mut stream.take(size), &mut std::io::sink())?;
        if copied == size { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    });
    match read {
        Ok(()) => Answer::Came,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Answer::TookTooLong,
        Err(_) => Answer::Closed,
    }
}

fn api_versions(address: SocketAddr) -> Result<ApiVersionsResponse> {
    let mut stream = connect(address)?;
    stream.set_read_timeout(Some(CONNECT_WITHIN))?;
    for part in forebay_broker_wire::frame::encode_request(&ApiVersionsRequest::default(), 0, 1, None)? {
        if let Part::Bytes(bytes) = part {
            stream.write_all(&bytes)?;
        }
    }
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut answer)?;
    let mut decoder = Decoder::new(answer.into());
    decoder.i32("correlation_id")?;
    <ApiVersionsRequest as Request>::Response::decode(&mut decoder, 0).context("the broker's ApiVersions")
}
