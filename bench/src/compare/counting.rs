//! A reader that costs next to nothing: it takes what a broker sends, finds where the next fetch has to begin, and throws it away. So the
//! broker is what is measured, and not who decodes records.
//!
//! What must hold: it asks both makes the same, in the same version and with a consumer's defaults, one request after the other; and it has
//! read everything when it says so.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const FETCH: i16 = 1;
/// The oldest that both offer: it has no session.
const VERSION: i16 = 4;
const MAX_WAIT_MS: i32 = 500;
const MAX_BYTES: i32 = 50 << 20;
const PARTITION_MAX_BYTES: i32 = 1 << 20;
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Reads partition 0 from its beginning until so many records have come. Gives how long that took, from the first request on.
pub(super) fn read(address: &str, topic: &str, records: u64) -> Result<Duration> {
    read_while(address, topic, records, || true)
}

/// The same, as long as it may go on.
pub(super) fn read_while(address: &str, topic: &str, records: u64, go_on: impl Fn() -> bool) -> Result<Duration> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("can't connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    let (mut buffer, mut next) = (Vec::new(), 0);
    let began = Instant::now();
    while next < records && go_on() {
        stream.write_all(&request(topic, next)?)?;
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let size = usize::try_from(u32::from_be_bytes(size))?;
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        stream.read_exact(&mut buffer[..size])?;
        let end = end_of(records_of(&buffer[..size])?).with_context(|| format!("nothing came at offset {next}"))?;
        ensure!(end > next, "what came at offset {next} ends at {end}");
        next = end;
    }
    Ok(began.elapsed())
}

fn request(topic: &str, offset: u64) -> Result<Vec<u8>> {
    let name = i16::try_from(topic.len())?.to_be_bytes();
    let mut frame = vec![0; 4];
    frame.extend([FETCH.to_be_bytes(), VERSION.to_be_bytes()].concat());
    frame.extend(0_i32.to_be_bytes()); // correlation
    frame.extend((-1_i16).to_be_bytes()); // no client id
    for number in [-1, MAX_WAIT_MS, 1, MAX_BYTES] {
        frame.extend(number.to_be_bytes()); // no replica, the longest wait, min_bytes, max_bytes
    }
    frame.push(0); // uncommitted too
    frame.extend(1_i32.to_be_bytes());
    frame.extend(name);
    frame.extend(topic.as_bytes());
    frame.extend([1_i32.to_be_bytes(), 0_i32.to_be_bytes()].concat()); // one partition: 0
    frame.extend(i64::try_from(offset)?.to_be_bytes());
    frame.extend(PARTITION_MAX_BYTES.to_be_bytes());
    let size = i32::try_from(frame.len() - 4)?;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    Ok(frame)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    Ok(bytes.get(at..at + N).context("the answer is too short")?.try_into()?)
}

/// The record batches of an answer that has one partition; the last of them may be cut off.
fn records_of(answer: &[u8]) -> Result<&[u8]> {
    // Correlation, throttling and the number of topics are before the name; the number of partitions and the index behind it.
    let name = usize::from(u16::from_be_bytes(bytes_at(answer, 12)?));
    let error_at = 12 + 2 + name + 4 + 4;
    let code = i16::from_be_bytes(bytes_at(answer, error_at)?);
    if code != 0 {
        bail!("the fetch was refused with error {code}");
    }
    // High watermark, last stable offset and (none) aborted transactions.
    let length_at = error_at + 2 + 8 + 8 + 4;
    let length = usize::try_from(i32::from_be_bytes(bytes_at(answer, length_at)?)).unwrap_or(0);
    answer.get(length_at + 4..length_at + 4 + length).context("the answer ends before its records")
}

/// The offset behind the last whole batch; `None` when there is none.
fn end_of(records: &[u8]) -> Option<u64> {
    const HEADER_BYTES: usize = 61;
    const PREFIX_BYTES: usize = 12;
    let (mut at, mut end) = (0, None);
    while let Some(header) = records.get(at..at + HEADER_BYTES) {
        let length = usize::try_from(i32::from_be_bytes(header[8..12].try_into().ok()?)).ok()?;
        if records.len() < at + PREFIX_BYTES + length {
            break;
        }
        let base = u64::from_be_bytes(header[..8].try_into().ok()?);
        let last_delta = u32::from_be_bytes(header[23..27].try_into().ok()?);
        end = Some(base + u64::from(last_delta) + 1);
        at += PREFIX_BYTES + length;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: u64, records: u32) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes[8..12].copy_from_slice(&88_u32.to_be_bytes());
        bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        bytes
    }

    fn answer(code: i16, records: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 12];
        bytes.extend(b"\0\x06ladder");
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        bytes.extend(code.to_be_bytes());
        bytes.extend([0; 20]);
        bytes.extend(u32::try_from(records.len()).unwrap().to_be_bytes());
        bytes.extend(records);
        bytes
    }

    #[test]
    fn the_next_fetch_begins_behind_the_last_whole_batch() {
        let mut records = [batch(0, 10), batch(10, 5)].concat();
        records.extend(&batch(15, 5)[..90]);
        assert_eq!(end_of(records_of(&answer(0, &records)).unwrap()), Some(15));
        assert_eq!(end_of(records_of(&answer(0, &[])).unwrap()), None);
    }

    #[test]
    fn an_answer_that_says_no_or_ends_early_is_an_error() {
        assert!(records_of(&answer(3, &[])).unwrap_err().to_string().contains("error 3"));
        let whole = answer(0, &batch(0, 1));
        assert!(records_of(&whole[..whole.len() - 1]).is_err());
    }

    #[test]
    fn a_request_says_how_long_it_is() {
        let frame = request("ladder", 7).unwrap();
        assert_eq!(frame.len(), 4 + usize::from(frame[3]));
        assert_eq!(frame[frame.len() - 12..frame.len() - 4], 7_u64.to_be_bytes());
    }
}
