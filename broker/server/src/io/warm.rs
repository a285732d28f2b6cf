//! Reads cold ranges into the page cache before a network thread sends them.
//!
//! What must hold: `sendfile` and `read` on a network thread find their bytes in memory; a catch-up reader waits here, on
//! threads of its own, and holds up nobody but itself. Whether a range is hot is probed by a read that must not block
//! (`RWF_NOWAIT`); where the file system has no such read, only a range among the newest batches is taken as hot.

use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::sync::{mpsc, oneshot};

use super::stop_on_panic::PanicAlarm;
use crate::net::send::FileRange;

/// Distance of two probed bytes: readahead brings in at least this much at once.
const PROBE_STEP_BYTES: u64 = 128 * 1024;
const READ_BYTES: usize = 128 * 1024;
/// Ranges that may wait for a thread.
const QUEUE_RANGES: usize = 64;

enum Job {
    Warm(FileRange, oneshot::Sender<()>),
    Stop,
}

pub(crate) struct Warmer {
    queue: mpsc::Sender<Job>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Warmer {
    pub(crate) fn start(threads: usize, alarm: &PanicAlarm) -> std::io::Result<Self> {
        let (queue, receiver) = mpsc::channel(QUEUE_RANGES);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut handles = Vec::new();
        for number in 0..threads {
            let (receiver, watch) = (Arc::clone(&receiver), alarm.watch());
            let thread = std::thread::Builder::new().name(format!("cold-{number}")).spawn(move || {
                let _watch = watch;
                run(&receiver);
            })?;
            handles.push(thread);
        }
        Ok(Self { queue, threads: Mutex::new(handles) })
    }

    /// Returns once the range has been read; one that can't be read is left to the sender, which closes the connection.
    pub(crate) async fn warm(&self, slice: FileRange) {
        let (done, finished) = oneshot::channel();
        let _stopping = self.queue.send(Job::Warm(slice, done)).await;
        let _stopped = finished.await;
    }

    /// Ends the threads. Blocks.
    pub(crate) fn stop(&self) {
        let mut threads = self.threads.lock();
        for _ in threads.iter() {
            let _stopped_already = self.queue.blocking_send(Job::Stop);
        }
        for thread in threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

fn run(queue: &Mutex<mpsc::Receiver<Job>>) {
    let mut buffer = Vec::new();
    loop {
        let job = queue.lock().blocking_recv();
        match job {
            Some(Job::Warm(slice, done)) => {
                buffer.resize(READ_BYTES, 0);
                read_through(&slice, &mut buffer);
                buffer = Vec::new();
                let _client_gone = done.send(());
            }
            Some(Job::Stop) | None => return,
        }
    }
}

fn read_through(slice: &FileRange, buffer: &mut [u8]) {
    let end = slice.position + u64::from(slice.length);
    let mut position = slice.position;
    while position < end {
        let wanted = usize::try_from(end - position).unwrap_or(usize::MAX).min(buffer.len());
        match slice.file.read_at(&mut buffer[..wanted], position) {
            Ok(0) | Err(_) => return,
            Ok(read) => position += u64::try_from(read).unwrap_or(u64::MAX),
        }
    }
}

/// Whether sending this range would wait for the disk, as far as a probe every [`PROBE_STEP_BYTES`] can tell.
/// `recent` says that the range begins among the newest batches: those are hot where no probe is possible.
pub(crate) fn is_cold(slice: &FileRange, recent: bool) -> bool {
    let end = slice.position + u64::from(slice.length);
    let mut position = slice.position;
    while position < end {
        match probe(slice, position) {
            Probe::Hot => {}
            Probe::Cold => return true,
            Probe::Unknown => return !recent,
        }
        let last = end - 1;
        if position == last {
            break;
        }
        position = (position + PROBE_STEP_BYTES).min(last);
    }
    false
}

enum Probe {
    Hot,
    Cold,
    Unknown,
}

fn probe(slice: &FileRange, position: u64) -> Probe {
    let mut byte = [0];
    match preadv2(&*slice.file, &mut [IoSliceMut::new(&mut byte)], position, ReadWriteFlags::NOWAIT) {
        Ok(_) => Probe::Hot,
        Err(Errno::AGAIN) => Probe::Cold,
        Err(_) => Probe::Unknown,
    }
}
