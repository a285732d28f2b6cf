//! This broker's part in the quorum: the log, the image and openraft between them, from start to stop.
//!
//! What must hold: a broker alone elects itself at once and then has nothing that ticks; a leader that stops in order hands over first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_broker_config::QuorumSettings;
use forebay_broker_machines::metadata::CLUSTER_METADATA_TOPIC;
use forebay_broker_storage::{LogDir, LogName};
use forebay_broker_wire::types::BrokerId;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{Fatal, RaftError};
use openraft::{Config, RaftMetrics, ReadPolicy, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::link::LinkError;
use super::log_store::{LogStore, QuorumLogError};
use super::network::Network;
use super::peers::Peers;
use super::protocol::{Leader, Leadership, Welcome};
use super::snapshot::SnapshotError;
use super::state_machine::StateMachine;
use super::types::{Address, Applied, Change, Types, VoterId};
use super::{failover, hung, members};

pub(super) type Raft = openraft::Raft<Types, StateMachine>;

/// Followers hear from their leader so often. openraft wakes five times as often, on every voter.
const HEARTBEAT_MS: u64 = 400;
/// A voter that has not heard of its leader for the longer of these, and then for a time between them, stands for election.
const ELECTION_MIN_MS: u64 = 600;
const ELECTION_MAX_MS: u64 = 800;
/// A leader that no majority of the voters has answered for so long leads no more, whatever openraft says: the others have elected by then.
const UNANSWERED_MAX: Duration = Duration::from_secs(2);
/// What a leader that stops waits for another to take over.
const HANDOVER_MAX: Duration = Duration::from_secs(1);
/// A log is replaced when it is so many times as long as the snapshot before.
const LONG_LOG_FACTOR: u64 = 4;

/// Why this broker can't take part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenQuorumError {
    /// The log.
    #[error(transparent)]
    Log(#[from] QuorumLogError),
    /// The snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Voters in the log, none in the configuration.
    #[error(
        "the metadata has voters {voters}: controller.quorum.voters must name them; a broker alone can't go on for them"
    )]
    NotAlone { voters: String },
    /// openraft gave up.
    #[error("the metadata quorum can't start: {0}")]
    Raft(String),
}

/// Why a change was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ProposeError {
    /// Another broker leads, or nobody. Whether the change counts is not known.
    #[error("this broker does not lead the metadata quorum")]
    NotLeader,
    /// The quorum is over here.
    #[error("the metadata quorum has stopped on this broker: {0}")]
    Stopped(String),
}

/// What a broker takes part with.
#[derive(Debug)]
pub(crate) struct OpenQuorum {
    /// Has the log.
    pub(crate) log_dir: Arc<LogDir>,
    /// One that a log dir has of a broker that is alone: then there is metadata too, or it is lost.
    pub(crate) partition: Option<LogName>,
    /// The broker has data of a cluster: if it knows of no metadata, it has lost it.
    pub(crate) knows_cluster: bool,
    pub(crate) cluster_id: String,
    pub(crate) broker_id: BrokerId,
    /// None: alone.
    pub(crate) settings: Option<QuorumSettings>,
    /// Where the controller listener is reached.
    pub(crate) address: Address,
    /// A log below this is never replaced by a snapshot.
    pub(crate) snapshot_after_bytes: u64,
}

/// This broker's part in the quorum.
pub(crate) struct Quorum {
    pub(super) raft: Raft,
    pub(super) own: VoterId,
    pub(super) address: Address,
    pub(super) peers: Arc<Peers>,
    pub(super) settings: Option<QuorumSettings>,
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
    leadership: watch::Sender<Leadership>,
    /// The log's disk hangs, or has no room.
    pub(super) hung: watch::Sender<bool>,
    disk_hangs: AtomicBool,
    /// Who leads meanwhile, as the others say.
    pub(super) elsewhere: Mutex<Option<Leader>>,
    /// What the start waits for, in words.
    pub(super) waiting_for: Mutex<String>,
    /// Held while its members change.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// When the leader was last heard of in this life of the process.
    heard_at: Mutex<Option<Instant>>,
    tasks: Mutex<JoinSet<()>>,
    snapshot_after_bytes: u64,
    knows_cluster: bool,
    /// Leaders whose end is being looked into.
    pub(super) mourned: Mutex<BTreeSet<VoterId>>,
    /// Cancelled when this broker can take part no more, because its disk or its log failed.
    pub(crate) failed: CancellationToken,
    /// Cancelled when other brokers' calls are answered no more.
    pub(super) closing: CancellationToken,
}

