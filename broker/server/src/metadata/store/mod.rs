//! MetadataStore: commands in, images out.
//!
//! Callers wait for the disk on their own threads. Those that wait at the same time are decided together by the one that holds the
//! log, each on the image that the ones before it leave, and share one flush. An image is published only when its records are durable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use forebay_broker_config::{BrokerConfig, Settings};
use forebay_broker_machines::metadata::{
    Command, ConfigResource, ConfigRules, Context, MetadataImage, Record, Reply, decide,
};
use forebay_broker_storage::LogDir;
use forebay_broker_wire::types::Uuid;
use parking_lot::Mutex;

use super::effective::broker_number;
use super::log::{MetadataLog, OpenLogError, Replayed, WriteError};
use super::{random_id, rules};

/// Commands that may wait at once.
const WAITING_MAX: usize = 4096;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenMetadataError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] OpenLogError),
}

/// Why a command got no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum SubmitError {
    /// What was decided could not be made durable, and does not count.
    #[error(transparent)]
    NotDurable(#[from] WriteError),
    /// Too many wait already.
    #[error("{WAITING_MAX} metadata commands are waiting: try again later")]
    Busy,
}

/// The metadata of the cluster.
pub(crate) struct MetadataStore {
    config: Arc<BrokerConfig>,
    image: ArcSwap<MetadataImage>,
    removed_topics: BTreeSet<Uuid>,
    waiting: Mutex<Vec<Waiting>>,
    log: Mutex<MetadataLog>,
}

struct Waiting {
    command: Command,
    answer: Answer,
}

type Answer = Arc<Mutex<Option<Result<Reply, SubmitError>>>>;

impl std::fmt::Debug for MetadataStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetadataStore").field("version", &self.image.load().version()).finish_non_exhaustive()
    }
}

impl MetadataStore {
    /// Opens the log in a log dir and replays it.
    pub(crate) fn open(log_dir: &Arc<LogDir>, config: Arc<BrokerConfig>) -> Result<Self, OpenMetadataError> {
        let (log, Replayed { image, removed_topics }) = MetadataLog::open(log_dir)?;
        let image = ArcSwap::from_pointee(image);
        Ok(Self { config, image, removed_topics, waiting: Mutex::default(), log: Mutex::new(log) })
    }

    /// Topics that had been deleted, not long before the store was opened.
    pub(crate) fn removed_topics(&self) -> &BTreeSet<Uuid> {
        &self.removed_topics
    }

    /// The newest image.
    pub(crate) fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// Decides a command and waits until the decision is on disk and can be seen in [`MetadataStore::image`].
    pub(crate) fn submit(&self, command: Command) -> Result<Reply, SubmitError> {
        let answer = Answer::default();
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= WAITING_MAX {
                return Err(SubmitError::Busy);
            }
            waiting.push(Waiting { command, answer: Arc::clone(&answer) });
        }
        let mut log = self.log.lock();
        // Whoever held the log before may have taken this command along.
        if let Some(reply) = answer.lock().take() {
            return reply;
        }
        let waiting = std::mem::take(&mut *self.waiting.lock());
        self.run(&mut log, waiting);
        drop(log);
        answer.lock().take().unwrap_or(Err(SubmitError::Busy))
    }

    fn run(&self, log: &mut MetadataLog, waiting: Vec<Waiting>) {
        let now_ms = now_ms();
        let mut image = MetadataImage::clone(&self.image.load());
        let mut records = Vec::new();
        let mut replies = Vec::with_capacity(waiting.len());
        for one in waiting {
            let (decided, reply) = self.decide(&image, &one.command);
            for record in &decided {
                let fits = image.apply(record);
                assert!(fits.is_ok(), "a decided record must fit the image: {fits:?}");
            }
            records.extend(decided);
            replies.push((one.answer, reply));
        }
        match log.write(&records, now_ms) {
            Ok(()) => {
                if !records.is_empty() {
                    self.image.store(Arc::new(image));
                }
                for (answer, reply) in replies {
                    *answer.lock() = Some(Ok(reply));
                }
            }
            Err(error) => {
                tracing::error!(%error, "metadata commands were not carried out");
                for (answer, _) in replies {
                    *answer.lock() = Some(Err(error.clone().into()));
                }
                return;
            }
        }
        if let Err(error) = log.shorten(&self.image.load(), now_ms) {
            tracing::error!(%error, "the metadata log could not be replaced by a snapshot");
        }
    }

    fn decide(&self, image: &MetadataImage, command: &Command) -> (Vec<Record>, Reply) {
        let config = &*self.config;
        let check = |resource: &ConfigResource, settings: &Settings| rules::check(config, image, resource, settings);
        let list = |resource: &ConfigResource, name: &str| rules::list(config, image, resource, name);
        let mut new_id = random_id;
        let mut context = Context {
            new_id: &mut new_id,
            rules: ConfigRules { check: &check, list: &list },
            elections: &|own| rules::elections(config, image, own),
            default_partitions: broker_number(config, image, "num.partitions").unwrap_or(config.num_partitions),
            default_replication_factor: broker_number(config, image, "default.replication.factor")
                .unwrap_or(config.default_replication_factor),
        };
        let outcome = decide(image, command, &mut context);
        (outcome.records, outcome.reply)
    }

    /// Makes the next start short. The store takes commands still.
    pub(crate) fn close(&self) -> Result<(), WriteError> {
        self.log.lock().close()
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
