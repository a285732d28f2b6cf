//! The brokers' configuration file, by the same table that the broker reads it with: what is refused here would be
//! refused there, but here the user sees it.

use forebay_broker_config::{BrokerConfig, Settings, render_properties};
use forebay_crds::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use thiserror::Error;

use super::{HTTP_PORT, KAFKA_PORT, config_map_name, metadata, stateful_set};

/// The key, and the name of the file.
pub(crate) const FILE: &str = "broker.properties";

/// The configuration is wrong; the text names the setting, the value and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct ConfigProblem(pub(crate) String);

/// The text of the file: what the spec says by Kafka's names, and what follows from the rest of the spec.
pub(crate) fn broker_properties(cluster: &Cluster) -> Result<String, ConfigProblem> {
    let spec = &cluster.spec;
    let mut settings: Settings = spec.config.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let mut set = |name: &str, value: String| settings.insert(name.to_owned(), value);
    let log_dirs: Vec<String> = spec.disks.iter().map(forebay_crds::cluster::Disk::effective_mount_path).collect();
    set("log.dirs", log_dirs.join(","));
    set("listeners", format!("PLAINTEXT://0.0.0.0:{KAFKA_PORT}"));
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
    let text = render_properties(&settings);
    // As the broker will read it: each one adds its own id and address.
    let of_each = ["node.id=0".to_owned(), format!("advertised.listeners=PLAINTEXT://broker:{KAFKA_PORT}")];
    BrokerConfig::parse(&text, &of_each).map_err(|errors| ConfigProblem(errors.to_string()))?;
    Ok(text)
}

pub(super) fn build(cluster: &Cluster, properties: &str) -> ConfigMap {
    ConfigMap {
        metadata: metadata(cluster, config_map_name(&cluster.name_any())),
        data: Some([(FILE.to_owned(), properties.to_owned())].into()),
        ..ConfigMap::default()
    }
}
