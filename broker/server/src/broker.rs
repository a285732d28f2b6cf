//! The composition root: everything a broker consists of, and the order in which it starts and stops.
//!
//! Start: log directories are claimed, this broker takes part in the metadata quorum and disk threads start (`open`); when there is a
//! leader it is registered, since its addresses may have changed; partitions are opened and recovered, groups are loaded, clients are let
//! in, and from then on everything follows the metadata (`follow.rs`).
//! Stop is the reverse: no new requests, answers written, groups, disk threads, logs closed, directories marked clean.
//! Nothing is started outside this file, so nothing can be forgotten here.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_broker_client::RequestError;
use forebay_broker_config::{BrokerConfig, ThreadsInForce};
use forebay_broker_machines::metadata::{BrokerLife, CLUSTER_METADATA_TOPIC, Command, Endpoint, Reply};
use forebay_broker_storage::{DiskFull, LogDir, read_topic_id};
use forebay_broker_wire::types::{BrokerId, Uuid};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::absent::Absent;
use crate::controller::Sessions;
use crate::coordinators::GroupCoordinator;
use crate::handlers::fetch::sessions::Sessions as FetchSessions;
use crate::handlers::init_producer_id::ProducerIds;
use crate::handlers::pass_on::PassOn;
use crate::io::append::{Appender, now_ms};
use crate::io::busy::{BusyTime, nanos};
use crate::io::flusher::Flusher;
use crate::io::pace::Pace;
use crate::io::room::ask_again_and_again;
use crate::io::stop_on_panic::PanicAlarm;
use crate::io::warm::Warmer;
use crate::io::watchdog::Watchdog;
use crate::lifecycle::Lifecycle;
use crate::log_dirs::{self, FailedDir};
use crate::metadata::{MetadataStore, SubmitError, random_id};
use crate::metrics::Metrics;
use crate::moves::Moves;
use crate::net::budget::ByteBudget;
use crate::net::lines::Lines;
use crate::net::listener::{Admission, Limits};
use crate::net::warnings::Warnings;
use crate::partitions::{HostedDir, PartitionTable, Progress};
use crate::quorum::{Address, AskError, Caller, Controller, ControllerReply, ControllerRequest, OpenQuorum};
use crate::replication::Replication;
use crate::status::cgroup;
use crate::status::limits::nofile;

/// Threads that read cold ranges: enough to keep a disk's queue from running empty, few enough not to starve appends.
const COLD_READ_THREADS: usize = 2;

/// Where this broker is reached.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    /// By listener, the controller's included.
    pub(crate) endpoints: Vec<Endpoint>,
    /// By other brokers of the quorum.
    pub(crate) controller: Address,
}

/// One running broker. Handlers and tasks share it; it never changes shape.
pub struct Broker {
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) threads: ThreadsInForce,
    pub(crate) limits: Limits,
    pub(crate) budget: ByteBudget,
    pub(crate) admission: Arc<Admission>,
    /// The clients' sockets.
    pub(crate) lines: Lines,
    /// About clients that break the protocol.
    pub(crate) warnings: Warnings,
    pub(crate) metrics: Metrics,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) metadata: MetadataStore,
    pub(crate) partitions: PartitionTable,
    pub(crate) appender: Appender,
    pub(crate) warmer: Warmer,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) groups: GroupCoordinator,
    pub(crate) replication: Replication,
    pub(crate) moves: Moves,
    pub(crate) pass_on: PassOn,
    pub(crate) absent: Absent,
    /// Of all brokers, where this one is the controller.
    pub(crate) sessions: Sessions,
    /// Clients are served, and this broker is not about to stop.
    pub(crate) ready: watch::Sender<bool>,
    /// One life of the process.
    pub(crate) incarnation: Uuid,
    pub(crate) fetch_sessions: FetchSessions,
    /// A disk hangs, or goes on; it is full, or has room again.
    pub(crate) disks_changed: Notify,
    watchdog: Mutex<Option<Watchdog>>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) alarm: PanicAlarm,
    pub(crate) started_at_ms: i64,
    /// Of `log.dirs`, those that this life of the broker does without.
    pub(crate) failed_dirs: Vec<FailedDir>,
    cluster_id: Arc<str>,
    reached: Reached,
    /// Of this broker's registration; -1 before.
    broker_epoch: AtomicI64,
    /// The version of the image that everything here follows.
    followed: watch::Sender<i64>,
    following: Mutex<()>,
    network_busy: BusyTime,
    runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").field("id", &self.config.broker_id).finish_non_exhaustive()
    }
}

