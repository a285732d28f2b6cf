//! The one that decides, where the quorum's leader is: commands that wait together become one entry.
//!
//! What must hold: one entry is under way at a time; a decision that was overtaken by another leader's does not count, and is made again
//! on what is true now; a reply without records is given only by a broker that still leads.

use std::sync::Arc;

use forebay_broker_config::{BrokerConfig, Settings};
use forebay_broker_machines::metadata::{
    Command, ConfigResource, ConfigRules, Context, MetadataImage, Record, Reply, decide,
};
use tokio::sync::{mpsc, oneshot};

use crate::metadata::effective::broker_number;
use crate::metadata::{random_id, rules};
use crate::quorum::{Change, ProposeError, Quorum};

/// Commands that may wait at once.
const WAITING_MAX: usize = 4096;
/// Commands that are decided together.
const TOGETHER_MAX: usize = 256;
/// Records of one entry: commands beyond it wait for the next, as a very long entry would hold up every broker at once.
const RECORDS_MAX: usize = 10_000;
/// Decisions on the same commands: only another leader's entries can overtake one, and there are not many elections.
const ATTEMPTS: usize = 8;

/// Why a command was not decided here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotDecided {
    /// Another broker leads, or nobody. Whether what was proposed counts is not known.
    NotController,
    Busy,
    /// The disk is full. What was proposed may be decided when there is room.
    NoRoom(String),
    Failed(String),
}

type Answer = Result<(Reply, i64), NotDecided>;

struct Waiting {
    command: Command,
    answer: oneshot::Sender<Answer>,
}

/// Takes commands.
pub(super) struct Decider {
    waiting: mpsc::Sender<Waiting>,
}

impl Decider {
    /// Ends when it is dropped.
    pub(super) fn start(quorum: Arc<Quorum>, config: Arc<BrokerConfig>) -> Self {
        let (waiting, commands) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(quorum, config, commands));
        Self { waiting }
    }

    pub(super) async fn decide(&self, command: Command) -> Answer {
        let (answer, answered) = oneshot::channel();
        match self.waiting.try_send(Waiting { command, answer }) {
            Ok(()) => answered.await.unwrap_or(Err(NotDecided::NotController)),
            Err(_full) => Err(NotDecided::Busy),
        }
    }
}

async fn run(quorum: Arc<Quorum>, config: Arc<BrokerConfig>, mut commands: mpsc::Receiver<Waiting>) {
    let mut together = Vec::new();
    while commands.recv_many(&mut together, TOGETHER_MAX).await > 0 {
        let (mut asked, answers): (Vec<Command>, Vec<oneshot::Sender<Answer>>) =
            together.drain(..).map(|waiting| (waiting.command, waiting.answer)).unzip();
        let mut answers = answers.into_iter();
        while !asked.is_empty() {
            let now = Arc::new(std::mem::take(&mut asked));
            match decide_together(&quorum, &config, Arc::clone(&now)).await {
                Ok((replies, version)) => {
                    asked.extend(now.iter().skip(replies.len()).cloned());
                    for (reply, answer) in replies.into_iter().zip(&mut answers) {
                        // Perhaps nobody waits any more.
                        let _ = answer.send(Ok((reply, version)));
                    }
                }
                Err(error) => {
                    if let NotDecided::Failed(message) = &error {
                        tracing::error!(%message, "metadata commands were not carried out");
                    }
                    for answer in &mut answers {
                        let _ = answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

/// The replies to the first of the commands, at least to one, and the version that has what they say.
async fn decide_together(
    quorum: &Arc<Quorum>,
    config: &Arc<BrokerConfig>,
    commands: Arc<Vec<Command>>,
) -> Result<(Vec<Reply>, i64), NotDecided> {
    for _ in 0..ATTEMPTS {
        if !quorum.leadership().borrow().here {
            return Err(NotDecided::NotController);
        }
        let image = quorum.machine.image();
        let based_on_version = image.version();
        let (config, commands) = (Arc::clone(config), Arc::clone(&commands));
        // Thousands of partitions take their time.
        let decided = tokio::task::spawn_blocking(move || decide_all(&config, &image, &commands)).await;
        let (records, replies) = decided.map_err(|error| NotDecided::Failed(error.to_string()))?;
        if records.is_empty() {
            quorum.confirm_leadership().await.map_err(not_decided)?;
            return Ok((replies, based_on_version));
        }
        if let Some(message) = quorum.no_room() {
            return Err(NotDecided::NoRoom(message));
        }
        let applied = tokio::select! {
            applied = quorum.propose(Change { based_on_version, records }) => applied.map_err(not_decided)?,
            error = waits_for_room(quorum) => return Err(error),
        };
        if applied.accepted {
            return Ok((replies, applied.version));
        }
    }
    Err(NotDecided::NotController)
}

/// Returns when an entry waits for room on the disk: alone nobody else could take it.
async fn waits_for_room(quorum: &Quorum) -> NotDecided {
    let mut room = quorum.log.watch_room();
    // The sender is with the quorum.
    let _never = room.wait_for(Option::is_some).await.is_err();
    quorum.no_room().map_or(NotDecided::NotController, NotDecided::NoRoom)
}

fn not_decided(error: ProposeError) -> NotDecided {
    match error {
        ProposeError::NotLeader => NotDecided::NotController,
        ProposeError::Stopped(message) => NotDecided::Failed(message),
    }
}

fn decide_all(config: &BrokerConfig, image: &MetadataImage, commands: &[Command]) -> (Vec<Record>, Vec<Reply>) {
    let mut image = image.clone();
    let (mut records, mut replies) = (Vec::new(), Vec::with_capacity(commands.len()));
    for command in commands {
        if records.len() >= RECORDS_MAX {
            break;
        }
        let (decided, reply) = decide_one(config, &image, command);
        for record in &decided {
            let fits = image.apply(record);
            assert!(fits.is_ok(), "a decided record must fit the image: {fits:?}");
        }
        records.extend(decided);
        replies.push(reply);
    }
    (records, replies)
}

fn decide_one(config: &BrokerConfig, image: &MetadataImage, command: &Command) -> (Vec<Record>, Reply) {
    let check = |resource: &ConfigResource, settings: &Settings| rules::check(config, image, resource, settings);
    let list = |resource: &ConfigResource, name: &str| rules::list(config, image, resource, name);
    let mut new_id = random_id;
    let mut context = Context {
        new_id: &mut new_id,
        rules: ConfigRules { check: &check, list: &list },
        default_partitions: broker_number(config, image, "num.partitions").unwrap_or(config.num_partitions),
        default_replication_factor: broker_number(config, image, "default.replication.factor")
            .unwrap_or(config.default_replication_factor),
        elections: &|image: &MetadataImage, settings: &Settings| rules::elections(config, image, settings),
    };
    let outcome = decide(image, command, &mut context);
    (outcome.records, outcome.reply)
}
