//! The brokers' configuration file, by the same table that the broker reads it with: what is refused here would be
//! refused there, but here the user sees it.

use forebay_broker_config::{BrokerConfig, Scope, Settings, add_cluster_settings, parse_properties, render_properties};
use forebay_crds::Cluster;
use forebay_crds::cluster::{Listener, ListenerType};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use serde_json::Value;
use thiserror::Error;

use super::{
    CONTROLLER_PORT, Defaults, HTTP_PORT, KAFKA_PORT, broker_host, broker_set_name, config_map_name, is_replicated,
    metadata, stateful_set,
};
use crate::cluster::disk_drain::removal::DISKS_ANNOTATION;
use crate::cluster::settled::Settled;
use crate::cluster::{dynamic, scale};
use crate::settings::text as told;

/// The key, and the name of the file.
pub(crate) const FILE: &str = "broker.properties";

/// The configuration is wrong; the text names the setting, the value and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct ConfigProblem(pub(crate) String);

/// What the file holds: what the spec says by Kafka's names, and what follows from the rest of the spec.
pub(crate) fn broker_settings(
    cluster: &Cluster,
    defaults: &Defaults,
    settled: &Settled,
) -> Result<Settings, ConfigProblem> {
    let spec = &cluster.spec;
    let mut settings: Settings = spec.config.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let mut set = |name: &str, value: String| settings.insert(name.to_owned(), value);
    let log_dirs: Vec<String> = spec.disks.iter().map(forebay_crds::cluster::Disk::effective_mount_path).collect();
    set("log.dirs", log_dirs.join(","));
    let controller =
        if is_replicated(cluster) { format!(",CONTROLLER://0.0.0.0:{CONTROLLER_PORT}") } else { String::new() };
    set("listeners", format!("PLAINTEXT://0.0.0.0:{KAFKA_PORT}{controller}"));
    if !spec.listeners.is_empty() {
        set_listeners(&mut set, &spec.listeners, &controller);
    }
    set("forebay.http.listener", format!("0.0.0.0:{HTTP_PORT}"));
    let threads = stateful_set::threads(spec);
    let counts = [
        ("num.network.threads", threads.network),
        ("num.io.threads", threads.io),
        ("num.replica.fetchers", threads.replica_fetchers),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            set(name, count.to_string());
        }
    }
    if let Some(nofile) = spec.ulimits.as_ref().and_then(|ulimits| ulimits.nofile) {
        set("forebay.ulimit.nofile", nofile.to_string());
    }
    if is_replicated(cluster) {
        let address = |id| {
            let pod = format!("{}-{id}", broker_set_name(&cluster.name_any()));
            format!("{}:{CONTROLLER_PORT}", broker_host(cluster, defaults, &pod))
        };
        add_cluster_settings(&mut settings, settled.voters(cluster), &settled.cluster_id(cluster), address);
    }
    set_removal(&mut settings, cluster, settled);
    check_replicas(cluster)?;
    if let Some(problem) = spec.page_cache_problem() {
        return Err(ConfigProblem(problem));
    }
    settings.extend(dynamic::left_over(&settled.dynamic, &settings));
    let text = render_properties(&settings);
    // As the broker will read it: each one adds its own id and address.
    let of_each = ["node.id=0".to_owned(), format!("advertised.listeners={}", advertised(cluster, "broker"))];
    BrokerConfig::parse(&text, &of_each).map_err(|errors| {
        let told = errors.0.iter().map(|error| told(Scope::Broker, &spec.config, error));
        ConfigProblem(told.collect::<Vec<_>>().join("; "))
    })?;
    Ok(settings)
}

/// While disks are being removed nothing new comes to them, and what is on them is copied no faster than other moves go.
fn set_removal(settings: &mut Settings, cluster: &Cluster, settled: &Settled) {
    let paths: Vec<String> = settled.removal.disks().map(forebay_crds::cluster::Disk::effective_mount_path).collect();
    if !paths.is_empty() {
        settings.insert("cordoned.log.dirs".to_owned(), paths.join(","));
        let rate = scale::bytes_per_second(cluster).to_string();
        settings.insert("replica.alter.log.dirs.io.max.bytes.per.second".to_owned(), rate);
    }
}

/// Numbers of replicas that so few brokers can't have, which brokers would only find out later, topic by topic.
fn check_replicas(cluster: &Cluster) -> Result<(), ConfigProblem> {
    let brokers = cluster.spec.replicas;
    let too_many = |(name, what): (&str, &str)| {
        let wanted: i32 = cluster.spec.config.get(name)?.to_string().parse().ok()?;
        let way_out = format!("set it to at most {brokers}, or spec.replicas to {} or more", wanted.max(3));
        (wanted > brokers).then(|| format!("{name} is {wanted} and spec.replicas is {brokers}: {what}; {way_out}"))
    };
    let checked = [
        ("default.replication.factor", "no topic could have so many replicas"),
        ("min.insync.replicas", "acks=all would be refused for ever"),
    ];
    let problems: Vec<String> = checked.into_iter().filter_map(too_many).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigProblem(problems.join("; "))) }
}

/// The listeners of the spec beside our own. Where clients outside reach brokers is not known when these start.
fn set_listeners(set: &mut impl FnMut(&str, String) -> Option<String>, more: &[Listener], controller: &str) {
    let names = more.iter().map(Listener::broker_name);
    let bound = more.iter().map(|listener| format!(",{}://0.0.0.0:{}", listener.broker_name(), listener.port));
    set("listeners", format!("PLAINTEXT://0.0.0.0:{KAFKA_PORT}{}{controller}", bound.collect::<String>()));
    let protocols = names.map(|name| format!(",{name}:PLAINTEXT")).collect::<String>();
    set("listener.security.protocol.map", format!("PLAINTEXT:PLAINTEXT{protocols}"));
    let outside = more.iter().filter(|listener| listener.listener_type != ListenerType::Internal);
    let outside: Vec<String> = outside.map(Listener::broker_name).collect();
    if !outside.is_empty() {
        set("forebay.listeners.without.address", outside.join(","));
    }
}

/// What the file of a live ConfigMap holds; one that somebody has broken by hand says nothing, and is put right.
pub(crate) fn settings_of(config_map: Option<&Value>) -> Settings {
    let text = config_map.and_then(|config_map| config_map["data"][FILE].as_str()).unwrap_or_default();
    parse_properties(text).unwrap_or_default()
}

/// What the broker on this host tells others to connect to.
pub(super) fn advertised(cluster: &Cluster, host: &str) -> String {
    let controller =
        if is_replicated(cluster) { format!(",CONTROLLER://{host}:{CONTROLLER_PORT}") } else { String::new() };
    let inside = cluster.spec.listeners.iter().filter(|listener| listener.listener_type == ListenerType::Internal);
    let inside = inside.map(|listener| format!(",{}://{host}:{}", listener.broker_name(), listener.port));
    format!("PLAINTEXT://{host}:{KAFKA_PORT}{}{controller}", inside.collect::<String>())
}

/// `note`: what is to be remembered of disks that are being removed.
pub(super) fn build(cluster: &Cluster, settings: &Settings, note: Option<String>) -> ConfigMap {
    let annotations = note.map(|note| [(DISKS_ANNOTATION.to_owned(), note)].into());
    ConfigMap {
        metadata: ObjectMeta { annotations, ..metadata(cluster, config_map_name(&cluster.name_any())) },
        data: Some([(FILE.to_owned(), render_properties(settings))].into()),
        ..ConfigMap::default()
    }
}