impl std::fmt::Debug for Quorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quorum").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Quorum {
    /// Opens log and image and starts to take part; nothing is waited for.
    pub(crate) async fn open(open: OpenQuorum) -> Result<Arc<Self>, OpenQuorumError> {
        let OpenQuorum { log_dir, partition, knows_cluster, .. } = open;
        let OpenQuorum { cluster_id, broker_id, settings, address, snapshot_after_bytes, .. } = open;
        let opened = tokio::task::spawn_blocking(move || open_files(&log_dir, partition.as_ref())).await;
        let (log, machine) = opened.map_err(|error| OpenQuorumError::Raft(error.to_string()))??;
        let own = VoterId { broker: broker_id, directory: log.directory() };
        let voters = settings.as_ref().map_or(&[][..], |settings| &settings.voters);
        let peers = Arc::new(Peers::new(cluster_id.clone(), own, voters));
        let network = Network { peers: Arc::clone(&peers) };
        let config = Arc::new(raft_config(cluster_id, settings.is_some()));
        let raft = Raft::new(own, config, network, log.clone(), machine.clone()).await;
        let raft = raft.map_err(|error| OpenQuorumError::Raft(error.to_string()))?;
        let quorum = Arc::new(Self {
            raft,
            own,
            address,
            peers,
            settings,
            log,
            machine,
            leadership: watch::Sender::default(),
            hung: watch::Sender::default(),
            disk_hangs: AtomicBool::new(false),
            elsewhere: Mutex::default(),
            waiting_for: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            heard_at: Mutex::default(),
            tasks: Mutex::default(),
            snapshot_after_bytes,
            knows_cluster,
            mourned: Mutex::default(),
            failed: CancellationToken::new(),
            closing: CancellationToken::new(),
        });
        quorum.begin().await?;
        Ok(quorum)
    }

    async fn begin(self: &Arc<Self>) -> Result<(), OpenQuorumError> {
        let failed = |error: &dyn std::fmt::Display| OpenQuorumError::Raft(error.to_string());
        self.spawn(watch_leadership(Arc::clone(self)));
        self.spawn(shorten_log(Arc::clone(self)));
        if self.settings.is_some() {
            self.spawn(members::find_cluster(Arc::clone(self)));
            self.spawn(members::keep(Arc::clone(self)));
            self.spawn(hung::give_way(Arc::clone(self)));
            self.spawn(hung::watch_room(Arc::clone(self)));
        } else if self.log.is_pristine() {
            let alone = BTreeMap::from([(self.own, self.address.clone())]);
            self.raft.initialize(alone).await.map_err(|error| failed(&error))?;
            self.log.wait_for_room(true);
            return Ok(());
        }
        self.log.wait_for_room(true);
        let voters =
            self.raft.with_raft_state(|state| state.membership_state.effective().voter_ids().collect::<Vec<_>>());
        let voters = voters.await.map_err(|error| failed(&error))?;
        if voters == [self.own] {
            self.raft.trigger().elect(false).await.map_err(|error| failed(&error))?;
        } else if self.settings.is_none() {
            let voters: Vec<String> = voters.iter().map(VoterId::to_string).collect();
            return Err(OpenQuorumError::NotAlone { voters: voters.join(", ") });
        }
        Ok(())
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Who leads.
    pub(crate) fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// What the start waits for, in words; empty when there is nothing to wait for.
    pub(crate) fn waiting_for(&self) -> String {
        self.waiting_for.lock().clone()
    }

    /// Why this broker takes part no more.
    pub(crate) fn failure(&self) -> String {
        self.metrics().running_state.err().map_or_else(|| "it was stopped".to_owned(), |fatal| fatal.to_string())
    }

    /// What openraft says of itself.
    pub(crate) fn metrics(&self) -> RaftMetrics<Types> {
        self.raft.metrics().borrow_watched().clone()
    }

    /// Says whether the log's disk hangs.
    pub(crate) fn disk_hangs(&self, hung: bool) {
        self.disk_hangs.store(hung, Ordering::Release);
        self.look_at_disk();
    }

    /// Tells whether anything can be written to the log.
    pub(super) fn look_at_disk(&self) {
        self.hung.send_if_modified(|told| {
            let hung = self.disk_hangs.load(Ordering::Acquire) || self.log.no_room().is_some();
            std::mem::replace(told, hung) != hung
        });
    }

    /// Why nothing can be decided, if the disk is full and there is nobody else.
    pub(crate) fn no_room(&self) -> Option<String> {
        self.log.no_room().filter(|_| !self.is_away())
    }

    /// Hears when this broker may have gone away, or come back.
    pub(crate) fn watch_disk(&self) -> watch::Receiver<bool> {
        self.hung.subscribe()
    }

    /// Whether this broker can take no part just now, and others can.
    pub(crate) fn is_away(&self) -> bool {
        let others = || self.metrics().membership_config.voter_ids().any(|voter| voter != self.own);
        *self.hung.borrow() && others()
    }

    /// The leader as this broker knows it, and where it is.
    pub(super) fn leader(&self) -> Option<Leader> {
        if self.is_away() {
            return self.elsewhere.lock().clone();
        }
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let voter = metrics.current_leader?;
        if voter == self.own {
            return Some(Leader { voter, address: self.address.clone() });
        }
        let known = metrics.membership_config.membership().get_node(&voter).cloned().unwrap_or_default();
        Some(Leader { voter, address: self.peers.address_of(voter.broker, &known) })
    }

    pub(super) fn welcome(&self) -> Welcome {
        Welcome {
            cluster_id: self.peers.hello.cluster_id.clone(),
            voter: self.own,
            pristine: self.log.is_pristine() && !self.knows_cluster,
            leader: self.leader(),
        }
    }

    /// Tells who leads, if that has changed.
    pub(super) fn tell_leadership(&self) {
        self.leadership.send_if_modified(|told| {
            let metrics = self.raft.metrics();
            let known = leadership_of(&metrics.borrow_watched());
            let now = match self.is_away() {
                true => Leadership {
                    leader: self.elsewhere.lock().as_ref().map(|at| at.voter.broker),
                    here: false,
                    ..known
                },
                false => known,
            };
            let changed = *told != now;
            if changed && (told.leader, told.here) != (now.leader, now.here) {
                tracing::info!(term = now.term, leader = now.leader.map(|id| id.0), here = now.here, "metadata quorum");
            }
            *told = now;
            changed
        });
    }

    pub(super) fn heard_of_leader(&self) {
        *self.heard_at.lock() = Some(Instant::now());
    }

    /// Whether the leader was heard of so recently, or is here.
    pub(super) fn is_led(&self, within: Duration) -> bool {
        self.leadership.borrow().here || self.heard_at.lock().is_some_and(|at| at.elapsed() <= within)
    }

    /// For how long another leader has not been heard of; none if none ever was in this life of the process.
    pub(crate) fn leader_silent_for(&self) -> Option<Duration> {
        self.heard_at.lock().map(|at| at.elapsed())
    }

    /// A connection on which the leader had called is gone: if nobody listens where it was, another is elected without waiting.
    pub(super) fn leader_hung_up(self: &Arc<Self>, leader: VoterId) {
        if self.mourned.lock().insert(leader) {
            let quorum = Arc::clone(self);
            self.spawn(async move {
                failover::succeed(&quorum, leader).await;
                quorum.mourned.lock().remove(&leader);
            });
        }
    }

    /// The brokers that are to vote, as the configuration has them.
    pub(super) fn voters(&self) -> impl Iterator<Item = BrokerId> {
        self.settings.iter().flat_map(|settings| &settings.voters).map(|voter| BrokerId(voter.broker_id))
    }

    /// Who this broker is to the others.
    pub(crate) fn voter(&self) -> VoterId {
        self.own
    }

    pub(crate) fn broker_id(&self) -> BrokerId {
        self.own.broker
    }

    /// Has a change committed and applied. On the leader only.
    pub(crate) async fn propose(&self, change: Change) -> Result<Applied, ProposeError> {
        match self.raft.client_write(change).await {
            Ok(written) => Ok(written.data),
            Err(RaftError::Fatal(fatal)) => Err(self.stopped(&fatal)),
            Err(RaftError::APIError(_)) => Err(ProposeError::NotLeader),
        }
    }

    /// Whether this broker still leads: a majority has to say so.
    pub(crate) async fn confirm_leadership(&self) -> Result<(), ProposeError> {
        if self.settings.is_none() {
            return Ok(());
        }
        match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(()),
            Err(RaftError::Fatal(fatal)) => Err(self.stopped(&fatal)),
            Err(RaftError::APIError(_)) => Err(ProposeError::NotLeader),
        }
    }

    fn stopped(&self, fatal: &Fatal<Types>) -> ProposeError {
        ProposeError::Stopped(fatal.to_string())
    }

    /// Whether nobody listens where a broker is said to be: its process is gone.
    pub(crate) async fn nobody_listens(&self, broker: BrokerId, known: &Address) -> bool {
        let address = self.peers.address_of(broker, known);
        matches!(self.peers.dial(&address).await, Err(LinkError::NobodyThere { .. }))
    }

    /// Stops taking part. A leader hands over first, if there is somebody.
    pub(crate) async fn stop(&self) {
        self.hand_over().await;
        self.closing.cancel();
        self.log.wait_for_room(false);
        self.tasks.lock().abort_all();
        if let Err(error) = self.raft.shutdown().await {
            tracing::error!(%error, "the metadata quorum did not stop in order");
        }
    }

    async fn hand_over(&self) {
        let Some(successor) = successor(&self.metrics(), self.own) else { return };
        let mut leadership = self.leadership.subscribe();
        if let Err(error) = self.raft.trigger().transfer_leader(successor).await {
            tracing::warn!(%error, "the metadata quorum has no other leader yet");
            return;
        }
        let handed = leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != self.own.broker));
        match tokio::time::timeout(HANDOVER_MAX, handed).await {
            Ok(_) => tracing::info!(to = successor.broker.0, "leadership of the metadata quorum handed over"),
            Err(_elapsed) => {
                tracing::warn!(to = successor.broker.0, "nobody has taken over the metadata quorum in time");
            }
        }
    }
}

