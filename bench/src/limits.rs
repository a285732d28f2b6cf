//! What this machine can do at all: loopback TCP, memory, disk. A figure beside them says how much of it is the broker's doing.
//!
//! Each is the best of a few tries of a second or less, by one thread, since other work only makes them worse.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const TRIES: usize = 3;
const CHUNK_BYTES: usize = 1 << 20;
const LOOPBACK_CHUNKS: usize = 512;
const COPIED_CHUNKS: usize = 1024;
const DISK_CHUNKS: u64 = 256;
/// As much as a batch that producers are tuned for.
const WRITE_BYTES: usize = 64 << 10;
const WRITES: u64 = 2_048;
const FLUSHES: usize = 50;

/// Megabytes (10⁶) a second, and what one flush takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) loopback: f64,
    pub(crate) memory: f64,
    pub(crate) page_cache: f64,
    pub(crate) disk: f64,
    pub(crate) flush: Duration,
}

impl Limits {
    /// Measures them; the disk is that of the temporary folder, where brokers have their data too.
    pub(crate) fn measure() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let best =
            |of: &dyn Fn() -> Result<f64>| -> Result<f64> { (0..TRIES).try_fold(0.0, |most, _| Ok(of()?.max(most))) };
        Ok(Self {
            loopback: best(&loopback)?,
            memory: best(&|| Ok(memory()))?,
            page_cache: best(&|| page_cache(folder.path()))?,
            disk: best(&|| disk(folder.path()))?,
            flush: flush(folder.path())?,
        })
    }

    /// Two sentences for what is saved.
    pub(crate) fn text(&self) -> String {
        let Self { loopback, memory, page_cache, disk, flush } = self;
        let flush_ms = flush.as_secs_f64() * 1e3;
        format!(
            "Limits of this machine just before, one thread each: loopback TCP {loopback:.0} MB/s, copying memory {memory:.0} MB/s, \
             writing 64 KiB at a time into new pages of the page cache {page_cache:.0} MB/s, writing to the disk with a flush at the end {disk:.0} MB/s, fdatasync of 4 KiB {flush_ms:.2} ms (median of {FLUSHES})."
        )
    }
}

fn mb_a_second(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

fn loopback() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let writer = std::thread::spawn(move || -> Result<()> {
        let mut stream = TcpStream::connect(address)?;
        let chunk = vec![7; CHUNK_BYTES];
        (0..LOOPBACK_CHUNKS).try_for_each(|_| stream.write_all(&chunk))?;
        Ok(())
    });
    let (mut stream, _) = listener.accept()?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let (began, mut come) = (Instant::now(), 0);
    loop {
        match stream.read(&mut chunk)? {
            0 => break,
            read => come += read,
        }
    }
    let took = began.elapsed();
    writer.join().ok().context("the writer panicked")??;
    Ok(mb_a_second(come, took))
}

/// From one place to another that both do not fit into a processor's cache.
fn memory() -> f64 {
    let from = vec![7_u8; 64 * CHUNK_BYTES];
    let mut to = vec![0_u8; 64 * CHUNK_BYTES];
    let began = Instant::now();
    for chunk in 0..COPIED_CHUNKS {
        let at = (chunk % 64) * CHUNK_BYTES;
        to[at..at + CHUNK_BYTES].copy_from_slice(&from[at..at + CHUNK_BYTES]);
        std::hint::black_box(&to);
    }
    mb_a_second(COPIED_CHUNKS * CHUNK_BYTES, began.elapsed())
}

/// The least that an append can cost.
fn page_cache(folder: &Path) -> Result<f64> {
    let path = folder.join("cached");
    let file = File::create(&path)?;
    let chunk = vec![7; WRITE_BYTES];
    let began = Instant::now();
    (0..WRITES).try_for_each(|number| file.write_all_at(&chunk, number * WRITE_BYTES as u64))?;
    let took = began.elapsed();
    std::fs::remove_file(&path)?;
    Ok(mb_a_second(usize::try_from(WRITES)? * WRITE_BYTES, took))
}

fn disk(folder: &Path) -> Result<f64> {
    let file = File::create(folder.join("written"))?;
    let chunk = vec![7; CHUNK_BYTES];
    let began = Instant::now();
    (0..DISK_CHUNKS).try_for_each(|number| file.write_all_at(&chunk, number * CHUNK_BYTES as u64))?;
    file.sync_data()?;
    Ok(mb_a_second(usize::try_from(DISK_CHUNKS)? * CHUNK_BYTES, began.elapsed()))
}

fn flush(folder: &Path) -> Result<Duration> {
    let mut file = File::create(folder.join("flushed"))?;
    let mut took = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        let began = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        took.push(began.elapsed());
    }
    took.sort();
    took.get(FLUSHES / 2).copied().context("nothing was flushed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_a_second_are_counted_in_millions() {
        assert_eq!(mb_a_second(3_000_000, Duration::from_millis(500)), 6.0);
    }
}
