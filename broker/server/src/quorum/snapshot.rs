//! Snapshots: an image, the quorum's members and the entry they are as of, in one `.checkpoint` file beside the log.
//!
//! The file is record batches, so that it has checksums and Kafka's tools show it: a head, then the records that give the image. The
//! newest counts; it is replaced whole, and an older one goes only when the newer is on disk.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_broker_machines::metadata::{MetadataImage, Record, decode_record, encode_record};
use forebay_broker_storage::Disk;
use forebay_broker_wire::records::{BatchBuilder, NewRecord, batches};
use forebay_broker_wire::types::{LeaderEpoch, Offset, Uuid};
use serde::{Deserialize, Serialize};

use super::types::{LogId, SnapshotMeta, StoredMembership};

const VERSION: u16 = 1;
const SUFFIX: &str = ".checkpoint";
/// A batch is closed when it has grown to this.
const BATCH_BYTES: usize = 1 << 20;
/// The most that one batch may hold; it is not compressed.
const BATCH_BYTES_MAX: usize = 1 << 30;
/// Deleted topics that are remembered, so that a broker that was down for long removes what it has of them.
pub(super) const REMOVED_TOPICS_MAX: usize = 10_000;

/// Why a snapshot can't be read or written.
#[derive(Debug, thiserror::Error)]
#[error("metadata snapshot {file}: {message}")]
pub(crate) struct SnapshotError {
    file: String,
    message: String,
}

/// Everything that applying the log up to an entry gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    pub(super) last_applied: Option<LogId>,
    pub(super) membership: StoredMembership,
    pub(super) image: MetadataImage,
    /// The newest last.
    pub(super) removed_topics: Arc<Vec<Uuid>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    version: u16,
    kind: Kind,
    last_log_id: Option<LogId>,
    membership: StoredMembership,
    removed_topics: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Snapshot,
}

impl State {
    pub(super) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.last_applied, last_membership: self.membership.clone() }
    }

    /// The file's content.
    pub(super) fn encode(&self, now_ms: i64) -> Result<Bytes, String> {
        let head = Head {
            version: VERSION,
            kind: Kind::Snapshot,
            last_log_id: self.last_applied,
            membership: self.membership.clone(),
            removed_topics: self.removed_topics.iter().map(Uuid::to_string).collect(),
        };
        let mut writer = Writer { file: BytesMut::new(), builder: None, next: 0, now_ms };
        writer.push(&serde_json::to_vec(&head).map_err(|error| error.to_string())?)?;
        for record in self.image.snapshot() {
            writer.push(&encode_record(&record).map_err(|error| error.to_string())?)?;
        }
        writer.finish()
    }

    /// What a file's content says.
    pub(super) fn decode(content: &Bytes) -> Result<Self, String> {
        let mut state: Option<Self> = None;
        let mut read = 0;
        for batch in batches(content) {
            let batch = batch.map_err(|error| format!("at byte {read}: {error}"))?;
            batch.check_crc().map_err(|error| format!("at byte {read}: {error}"))?;
            for record in batch.records(BATCH_BYTES_MAX).map_err(|error| error.to_string())? {
                let value = record.map_err(|error| error.to_string())?.value.unwrap_or_default();
                match &mut state {
                    None => state = Some(Self::from_head(&value)?),
                    Some(state) => {
                        let record: Record = decode_record(&value).map_err(|error| error.to_string())?;
                        state.image.apply(&record).map_err(|error| error.to_string())?;
                    }
                }
            }
            read += batch.bytes.len();
        }
        state.ok_or_else(|| "is empty".to_owned())
    }

    fn from_head(value: &[u8]) -> Result<Self, String> {
        let head: Head = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        if head.version > VERSION {
            let version = head.version;
            return Err(format!("version {version}: this program reads versions up to {VERSION}; start a newer one"));
        }
        let removed_topics = head.removed_topics.iter().map(|text| text.parse().map_err(|_error| format!("id {text}")));
        Ok(Self {
            last_applied: head.last_log_id,
            membership: head.membership,
            image: MetadataImage::default(),
            removed_topics: Arc::new(removed_topics.collect::<Result<_, String>>()?),
        })
    }
}

struct Writer {
    file: BytesMut,
    builder: Option<BatchBuilder>,
    next: i64,
    now_ms: i64,
}