/// Whom a leader hands over to: the other voter that has most of the log; none when this is not the leader or there is no other.
pub(super) fn successor(metrics: &RaftMetrics<Types>, own: VoterId) -> Option<VoterId> {
    let replication = metrics.replication.as_ref().filter(|_| metrics.state == ServerState::Leader)?;
    let others = metrics.membership_config.voter_ids().filter(|voter| *voter != own);
    let reached = others.filter_map(|voter| Some(((*replication.get(&voter)?)?.index, voter)));
    reached.max().map(|(_, voter)| voter)
}

fn open_files(log_dir: &Arc<LogDir>, partition: Option<&LogName>) -> Result<(LogStore, StateMachine), OpenQuorumError> {
    let log = LogStore::open(log_dir, partition)?;
    let dir = log_dir.path().join(LogName::new(CLUSTER_METADATA_TOPIC, 0).to_string());
    Ok((log, StateMachine::open(log_dir, dir)?))
}

fn raft_config(cluster_id: String, several: bool) -> Config {
    Config {
        cluster_name: cluster_id,
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MIN_MS,
        election_timeout_max: ELECTION_MAX_MS,
        install_snapshot_timeout: 30_000,
        max_payload_entries: 256,
        // A member gets a snapshot only when the log no longer has what it misses.
        replication_lag_threshold: u64::MAX,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        // A broker alone has nobody to hear or to tell.
        enable_tick: several,
        enable_pre_vote: Some(true),
        // A new life of a process leads only by a new election, in a new term.
        enable_leader_restore: Some(false),
        backoff: "20ms 50ms 100ms 200ms ...500ms".to_owned(),
        ..Config::default()
    }
}

