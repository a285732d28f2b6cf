//! Reads cold ranges into the page cache before a network thread sends them.
//!
//! What must hold: `sendfile` and `read` on a network thread find their bytes in memory; a catch-up reader waits here, on
//! threads of its own, and holds up nobody but itself: not by the time of a core, since these threads stand back, nor by the memory, since
//! what it has left behind is let go of. Whether a range is hot is probed by a read that must not block
//! (`RWF_NOWAIT`); where the file system has no such read, only a range among the newest batches is taken as hot.

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::setpriority_process;
use tokio::sync::{mpsc, oneshot};

use super::stop_on_panic::PanicAlarm;
use crate::net::send::FileRange;

/// Distance of two probed bytes: readahead brings in at least this much at once.
const PROBE_STEP_BYTES: u64 = 128 * 1024;
const READ_BYTES: usize = 128 * 1024;
/// How far behind a reader of old data its ranges are dropped from the page cache: what others want is not pushed out for data that are read
/// once. Readers close behind find theirs.
const KEPT_BEHIND_BYTES: u64 = 8 << 20;
/// More than a reader gets on by from one cold range to the next, mostly; what is gone already costs nothing.
const DROPPED_BYTES: u64 = 16 << 20;
/// These threads' niceness: whoever wants the newest goes first.
const STAND_BACK: i32 = 5;
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
    // Of this thread only; where it is not allowed, they compete.
    let _refused = setpriority_process(None, STAND_BACK).is_err();
    let mut buffer = Vec::new();
    loop {
        let job = queue.lock().blocking_recv();
        match job {
            Some(Job::Warm(slice, done)) => {
                buffer.resize(READ_BYTES, 0);
                read_through(&slice, &mut buffer);
                buffer = Vec::new();
                drop_behind(&slice);
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

fn drop_behind(slice: &FileRange) {
    let end = slice.position.saturating_sub(KEPT_BEHIND_BYTES);
    let begin = end.saturating_sub(DROPPED_BYTES);
    if let Some(length) = NonZeroU64::new(end - begin) {
        // It is advice: what is not taken is only memory.
        let _refused = fadvise(&*slice.file, begin, Some(length), Advice::DontNeed).is_err();
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn is_cold_at(file: &Arc<File>, position: u64) -> bool {
        matches!(probe(&FileRange { file: Arc::clone(file), position, length: 1 }, position), Probe::Cold)
    }

    #[test]
    fn what_a_reader_of_old_data_has_left_behind_is_dropped_but_what_is_close_behind_it() {
        let file = Arc::new(tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap());
        let chunk = vec![7; 1 << 20];
        (0..40).for_each(|n| file.write_all_at(&chunk, n * MIB).unwrap());
        file.sync_all().unwrap();
        fadvise(&*file, 39 * MIB, NonZeroU64::new(MIB), Advice::DontNeed).unwrap();
        if !is_cold_at(&file, 39 * MIB) {
            return; // a file system that keeps everything, or that tells nothing
        }
        drop_behind(&FileRange { file: Arc::clone(&file), position: 30 * MIB, length: 1 << 20 });
        let cold: Vec<u64> = (0..39).filter(|n| is_cold_at(&file, n * MIB)).collect();
        assert_eq!(cold, (6..22).collect::<Vec<_>>());
        drop_behind(&FileRange { file: Arc::clone(&file), position: MIB, length: 1 << 20 });
        assert!(!is_cold_at(&file, 0), "nothing is far enough behind");
    }
}