impl Broker {
    /// Whether there is room for new partitions. Asked only where they would all come here: of others' disks nothing is known.
    pub(crate) fn check_room(&self) -> Result<(), DiskFull> {
        if self.metadata.image().live_brokers().nth(1).is_some() {
            return Ok(());
        }
        let usable = self.partitions.dirs.iter().filter(|dir| !dir.is_out());
        usable.map(|dir| dir.log_dir.check_room()).reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Claims the directories, begins to take part in the metadata quorum and starts the disk threads; no partition is open yet, and no
    /// leader is waited for. Blocks.
    pub(crate) fn open(
        config: Arc<BrokerConfig>,
        reached: Reached,
        shutdown: CancellationToken,
        runtime: tokio::runtime::Handle,
    ) -> anyhow::Result<Self> {
        let metrics = Metrics::new().context("cannot set up the metrics")?;
        let claimed = log_dirs::claim(&config)?;
        let located = claimed.locate_logs()?;
        let from_others = config.quorum.as_ref().is_some_and(|quorum| quorum.names_others(config.broker_id));
        let quorum = OpenQuorum {
            log_dir: Arc::clone(claimed.home(from_others)?),
            partition: located.keys().min().filter(|_| !from_others).cloned(),
            knows_cluster: claimed.knows_cluster(&located),
            cluster_id: claimed.cluster_id.clone(),
            broker_id: BrokerId(config.broker_id),
            settings: config.quorum.clone(),
            address: reached.controller.clone(),
            snapshot_after_bytes: config.metadata_snapshot_after_bytes,
        };
        let metadata = runtime
            .block_on(MetadataStore::open(quorum, Arc::clone(&config)))
            .context("cannot open the metadata log")?;
        let alarm = PanicAlarm::new(shutdown.clone());
        let threads = config.threads.in_force(cgroup::usable_cores());
        let has_all = claimed.has_all();
        let dirs = host_dirs(claimed.dirs, threads.network, &metrics, &alarm)?;
        let log_dirs = dirs.len();
        Ok(Self {
            threads,
            limits: limits(&config),
            budget: ByteBudget::new(config.network.queued_max_request_bytes),
            admission: Arc::default(),
            lines: Lines::default(),
            warnings: Warnings::default(),
            metrics,
            lifecycle: Lifecycle::default(),
            metadata,
            partitions: PartitionTable::new(BrokerId(config.broker_id), dirs, located, has_all, shutdown.clone()),
            appender: Appender::start(threads.io, log_dirs, config.network.queued_max_requests, &alarm)
                .context("cannot start the disk threads")?,
            warmer: Warmer::start(COLD_READ_THREADS, &alarm).context("cannot start the cold-read threads")?,
            producer_ids: ProducerIds::default(),
            groups: GroupCoordinator::new(&config),
            replication: Replication::new(),
            moves: Moves::new(config.threads.replica_alter_log_dirs.unwrap_or(log_dirs)),
            pass_on: PassOn::default(),
            absent: Absent::default(),
            sessions: Sessions::new(BrokerId(config.broker_id), config.membership.session_timeout),
            ready: watch::Sender::new(false),
            incarnation: random_id(),
            fetch_sessions: FetchSessions::new(config.network.fetch_session_slots),
            disks_changed: Notify::new(),
            watchdog: Mutex::default(),
            shutdown,
            alarm,
            started_at_ms: now_ms(),
            cluster_id: claimed.cluster_id.into(),
            failed_dirs: claimed.failed,
            reached,
            broker_epoch: AtomicI64::new(-1),
            followed: watch::Sender::new(0),
            following: Mutex::default(),
            network_busy: BusyTime::new(threads.network),
            runtime,
            config,
        })
    }

    pub(crate) fn id(&self) -> BrokerId {
        BrokerId(self.config.broker_id)
    }

    pub(crate) fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// This broker's life, as the controller knows it.
    pub(crate) fn life(&self) -> BrokerLife {
        BrokerLife { broker_id: self.id(), broker_epoch: self.broker_epoch() }
    }

    /// The epoch of this broker's registration; -1 before.
    pub(crate) fn broker_epoch(&self) -> i64 {
        self.broker_epoch.load(Ordering::Acquire)
    }

    pub(crate) fn set_broker_epoch(&self, broker_epoch: i64) {
        self.broker_epoch.store(broker_epoch, Ordering::Release);
    }

    /// Where it is reached, by listener.
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.reached.endpoints
    }

    /// Where other brokers reach a broker.
    pub(crate) fn address_of(&self, id: BrokerId) -> Result<String, RequestError> {
        let listener = &self.config.inter_broker_listener_name;
        let image = self.metadata.image();
        let known = image.brokers().find(|known| known.id == id);
        let endpoint = known.and_then(|known| known.endpoint(listener));
        let unknown = || RequestError::NoBroker { what: format!("id {id} on listener {listener}") };
        endpoint.map(|endpoint| format!("{}:{}", endpoint.host, endpoint.port)).ok_or_else(unknown)
    }