/// Tells who leads from what openraft says.
async fn watch_leadership(quorum: Arc<Quorum>) {
    let mut metrics = quorum.raft.metrics();
    loop {
        quorum.tell_leadership();
        let leads = quorum.leadership.borrow().here && quorum.settings.is_some();
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { break },
            // Nothing changes for one that is cut off.
            () = tokio::time::sleep(UNANSWERED_MAX), if leads => {}
        }
    }
    quorum.leadership.send_modify(|told| *told = Leadership { leader: None, here: false, ..*told });
    if !quorum.closing.is_cancelled() {
        tracing::error!(why = quorum.failure(), "this broker can take part in the metadata quorum no more");
        quorum.failed.cancel();
    }
}

fn leadership_of(metrics: &RaftMetrics<Types>) -> Leadership {
    let term = metrics.current_term;
    // An entry of its own term is applied: so is everything before.
    let caught_up = metrics.last_applied.is_some_and(|last| last.leader_id.term == term);
    let leads = metrics.state == ServerState::Leader;
    let others = metrics.membership_config.voter_ids().count() > 1;
    let unanswered =
        metrics.last_quorum_acked.is_some_and(|at| openraft::Instant::elapsed(&at.into_inner()) >= UNANSWERED_MAX);
    let cut_off = leads && others && unanswered;
    Leadership {
        term,
        leader: metrics.current_leader.map(|voter| voter.broker).filter(|_| !cut_off),
        here: leads && caught_up && !cut_off,
    }
}

/// Puts a snapshot in the place of a log that has grown long.
async fn shorten_log(quorum: Arc<Quorum>) {
    let mut versions = quorum.machine.subscribe();
    let mut asked_at_bytes = 0;
    while versions.changed().await.is_ok() {
        let bytes = quorum.log.size_bytes();
        if bytes < asked_at_bytes {
            asked_at_bytes = 0;
        }
        let long = quorum.snapshot_after_bytes.max(quorum.machine.snapshot_bytes().saturating_mul(LONG_LOG_FACTOR));
        if bytes < asked_at_bytes.max(long) {
            continue;
        }
        // Asked again only when it has grown on: making one takes a while.
        asked_at_bytes = bytes.saturating_add(long / 4);
        tracing::info!(bytes, "the metadata log is being replaced by a snapshot");
        if let Err(error) = quorum.raft.trigger().snapshot().await {
            tracing::error!(%error, "the metadata log could not be replaced by a snapshot");
        }
    }
}
