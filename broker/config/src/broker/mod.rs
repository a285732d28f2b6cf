//! BrokerConfig: a properties file and its overrides as typed values.
//!
//! Two settings may contradict each other although each is right; that is found here too. The settings as written are kept, for
//! DescribeConfigs and for the topics that take their defaults from them.

mod listeners;
mod membership;
mod quorum;

use std::path::PathBuf;

pub use listeners::{Listener, parse_advertised};
pub use membership::MembershipSettings;
pub use quorum::{QuorumSettings, QuorumVoter};

use crate::reader::Reader;
use crate::{ConfigError, ConfigErrors, Layers, Scope, Settings, TopicConfig, parse_properties};

/// Everything a broker is told.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokerConfig {
    /// `node.id`.
    pub broker_id: i32,
    /// `forebay.cluster.id`.
    pub cluster_id: Option<String>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// The quorum of a cluster of several brokers; none for a cluster of one.
    pub quorum: Option<QuorumSettings>,
    /// `metadata.log.max.record.bytes.between.snapshots`.
    pub metadata_snapshot_after_bytes: u64,
    /// `listeners` for clients and for replication, at least one: the controller listener is in `quorum`.
    pub listeners: Vec<Listener>,
    /// `advertised.listeners`: one for each of `listeners`, in the same order. Port 0 stands for the port that was bound; without a
    /// host the address comes while the broker runs (`forebay.listeners.without.address`).
    pub advertised_listeners: Vec<Listener>,
    /// `inter.broker.listener.name`, or the first listener's: where other brokers fetch replicas.
    pub inter_broker_listener_name: String,
    /// `forebay.http.listener`, host:port.
    pub http_listener: String,
    /// `log.dirs`, at least one.
    pub log_dirs: Vec<PathBuf>,
    /// Thread counts.
    pub threads: Threads,
    /// `forebay.ulimit.nofile`.
    pub nofile_wanted: Option<u64>,
    /// Connections, requests and responses.
    pub network: NetworkSettings,
    /// Logs, beyond what topics take from their own settings.
    pub log: LogSettings,
    /// Groups.
    pub group: GroupSettings,
    /// Committed offsets.
    pub offsets: OffsetsSettings,
    /// Replication.
    pub replica: ReplicaSettings,
    /// Sessions with the controller, stopping in order, preferred leaders.
    pub membership: MembershipSettings,
    /// `auto.create.topics.enable`.
    pub auto_create_topics_enable: bool,
    /// `delete.topic.enable`.
    pub delete_topic_enable: bool,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// What a topic without settings of its own gets as long as nothing is changed dynamically.
    pub topic_defaults: TopicConfig,
    /// What was written, name by name: the static layer of every topic's settings.
    pub file: Settings,
}

/// Thread counts as asked; absent ones follow the cores, see [`Threads::in_force`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// `num.network.threads`.
    pub network: Option<usize>,
    /// `num.io.threads`.
    pub io: Option<usize>,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_per_data_dir: usize,
    /// `background.threads`.
    pub background: usize,
    /// `num.replica.fetchers`.
    pub replica_fetchers: usize,
    /// `num.replica.alter.log.dirs.threads`; absent: one for each log dir.
    pub replica_alter_log_dirs: Option<usize>,
}

/// Thread counts as they will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadsInForce {
    /// Threads that serve connections.
    pub network: usize,
    /// Threads that read and write disks.
    pub io: usize,
}

impl Threads {
    /// The counts on a machine where `cores` may be used: more network threads than six never paid, and fewer than two disk
    /// threads would let one slow disk stop all partitions.
    #[must_use]
    pub fn in_force(&self, cores: usize) -> ThreadsInForce {
        ThreadsInForce {
            network: self.network.unwrap_or_else(|| cores.clamp(1, 6)),
            io: self.io.unwrap_or_else(|| cores.clamp(2, 16)),
        }
    }
}

/// Connections, requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkSettings {
    pub queued_max_requests: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    pub queued_max_request_bytes: u64,
    pub socket_request_max_bytes: u32,
    /// None leaves it to the system.
    pub socket_send_buffer_bytes: Option<u32>,
    /// None leaves it to the system.
    pub socket_receive_buffer_bytes: Option<u32>,
    pub socket_listen_backlog_size: i32,
    /// None: as many as leave files for logs.
    pub max_connections: Option<usize>,
    pub max_connections_per_ip: usize,
    pub connections_max_idle_ms: u64,
    pub fetch_max_bytes: u32,
}

/// Logs, beyond what topics take from their own settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    pub reserve_bytes: u64,
    /// `forebay.log.dir.hung.ms`.
    pub hung_ms: u64,
    pub retention_check_interval_ms: u64,
    pub flush_offset_checkpoint_interval_ms: u64,
    pub initial_task_delay_ms: u64,
    pub producer_id_expiration_ms: u64,
}

/// Groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSettings {
    pub initial_rebalance_delay_ms: i32,
    pub min_session_timeout_ms: i32,
    pub max_session_timeout_ms: i32,
    pub max_size: usize,
}

/// Committed offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetsSettings {
    pub topic_num_partitions: i32,
    pub topic_replication_factor: i16,
    pub topic_segment_bytes: i32,
    pub retention_minutes: i64,
    pub retention_check_interval_ms: u64,
    pub metadata_max_bytes: usize,
}

/// Replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// `replica.selector.class` is Kafka's rack-aware one.
    pub rack_aware_reads: bool,
    pub fetch_min_bytes: i32,
    pub fetch_wait_max_ms: i32,
    pub fetch_max_bytes: i32,
    pub fetch_response_max_bytes: i32,
    pub fetch_backoff_ms: u64,
    pub lag_time_max_ms: u64,
    pub socket_timeout_ms: u64,
}

impl BrokerConfig {
    /// Reads properties text, then overrides of the form `name=value`, later ones winning.
    ///
    /// # Errors
    /// Everything wrong with the text, the overrides and their combination.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self, ConfigErrors> {
        let mut settings = parse_properties(text)?;
        for one in overrides {
            let Some((name, value)) = one.split_once('=').filter(|(name, _)| !name.trim().is_empty()) else {
                return Err(ConfigError::Override { text: one.clone() }.into());
            };
            settings.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        Self::from_settings(settings)
    }

    /// Reads settings.
    ///
    /// # Errors
    /// Everything wrong with the settings and their combination.
    pub fn from_settings(settings: Settings) -> Result<Self, ConfigErrors> {
        let mut r = Reader::new(Scope::Broker, &settings);
        let broker_id = broker_id(&mut r);
        let mut listeners = listeners::read(&mut r, "listeners");
        let told = listeners::told(&mut r, &listeners);
        let quorum = quorum::quorum(&mut r, broker_id, &mut listeners, &told);
        let inter_broker_listener_name = listeners::inter_broker(&mut r, &listeners);
        let later = listeners::without_address(&mut r, &listeners, &inter_broker_listener_name);
        let advertised_listeners = listeners::advertised(&mut r, &listeners, &told, &later);
        listeners::check_protocols(&mut r, &listeners);
        let log_dirs = log_dirs(&mut r);
        let nothing = Settings::new();
        let layers = Layers { topic: &nothing, broker: &nothing, cluster: &nothing, file: &settings };
        let topic_defaults = match TopicConfig::effective(layers) {
            // A value that is wrong in itself was already found under its own name.
            Err(errors) if r.errors.is_empty() => return Err(errors),
            Err(_) => return Err(ConfigErrors(r.errors)),
            Ok(defaults) => defaults,
        };
        let config = Self {
            broker_id,
            cluster_id: r.given("forebay.cluster.id").map(str::to_owned),
            rack: r.given("broker.rack").filter(|rack| !rack.is_empty()).map(str::to_owned),
            quorum,
            metadata_snapshot_after_bytes: r.required("metadata.log.max.record.bytes.between.snapshots"),
            listeners,
            advertised_listeners,
            inter_broker_listener_name,
            http_listener: r.text("forebay.http.listener").unwrap_or_default().to_owned(),
            log_dirs,
            threads: threads(&r),
            nofile_wanted: r.number("forebay.ulimit.nofile"),
            network: network(&r),
            log: log(&r),
            group: group(&mut r),
            offsets: offsets(&r),
            replica: replica(&r),
            membership: membership::membership(&mut r),
            auto_create_topics_enable: r.flag("auto.create.topics.enable"),
            delete_topic_enable: r.flag("delete.topic.enable"),
            num_partitions: r.required("num.partitions"),
            default_replication_factor: r.required("default.replication.factor"),
            topic_defaults,
            file: Settings::new(),
        };
        if r.errors.is_empty() { Ok(Self { file: settings, ..config }) } else { Err(ConfigErrors(r.errors)) }
    }
}

/// The broker id in a name that ends in `-N`, as a StatefulSet gives its pods.
///
/// # Errors
/// The name has no such end.
pub fn broker_id_from_name(name: &str) -> Result<i32, ConfigError> {
    name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<u16>().ok()).map(i32::from).ok_or_else(|| {
        ConfigError::Invalid {
            name: "--broker-id-from".to_owned(),
            value: name.to_owned(),
            wanted: "a name that ends in '-' and a number, such as demo-broker-0".to_owned(),
        }
    })
}