    /// Hears the version of each image that everything here follows.
    pub(crate) fn followed(&self) -> watch::Receiver<i64> {
        self.followed.subscribe()
    }

    /// Opens the partitions of the metadata image, recovering those that need it. Blocks.
    pub(crate) fn recover(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let image = self.metadata.image();
        self.remove_leftovers()?;
        for dir in &self.partitions.dirs {
            log_dirs::tell_missing(&dir.log_dir, &image, self.id());
        }
        self.partitions.follow(&image, &self.config, &self.metrics, self.broker_epoch(), &|progress| match progress {
            Progress::ToOpen(logs) => self.lifecycle.recovering(u64::try_from(logs).unwrap_or(u64::MAX)),
            Progress::Opened => self.lifecycle.partition_recovered(),
        });
        tracing::info!(
            partitions = self.partitions.count(),
            seconds = began.elapsed().as_secs_f64(),
            "partitions are open"
        );
        Ok(())
    }

    /// Logs of topics whose deletion is on record, but which a crash has kept. A log that is not in the metadata for any other reason
    /// stays where it is: nothing says that it may go.
    fn remove_leftovers(&self) -> anyhow::Result<()> {
        let removed_topics = self.metadata.removed_topics();
        for dir in &self.partitions.dirs {
            let log_dir = &dir.log_dir;
            for log in log_dir.logs()?.into_iter().filter(|log| log.topic != CLUSTER_METADATA_TOPIC) {
                let topic_id = read_topic_id(log_dir.disk(), &log_dir.path().join(log.to_string())).ok().flatten();
                if topic_id.is_some_and(|id| removed_topics.contains(&id)) {
                    tracing::info!(%log, "the log of a topic that was deleted before the last stop is removed");
                    log_dir.delete_log(&log, now_ms(), now_ms())?;
                    self.partitions.forget(&log);
                }
            }
            log_dir.commit_deletions()?;
        }
        Ok(())
    }

    /// Changes the metadata, and returns when the change is durable and everything here follows it: the client may be answered.
    pub(crate) async fn submit(self: &Arc<Self>, command: Command) -> Result<Reply, SubmitError> {
        let (reply, version) = self.metadata.submit(command).await?;
        let mut followed = self.followed.subscribe();
        tokio::select! {
            _ = followed.wait_for(|followed| *followed >= version) => Ok(reply),
            () = self.shutdown.cancelled() => Ok(reply),
        }
    }

    /// Asks the controller, which may be here.
    pub(crate) async fn ask_controller(
        &self,
        request: ControllerRequest,
        time_max: Duration,
    ) -> Result<ControllerReply, AskError> {
        if self.metadata.leadership().borrow().here {
            let caller = Caller { voter: self.metadata.quorum().voter(), connection: u64::MAX };
            return Ok(self.answer(caller, request).await);
        }
        self.metadata.ask_controller(&request, time_max).await
    }

    /// Follows again, to open what could not be opened.
    pub(crate) async fn follow_again(self: &Arc<Self>) {
        let broker = Arc::clone(self);
        if tokio::task::spawn_blocking(move || broker.follow()).await.is_err() {
            tracing::error!("following the metadata ended by a panic");
        }
    }

    /// Begins to copy what other brokers lead.
    pub(crate) fn start_replication(self: &Arc<Self>) {
        self.replication.start(self, &self.runtime);
    }

    /// Begins to look for disks that hang or are full: what is there is to be led elsewhere, and nobody may be kept waiting.
    pub(crate) fn watch_disks(self: &Arc<Self>) -> anyhow::Result<()> {
        let broker = Arc::downgrade(self);
        let changed = move |dir: &HostedDir| {
            if let Some(broker) = broker.upgrade() {
                broker.disk_changed(dir);
            }
        };
        let hung_after = Duration::from_millis(self.config.log.hung_ms);
        let watchdog = Watchdog::start(self.partitions.dirs.clone(), hung_after, changed, &self.alarm);
        *self.watchdog.lock() = Some(watchdog.context("cannot start the thread that watches the disks")?);
        for dir in &self.partitions.dirs {
            self.runtime.spawn(ask_again_and_again(Arc::clone(dir), self.shutdown.clone()));
        }
        self.runtime.spawn(leave_clients(Arc::downgrade(self), self.metadata.quorum().watch_disk()));
        Ok(())
    }

