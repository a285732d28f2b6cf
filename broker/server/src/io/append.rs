//! The disk threads that append (`num.io.threads`).
//!
//! What must hold: each partition belongs to one thread, so its batches are written in the order they were handed over;
//! what waits for a partition goes down in one `Partition::append`; where the topic asks for it (`flush.messages`), one
//! flush covers all of it before any of it is acknowledged; a job always gets an answer, also while stopping. Queues are
//! bounded: a full one holds back the connections that fill it. What followers write goes by the same threads. An append
//! that need not wait may be done by who brings it (`append_hot`), but never before one that is queued. Each log directory has
//! threads of its own, and nobody is kept waiting on one that hangs if the partition can be led elsewhere. A partition whose log moves to
//! another directory gets a thread there when none of its appends is queued.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use forebay_broker_partition::{AppendError, AppendRequest, Appended, FlushError, Origin};
use forebay_broker_storage::Work;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant as Deadline;

use super::busy::BusyTime;
use super::recompress::recompress;
use super::stop_on_panic::PanicAlarm;
use crate::net::lines::Line;
use crate::partitions::{Hosted, Queued};

/// Jobs that a thread takes off its queue at once; more would let the first of them wait for the last.
const DRAIN_MAX: usize = 256;

/// Why records were not taken, or not with the promise that was asked for.
#[derive(Debug, Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Flush(Arc<FlushError>),
    #[error("{words}; the records may be kept or not")]
    Hung { words: String },
    #[error("the broker is stopping")]
    Stopping,
}

pub(crate) type WriteResult = Result<Appended, WriteError>;

struct Append {
    place: Queued,
    request: AppendRequest,
    reply: oneshot::Sender<WriteResult>,
}

enum Job {
    Append(Append),
    /// Other work on the thread's partitions.
    Run(Box<dyn FnOnce() + Send>),
    Stop,
}

/// Hands appends to the threads.
pub(crate) struct Appender {
    queues: Vec<mpsc::Sender<Job>>,
    dirs: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) busy: Arc<BusyTime>,
}

/// The answer to come for one append.
pub(crate) struct PendingAppend {
    reply: oneshot::Receiver<WriteResult>,
    hosted: Arc<Hosted>,
}

impl PendingAppend {
    /// The answer; when the log directory hangs, it is waited for until the deadline at most. Safe to cancel.
    pub(crate) async fn result(&mut self, deadline: Option<Deadline>) -> WriteResult {
        if let Ok(result) = self.reply.try_recv() {
            return result;
        }
        tokio::select! {
            biased;
            received = &mut self.reply => received.unwrap_or_else(|_dropped| Err(unanswered(&self.hosted))),
            () = self.hosted.given_up(deadline) => Err(unanswered(&self.hosted)),
        }
    }
}

/// A reply dropped unanswered is that of a thread that has stopped, or it was never handed over.
fn unanswered(hosted: &Hosted) -> WriteError {
    let dir = hosted.dir();
    if dir.is_hung() { WriteError::Hung { words: dir.words() } } else { WriteError::Stopping }
}

impl Appender {
    /// Starts `threads` threads, but one for each of the log directories at least, whose queues hold `queue_jobs` jobs each.
    pub(crate) fn start(threads: usize, dirs: usize, queue_jobs: usize, alarm: &PanicAlarm) -> std::io::Result<Self> {
        let (dirs, threads) = (dirs.max(1), threads.max(dirs).max(1));
        let busy = Arc::new(BusyTime::new(threads));
        let mut queues = Vec::new();
        let mut handles = Vec::new();
        for number in 0..threads {
            let (sender, receiver) = mpsc::channel(queue_jobs);
            let (busy, watch) = (Arc::clone(&busy), alarm.watch());
            let thread = std::thread::Builder::new().name(format!("io-{number}")).spawn(move || {
                let _watch = watch;
                run(receiver, &busy);
            })?;
            queues.push(sender);
            handles.push(thread);
        }
        Ok(Self { queues, dirs, threads: Mutex::new(handles), busy })
    }

    /// Queues an append; appends handed over one after another to one partition are written in that order.
    pub(crate) async fn begin(&self, hosted: &Arc<Hosted>, request: AppendRequest) -> PendingAppend {
        let (reply, pending) = oneshot::channel();
        let place = hosted.note_queued();
        let thread = self.thread_in(place.dir(), hosted);
        let job = Job::Append(Append { place, request, reply });
        if let Some(queue) = self.queues.get(thread) {
            // Whoever drops the job drops the reply with it: the waiter learns from that.
            tokio::select! {
                biased;
                _stopped = queue.send(job) => {}
                () = hosted.given_up(None) => {}
            }
        }
        PendingAppend { reply: pending, hosted: Arc::clone(hosted) }
    }

    /// Appends and waits for the result.
    pub(crate) async fn append(&self, hosted: &Arc<Hosted>, request: AppendRequest) -> WriteResult {
        self.begin(hosted, request).await.result(None).await
    }