fn broker_id(r: &mut Reader<'_>) -> i32 {
    let (node, broker) = (r.number::<i32>("node.id"), r.number::<i32>("broker.id"));
    match (node, broker) {
        (Some(node), Some(broker)) if node != broker => {
            r.refuse("broker.id", &broker.to_string(), format!("the same as node.id={node}, or left out"));
        }
        (None, None) if r.given("node.id").is_none() && r.given("broker.id").is_none() => {
            r.missing("node.id", "a number that is this broker's own and stays the same");
        }
        _ => {}
    }
    node.or(broker).unwrap_or_default()
}

fn log_dirs(r: &mut Reader<'_>) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    let listed = r.list("log.dirs");
    for dir in if listed.is_empty() { r.list("log.dir") } else { listed } {
        let path = PathBuf::from(dir);
        if dirs.contains(&path) {
            r.refuse("log.dirs", dir, "a directory that is not listed twice");
        } else {
            dirs.push(path);
        }
    }
    if dirs.is_empty() {
        r.missing("log.dirs", "one directory for each disk, between commas");
    }
    dirs
}

fn threads(r: &Reader<'_>) -> Threads {
    Threads {
        network: r.number("num.network.threads"),
        io: r.number("num.io.threads"),
        recovery_per_data_dir: r.required("num.recovery.threads.per.data.dir"),
        background: r.required("background.threads"),
        replica_fetchers: r.required("num.replica.fetchers"),
        replica_alter_log_dirs: r.number("num.replica.alter.log.dirs.threads"),
    }
}

fn network(r: &Reader<'_>) -> NetworkSettings {
    NetworkSettings {
        queued_max_requests: r.required("queued.max.requests"),
        fetch_session_slots: r.required("max.incremental.fetch.session.cache.slots"),
        queued_max_request_bytes: r.required("queued.max.request.bytes"),
        socket_request_max_bytes: r.required("socket.request.max.bytes"),
        socket_send_buffer_bytes: r.number("socket.send.buffer.bytes"),
        socket_receive_buffer_bytes: r.number("socket.receive.buffer.bytes"),
        socket_listen_backlog_size: r.required("socket.listen.backlog.size"),
        max_connections: r.number("max.connections"),
        max_connections_per_ip: r.required("max.connections.per.ip"),
        connections_max_idle_ms: r.required("connections.max.idle.ms"),
        fetch_max_bytes: r.required("fetch.max.bytes"),
    }
}

fn log(r: &Reader<'_>) -> LogSettings {
    LogSettings {
        reserve_bytes: r.required("forebay.log.dir.reserve.bytes"),
        hung_ms: r.required("forebay.log.dir.hung.ms"),
        retention_check_interval_ms: r.required("log.retention.check.interval.ms"),
        flush_offset_checkpoint_interval_ms: r.required("log.flush.offset.checkpoint.interval.ms"),
        initial_task_delay_ms: r.required("log.initial.task.delay.ms"),
        producer_id_expiration_ms: r.required("producer.id.expiration.ms"),
    }
}

fn group(r: &mut Reader<'_>) -> GroupSettings {
    let settings = GroupSettings {
        initial_rebalance_delay_ms: r.required("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms: r.required("group.min.session.timeout.ms"),
        max_session_timeout_ms: r.required("group.max.session.timeout.ms"),
        max_size: r.required("group.max.size"),
    };
    if settings.min_session_timeout_ms > settings.max_session_timeout_ms {
        let wanted = format!("at most group.max.session.timeout.ms={}", settings.max_session_timeout_ms);
        r.refuse("group.min.session.timeout.ms", &settings.min_session_timeout_ms.to_string(), wanted);
    }
    settings
}

fn offsets(r: &Reader<'_>) -> OffsetsSettings {
    OffsetsSettings {
        topic_num_partitions: r.required("offsets.topic.num.partitions"),
        topic_replication_factor: r.required("offsets.topic.replication.factor"),
        topic_segment_bytes: r.required("offsets.topic.segment.bytes"),
        retention_minutes: r.required("offsets.retention.minutes"),
        retention_check_interval_ms: r.required("offsets.retention.check.interval.ms"),
        metadata_max_bytes: r.required("offset.metadata.max.bytes"),
    }
}

fn replica(r: &Reader<'_>) -> ReplicaSettings {
    ReplicaSettings {
        rack_aware_reads: r.given("replica.selector.class").is_some(),
        fetch_min_bytes: r.required("replica.fetch.min.bytes"),
        fetch_wait_max_ms: r.required("replica.fetch.wait.max.ms"),
        fetch_max_bytes: r.required("replica.fetch.max.bytes"),
        fetch_response_max_bytes: r.required("replica.fetch.response.max.bytes"),
        fetch_backoff_ms: r.required("replica.fetch.backoff.ms"),
        lag_time_max_ms: r.required("replica.lag.time.max.ms"),
        socket_timeout_ms: r.required("replica.socket.timeout.ms"),
    }
}

#[cfg(test)]
mod tests;
