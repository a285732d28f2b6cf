//! What a follower does to its logs when its leader has answered: on the disk threads that own the partitions, many in one job, or where the
//! answer was read, if that is a write into the page cache and nothing else.
//!
//! What must hold: nothing is asked for before what came is written, and with `flush.messages=1` flushed; what an answer means for a log is
//! the partition's to say, and an answer that came too late changes nothing.

use std::sync::Arc;
use std::time::Instant;

use forebay_broker_partition::{EpochEnd, FetchPosition, FlushError, FollowError, LeaderAnswer};
use forebay_broker_storage::{AppendError, Work};
use forebay_broker_wire::types::Offset;

use super::name_of;
use crate::broker::Broker;
use crate::io::append::now_ms;
use crate::partitions::{Hosted, Key};

/// More than this is left to the disk threads: a network thread has others to serve.
const HOT_BYTES_MAX: usize = 1 << 20;

/// What is to be done to one partition.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) key: Key,
    pub(super) hosted: Arc<Hosted>,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Only say where to go on.
    Locate,
    Append(LeaderAnswer),
    Diverging {
        asked: FetchPosition,
        leader_end: EpochEnd,
    },
    OutOfRange {
        asked: FetchPosition,
        log_start: Offset,
        log_end: Offset,
    },
}

impl What {
    /// Of records.
    fn bytes(&self) -> usize {
        if let Self::Append(answer) = self { answer.records.len() } else { 0 }
    }
}

/// Where one partition stands afterwards.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) key: Key,
    /// Where to go on; `None` while there is nothing to ask for.
    pub(super) position: Option<FetchPosition>,
    /// It could not be done: to be tried again, but not at once.
    pub(super) failed: bool,
}

#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error(transparent)]
    Flush(#[from] FlushError),
}

/// Does all of it. Tasks of threads that have stopped are missing in what comes back.
pub(super) async fn apply(broker: &Broker, tasks: Vec<Task>) -> Vec<Applied> {
    let bytes: usize = tasks.iter().map(|task| task.what.bytes()).sum();
    // Where there are several directories, one that hangs must not keep a fetcher from the others.
    let may_be_hot = bytes <= HOT_BYTES_MAX && broker.partitions.dirs.len() == 1;
    let mut applied = Vec::with_capacity(tasks.len());
    let mut by_thread: Vec<Vec<Task>> = Vec::new();
    by_thread.resize_with(broker.appender.threads(), Vec::new);
    for task in tasks {
        match if may_be_hot { apply_hot(task) } else { Err(task) } {
            Ok(done) => applied.push(done),
            Err(task) => by_thread[broker.appender.thread_of(&task.hosted)].push(task),
        }
    }
    let jobs = by_thread.into_iter().enumerate().filter(|(_, tasks)| !tasks.is_empty());
    let jobs = jobs.map(|(thread, tasks)| apply_on(broker, thread, tasks));
    applied.extend(futures::future::join_all(jobs).await.into_iter().flatten());
    applied
}

/// All of them are on one directory: if that hangs they have failed, and the others' go on.
async fn apply_on(broker: &Broker, thread: usize, tasks: Vec<Task>) -> Vec<Applied> {
    let Some(dir) = tasks.first().map(|task| Arc::clone(&task.hosted.dir())) else { return Vec::new() };
    let hung = Arc::clone(&dir);
    let keys: Vec<Key> = tasks.iter().map(|task| task.key).collect();
    let work = move || {
        let apply = |task: Task| {
            let _in_progress = dir.log_dir.progress().begin(Work::Awaited);
            apply_one(task)
        };
        tasks.into_iter().map(apply).collect::<Vec<_>>()
    };
    let failed = || keys.iter().map(|key| Applied { key: *key, position: None, failed: true }).collect();
    if hung.is_hung() {
        return failed();
    }
    tokio::select! {
        biased;
        applied = broker.appender.run(thread, work) => applied.unwrap_or_default(),
        () = hung.hangs() => failed(),
    }
}

/// Does it here and now, or gives back what is left for the disk thread to do.
fn apply_hot(task: Task) -> Result<Applied, Task> {
    let Task { key, hosted, what: What::Append(answer) } = &task else { return Err(task) };
    if !hosted.may_append_hot() {
        return Err(task);
    }
    let dir = hosted.dir();
    let write = || {
        let _in_progress = dir.log_dir.progress().begin(Work::Awaited);
        hosted.partition.append_from_leader_hot(answer, now_ms())
    };
    let Some(Ok(flush_required)) = dir.pace.write_here(write).flatten() else { return Err(task) };
    if !answer.records.is_empty() {
        hosted.mark_dirty();
    }
    match hosted.partition.fetch_position() {
        Some(position) if !flush_required => Ok(Applied { key: *key, position: Some(position), failed: false }),
        _ => Err(Task { what: What::Locate, ..task }),
    }
}

fn apply_one(task: Task) -> Applied {
    let Task { key, hosted, what } = task;
    let done = carry_out(&hosted, what);
    let failed = match done {
        // Meant for a role or a position that has passed.
        Ok(()) | Err(ApplyError::Follow(FollowError::Late { .. } | FollowError::Closed(_))) => false,
        // Of the directory it is told by the log, and others go on without it.
        Err(ApplyError::Follow(FollowError::Append(AppendError::DiskFull(_)))) => true,
        Err(error) => {
            if let Some(times) = hosted.failures_told.happened(Instant::now()) {
                let partition = name_of(key, &hosted);
                tracing::warn!(%partition, %error, times, "a replica cannot do as its leader says");
            }
            true
        }
    };
    let position = hosted.partition.fetch_position().or_else(|| {
        // Asking is promising to keep all before: that has to be flushed first.
        let unflushed = !failed && hosted.partition.needs_flush() && !hosted.leads();
        (unflushed && hosted.flush().is_ok()).then(|| hosted.partition.fetch_position()).flatten()
    });
    Applied { key, position, failed }
}

fn carry_out(hosted: &Hosted, what: What) -> Result<(), ApplyError> {
    let partition = &hosted.partition;
    match what {
        What::Locate => {}
        What::Append(answer) => {
            if partition.append_from_leader(&answer, now_ms())? {
                hosted.flush()?;
            } else if !answer.records.is_empty() {
                hosted.mark_dirty();
            }
        }
        What::Diverging { asked, leader_end } => {
            let end = partition.truncate_diverging(&asked, leader_end, now_ms())?;
            tracing::info!(topic = %hosted.topic, partition = %hosted.index, from = asked.offset.0, to = end.0, "cut where the leader's log parts");
        }
        What::OutOfRange { asked, log_start, log_end } => {
            let end = partition.out_of_leaders_range(&asked, (log_start, log_end), now_ms())?;
            tracing::info!(topic = %hosted.topic, partition = %hosted.index, from = asked.offset.0, to = end.0, "the leader's log is elsewhere");
        }
    }
    Ok(())
}
