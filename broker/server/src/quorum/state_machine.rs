//! The state machine: committed entries give the image, on every broker the same.
//!
//! What must hold: an image is published only when its entry is committed, and whole; a change counts only on the version that it was
//! decided on, whoever applies it; what a snapshot says is what applying its log would have said.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use forebay_broker_machines::metadata::{MetadataImage, Record};
use forebay_broker_storage::LogDir;
use forebay_broker_wire::types::Uuid;
use futures::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::snapshot::{REMOVED_TOPICS_MAX, SnapshotError, Snapshots, State};
use super::types::{Applied, Change, Entry, LogId, Snapshot, SnapshotMeta, StoredMembership, Types};
use crate::io::append::now_ms;

/// What has been applied, for openraft and for readers. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct StateMachine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    image: ArcSwap<MetadataImage>,
    version: watch::Sender<i64>,
    snapshots: Snapshots,
    snapshot_bytes: std::sync::atomic::AtomicU64,
}

impl StateMachine {
    /// Starts from the newest snapshot in the log's directory, which must exist. Blocks.
    pub(crate) fn open(log_dir: &Arc<LogDir>, dir: std::path::PathBuf) -> Result<Self, SnapshotError> {
        let snapshots = Snapshots::new(log_dir.disk(), dir);
        let state = snapshots.load()?.unwrap_or_default();
        let shared = Shared {
            image: ArcSwap::from_pointee(state.image.clone()),
            version: watch::Sender::new(state.image.version()),
            state: Mutex::new(state),
            snapshots,
            snapshot_bytes: std::sync::atomic::AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The newest image.
    pub(crate) fn image(&self) -> Arc<MetadataImage> {
        self.shared.image.load_full()
    }

    /// Hears the version of each new image.
    pub(crate) fn subscribe(&self) -> watch::Receiver<i64> {
        self.shared.version.subscribe()
    }

    /// Topics that were deleted not long ago: what a crash or an absence has left of them on disk may go.
    pub(crate) fn removed_topics(&self) -> Arc<Vec<Uuid>> {
        Arc::clone(&self.shared.state.lock().removed_topics)
    }

    /// Bytes of the last snapshot that was made or taken in since the start.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.shared.snapshot_bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Takes in entries in order, then shows the image that they give.
    pub(super) fn take_in(&self, entries: &[Entry]) -> io::Result<Vec<Applied>> {
        let mut state = self.shared.state.lock();
        let mut next = state.clone();
        let applied = entries.iter().map(|entry| apply(&mut next, entry)).collect::<Result<Vec<_>, _>>();
        let applied = applied.map_err(io::Error::other)?;
        self.show(&mut state, next);
        Ok(applied)
    }

    fn show(&self, state: &mut State, next: State) {
        let version = next.image.version();
        if version != state.image.version() {
            self.shared.image.store(Arc::new(next.image.clone()));
        }
        *state = next;
        self.shared.version.send_if_modified(|shown| std::mem::replace(shown, version) != version);
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let here = self.clone();
        tokio::task::spawn_blocking(move || work(&here)).await.map_err(io::Error::other)?
    }

    fn save(&self, last: Option<LogId>, content: &Bytes) -> io::Result<()> {
        self.shared.snapshots.save(last, content).map_err(io::Error::other)?;
        self.shared.snapshot_bytes.store(content.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

/// Applies one entry. An error says that the log is not whole, and stops the quorum here.
fn apply(state: &mut State, entry: &Entry) -> Result<Applied, String> {
    let log_id = entry.log_id;
    let accepted = match &entry.payload {
        EntryPayload::Blank => true,
        EntryPayload::Membership(membership) => {
            state.membership = StoredMembership::new(Some(log_id), membership.clone());
            true
        }
        EntryPayload::Normal(change) => {
            apply_change(state, change).map_err(|error| format!("metadata entry {}: {error}", log_id.index))?
        }
    };
    state.last_applied = Some(log_id);
    Ok(Applied { accepted, version: state.image.version() })
}

fn apply_change(state: &mut State, change: &Change) -> Result<bool, String> {
    if change.based_on_version != state.image.version() {
        return Ok(false);
    }
    for record in &change.records {
        state.image.apply(record).map_err(|error| error.to_string())?;
        if let Record::TopicRemoved { topic_id } = record {
            let removed = Arc::make_mut(&mut state.removed_topics);
            removed.push(*topic_id);
            removed.drain(..removed.len().saturating_sub(REMOVED_TOPICS_MAX));
        }
    }
    Ok(true)
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.shared.state.lock();
        Ok((state.last_applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let (mut taken, mut responders) = (Vec::new(), Vec::new());
        while let Some((entry, responder)) = entries.try_next().await? {
            taken.push(entry);
            responders.push(responder);
        }
        let applied = self.take_in(&taken)?;
        for (responder, applied) in responders.into_iter().zip(applied) {
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> io::Result<()> {
        let last = meta.last_log_id;
        self.blocking(move |here| {
            let next = State::decode(&snapshot).map_err(io::Error::other)?;
            if next.last_applied != last {
                let message = format!("a snapshot up to {:?} came as one up to {last:?}", next.last_applied);
                return Err(io::Error::other(message));
            }
            here.save(last, &snapshot)?;
            here.show(&mut here.shared.state.lock(), next);
            Ok(())
        })
        .await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        self.blocking(|here| {
            let Some(snapshot) = here.shared.snapshots.newest().map_err(io::Error::other)? else { return Ok(None) };
            let state = State::decode(&snapshot).map_err(io::Error::other)?;
            Ok(Some(Snapshot { meta: state.meta(), snapshot }))
        })
        .await
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        self.blocking(|here| {
            let state = here.shared.state.lock().clone();
            let snapshot = state.encode(now_ms()).map_err(io::Error::other)?;
            here.save(state.last_applied, &snapshot)?;
            Ok(Snapshot { meta: state.meta(), snapshot })
        })
        .await
    }
}