impl Writer {
    fn push(&mut self, value: &[u8]) -> Result<(), String> {
        let next = self.next;
        let builder = self.builder.get_or_insert_with(|| BatchBuilder::new(Offset(next)).leader_epoch(LeaderEpoch(0)));
        let record = NewRecord { timestamp_ms: self.now_ms, key: None, value: Some(value), headers: &[] };
        builder.push(&record).map_err(|error| error.to_string())?;
        self.next += 1;
        if builder.uncompressed_bytes() >= BATCH_BYTES { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<(), String> {
        if let Some(builder) = self.builder.take() {
            self.file.extend_from_slice(&builder.build().map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Bytes, String> {
        self.close()?;
        Ok(self.file.freeze())
    }
}

/// The snapshots in a directory.
#[derive(Debug, Clone)]
pub(super) struct Snapshots {
    disk: Disk,
    dir: PathBuf,
}

impl Snapshots {
    pub(super) fn new(disk: &Disk, dir: PathBuf) -> Self {
        Self { disk: disk.clone(), dir }
    }

    fn failed(&self, file: &str, message: &dyn std::fmt::Display) -> SnapshotError {
        SnapshotError { file: self.dir.join(file).display().to_string(), message: message.to_string() }
    }

    fn names(&self) -> Result<Vec<String>, SnapshotError> {
        let listed = self.disk.list(&self.dir).map_err(|error| self.failed("", &error))?;
        let mut names: Vec<String> =
            listed.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(SUFFIX)).collect();
        names.sort();
        Ok(names)
    }

    /// The newest one's content.
    pub(super) fn newest(&self) -> Result<Option<Bytes>, SnapshotError> {
        let Some(name) = self.names()?.pop() else { return Ok(None) };
        let content = self.disk.read(&self.dir.join(&name)).map_err(|error| self.failed(&name, &error))?;
        Ok(content.map(Bytes::from))
    }

    /// What the newest one says.
    pub(super) fn load(&self) -> Result<Option<State>, SnapshotError> {
        let Some(content) = self.newest()? else { return Ok(None) };
        let name = self.names()?.pop().unwrap_or_default();
        State::decode(&content).map(Some).map_err(|message| self.failed(&name, &message))
    }

    /// Puts one on disk, then removes the older ones.
    pub(super) fn save(&self, last: Option<LogId>, content: &[u8]) -> Result<(), SnapshotError> {
        let (term, next) = last.map_or((0, 0), |last| (last.leader_id.term, last.index + 1));
        let name = format!("{next:020}-{term:010}{SUFFIX}");
        self.disk.replace(&self.dir.join(&name), content).map_err(|error| self.failed(&name, &error))?;
        for older in self.names()?.into_iter().filter(|older| *older < name) {
            self.disk.remove_file(&self.dir.join(&older)).map_err(|error| self.failed(&older, &error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::TopicRecord;

    use super::super::types::log_id;
    use super::*;

    fn state(topics: u8) -> State {
        let mut image = MetadataImage::default();
        for number in 0..topics {
            let topic = TopicRecord { topic_id: Uuid([number; 16]), name: format!("t-{number}") };
            image.apply(&Record::Topic(topic)).unwrap();
        }
        State {
            last_applied: Some(log_id(3, 17)),
            membership: StoredMembership::default(),
            image,
            removed_topics: Arc::new(vec![Uuid([9; 16])]),
        }
    }

    #[test]
    fn a_snapshot_gives_back_what_was_put_in() {
        let state = state(5);
        assert_eq!(State::decode(&state.encode(1).unwrap()).unwrap(), state);
    }

    #[test]
    fn a_bit_that_fell_over_is_an_error() {
        let content = state(5).encode(1).unwrap();
        for at in [70, content.len() / 2, content.len() - 2] {
            let mut damaged = content.to_vec();
            damaged[at] ^= 4;
            assert!(State::decode(&Bytes::from(damaged)).is_err(), "byte {at}");
        }
        assert!(State::decode(&Bytes::new()).is_err());
    }

    #[test]
    fn only_the_newest_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::new(&Disk::real(), dir.path().to_owned());
        assert!(snapshots.load().unwrap().is_none());
        for (topics, index) in [(1, 9), (2, 10), (3, 100)] {
            let state = State { last_applied: Some(log_id(1, index)), ..state(topics) };
            snapshots.save(state.last_applied, &state.encode(1).unwrap()).unwrap();
        }
        assert_eq!(snapshots.names().unwrap(), ["00000000000000000101-0000000001.checkpoint"]);
        assert_eq!(snapshots.load().unwrap().unwrap().image.topics().len(), 3);
    }
}