    /// Appends on this very thread, as many of the first requests as need not wait for the disk or for appends that came before; those
    /// without an answer are for [`Self::begin`].
    pub(crate) fn append_hot(&self, hosted: &Hosted, requests: &[AppendRequest], line: &Line) -> Vec<WriteResult> {
        if !hosted.may_append_hot() {
            return Vec::new();
        }
        let dir = hosted.dir();
        let append = || {
            let _in_progress = dir.log_dir.progress().begin(Work::Awaited);
            hosted.partition.append_hot(requests, now_ms())
        };
        let here = || dir.pace.write_here(append).unwrap_or_default();
        let results = line.while_writing_to(dir.number, here);
        if results.iter().any(Result::is_ok) {
            hosted.mark_dirty();
        }
        results.into_iter().map(|result| result.map_err(WriteError::from)).collect()
    }

    /// The thread that a partition belongs to: one of its directory's.
    pub(crate) fn thread_of(&self, hosted: &Hosted) -> usize {
        self.thread_in(hosted.dir().number, hosted)
    }

    fn thread_in(&self, dir: usize, hosted: &Hosted) -> usize {
        thread_of(self.queues.len(), self.dirs, dir, hosted.number)
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.queues.len()
    }

    /// Runs other work on partitions of the thread that they belong to. `None` when that thread has stopped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        thread: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, result) = oneshot::channel();
        let job = Job::Run(Box::new(move || {
            let _given_up = reply.send(work());
        }));
        self.queues.get(thread)?.send(job).await.ok()?;
        result.await.ok()
    }

    /// Lets the threads finish what is queued, and ends them. Blocks.
    pub(crate) fn stop(&self) {
        for queue in &self.queues {
            let _stopped_already = queue.blocking_send(Job::Stop);
        }
        for thread in self.threads.lock().drain(..) {
            let _panicked = thread.join();
        }
    }
}

/// Threads are dealt out to the directories by turns, the partitions of a directory to its threads.
fn thread_of(threads: usize, dirs: usize, dir: usize, partition: usize) -> usize {
    let of_dir = threads / dirs + usize::from(dir < threads % dirs);
    dir + dirs * (partition % of_dir.max(1))
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn run(mut queue: mpsc::Receiver<Job>, busy: &BusyTime) {
    let mut jobs = Vec::new();
    let mut stopping = false;
    while !stopping && queue.blocking_recv_many(&mut jobs, DRAIN_MAX) > 0 {
        let began = Instant::now();
        let mut groups: Vec<Group> = Vec::new();
        for job in jobs.drain(..) {
            match job {
                Job::Append(append) => collect(&mut groups, append),
                Job::Run(work) => work(),
                Job::Stop => stopping = true,
            }
        }
        for group in groups {
            group.write();
        }
        busy.add(began.elapsed());
    }
}

/// What waits for one partition, in order.
struct Group {
    hosted: Arc<Hosted>,
    requests: Vec<AppendRequest>,
    replies: Vec<oneshot::Sender<WriteResult>>,
    places: Vec<Queued>,
}

fn collect(groups: &mut Vec<Group>, append: Append) {
    let Append { place, request, reply } = append;
    let at = groups.iter().position(|group| Arc::ptr_eq(&group.hosted, place.hosted())).unwrap_or_else(|| {
        let hosted = Arc::clone(place.hosted());
        groups.push(Group { hosted, requests: Vec::new(), replies: Vec::new(), places: Vec::new() });
        groups.len() - 1
    });
    let group = &mut groups[at];
    group.requests.push(request);
    group.replies.push(reply);
    group.places.push(place);
}

impl Group {
    fn write(self) {
        let Self { hosted, mut requests, replies, places } = self;
        if let Some(wanted) = hosted.compression() {
            for request in requests.iter_mut().filter(|request| request.origin == Origin::Client) {
                request.records = recompress(&request.records, wanted);
            }
        }
        let dir = hosted.dir();
        let _in_progress = dir.log_dir.progress().begin(Work::Awaited);
        let results = hosted.partition.append(&requests, now_ms());
        drop(places);
        let flush_required = results.iter().flatten().any(|appended| appended.flush_required);
        let mut flush_error = None;
        if flush_required {
            flush_error = hosted.flush().err().map(Arc::new);
        } else if results.iter().any(Result::is_ok) {
            hosted.mark_dirty();
        }
        for (result, reply) in results.into_iter().zip(replies) {
            let result = match (result, &flush_error) {
                (Ok(_), Some(error)) => Err(WriteError::Flush(Arc::clone(error))),
                (result, _) => result.map_err(WriteError::from),
            };
            // Nobody waits for a producer that has gone, or for acks=0.
            let _gone = reply.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_threads_of_its_own_and_all_of_them_are_used() {
        for (threads, dirs) in [(1, 1), (4, 1), (4, 2), (5, 3), (3, 3)] {
            let mut owner = vec![None; threads];
            for dir in 0..dirs {
                for partition in 0..100 {
                    let thread = thread_of(threads, dirs, dir, partition);
                    assert_eq!(*owner[thread].get_or_insert(dir), dir, "{threads} threads, {dirs} dirs");
                }
            }
            assert!(owner.iter().all(Option::is_some), "{threads} threads, {dirs} dirs");
        }
    }
}