    fn disk_changed(&self, dir: &HostedDir) {
        let quorum = self.metadata.quorum();
        if quorum.log.is_in(&dir.log_dir) {
            quorum.disk_hangs(dir.is_hung());
        }
        if dir.is_hung() {
            self.lines.hang_up_writers(dir.number);
        }
        self.disks_changed.notify_one();
    }

    /// Makes everything here follow the newest image. Blocks.
    pub(crate) fn follow(self: &Arc<Self>) {
        let _one_at_a_time = self.following.lock();
        let image = self.metadata.image();
        self.absent.look(&image);
        self.partitions.follow(&image, &self.config, &self.metrics, self.broker_epoch(), &|_progress| {});
        self.replication.follow(self, &self.runtime);
        self.groups.follow(self);
        self.followed.send_replace(image.version());
    }

    /// Share of the network threads' time spent working since the reading before.
    pub(crate) fn network_busy_ratio(&self) -> f64 {
        let metrics = self.runtime.metrics();
        let busy: Duration = (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
        self.network_busy.ratio_of(nanos(busy), Instant::now())
    }

    /// Stops what `open` started, when no request is served any more, and closes all logs. Blocks.
    pub(crate) fn close(&self) {
        if let Some(watchdog) = self.watchdog.lock().take() {
            watchdog.stop();
        }
        self.appender.stop();
        self.warmer.stop();
        for dir in &self.partitions.dirs {
            dir.flusher.stop();
        }
        if self.alarm.has_rung() {
            // What a panic left half done is for the next start to check: nothing is marked clean.
            return;
        }
        self.partitions.close(self.config.threads.recovery_per_data_dir);
        tracing::info!("stopped");
    }
}

impl Controller for Broker {
    async fn answer(&self, _caller: Caller, request: ControllerRequest) -> ControllerReply {
        match request {
            ControllerRequest::Submit { command } => self.metadata.answer_submit(command).await,
            ControllerRequest::DescribeQuorum if self.metadata.leadership().borrow().here => {
                ControllerReply::Quorum(self.metadata.quorum().status())
            }
            ControllerRequest::DescribeQuorum => self.metadata.not_controller(),
            ControllerRequest::Heartbeat { heartbeat } => {
                match self.sessions.heartbeat(&heartbeat, &self.metadata.image()) {
                    Some(answer) => ControllerReply::Heartbeat { answer },
                    None => self.metadata.not_controller(),
                }
            }
        }
    }

    fn closed(&self, caller: Caller) {
        self.sessions.connection_closed(caller.voter.broker);
    }
}

fn host_dirs(
    log_dirs: Vec<Arc<LogDir>>,
    network_threads: usize,
    metrics: &Metrics,
    alarm: &PanicAlarm,
) -> anyhow::Result<Vec<Arc<HostedDir>>> {
    let host = |(number, log_dir): (usize, Arc<LogDir>)| {
        let flush_duration = metrics.flush_duration(&log_dir.path().display().to_string());
        let flusher = Flusher::start(number, alarm).context("cannot start a flusher thread")?;
        Ok(Arc::new(HostedDir::new(number, log_dir, flusher, flush_duration, Pace::new(network_threads))))
    };
    log_dirs.into_iter().enumerate().map(host).collect()
}

/// Whenever nothing can be written to the metadata here, clients are to go to other brokers.
async fn leave_clients(broker: Weak<Broker>, mut disk: watch::Receiver<bool>) {
    while disk.changed().await.is_ok() {
        let Some(broker) = broker.upgrade() else { return };
        if broker.metadata.quorum().is_away() {
            broker.lines.hang_up_all();
        }
        broker.disks_changed.notify_one();
    }
}

/// Without a setting, half of the files that may be open: a log that gets none when it must is a partition offline.
fn connections_max(setting: Option<usize>, open_files_max: Option<u64>) -> usize {
    let half = || open_files_max.and_then(|files| usize::try_from(files / 2).ok()).unwrap_or(usize::MAX);
    setting.unwrap_or_else(half)
}

fn limits(config: &BrokerConfig) -> Limits {
    let network = &config.network;
    let bytes = |setting: Option<u32>| setting.and_then(|bytes| usize::try_from(bytes).ok());
    Limits {
        request_max_bytes: network.socket_request_max_bytes,
        connections_max: connections_max(network.max_connections, nofile().and_then(|limit| limit.soft)),
        connections_per_ip_max: network.max_connections_per_ip,
        idle_max: Duration::from_millis(network.connections_max_idle_ms),
        in_flight_max: network.queued_max_requests,
        send_buffer_bytes: bytes(network.socket_send_buffer_bytes),
        backlog: network.socket_listen_backlog_size,
    }
}
