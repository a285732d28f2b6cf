//! From a Cluster to the settings of each of its brokers on this machine. Pure.

use std::path::Path;

use forebay_broker_config::Settings;
use forebay_crds::ClusterSpec;

/// Where one broker listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) kafka: u16,
    pub(crate) http: u16,
}

impl Ports {
    /// Kafka address.
    pub(crate) fn address(self) -> String {
        format!("127.0.0.1:{}", self.kafka)
    }

    /// Metrics and status address.
    pub(crate) fn http_address(self) -> String {
        format!("127.0.0.1:{}", self.http)
    }
}

/// The settings of broker `id`, whose folder is `folder`: the manifest's, and those that are decided here.
pub(crate) fn broker_settings(spec: &ClusterSpec, id: i32, folder: &Path, ports: Ports) -> Settings {
    let mut settings: Settings = spec.config.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let mut set = |name: &str, value: String| {
        settings.insert(name.to_owned(), value);
    };
    let disks: Vec<String> = spec.disks.iter().map(|disk| folder.join(&disk.name).display().to_string()).collect();
    set("node.id", id.to_string());
    set("listeners", format!("PLAINTEXT://{}", ports.address()));
    set("advertised.listeners", format!("PLAINTEXT://{}", ports.address()));
    set("forebay.http.listener", ports.http_address());
    set("log.dirs", disks.join(","));
    let threads = spec.threads.clone().unwrap_or_default();
    let counts = [
        ("num.network.threads", threads.network),
        ("num.io.threads", threads.io),
        ("num.replica.fetchers", threads.replica_fetchers),
    ];
    counts
        .into_iter()
        .filter_map(|(name, count)| Some((name, count?)))
        .for_each(|(name, count)| set(name, count.to_string()));
    if let Some(nofile) = spec.ulimits.as_ref().and_then(|limits| limits.nofile) {
        set("forebay.ulimit.nofile", nofile.to_string());
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;
    use forebay_broker_config::{BrokerConfig, parse_properties, render_properties};

    #[test]
    fn a_broker_gets_the_manifests_settings_and_reads_them_back() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/quickstart.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let cluster = manifest::parse(&[(path.to_owned(), text)]).unwrap().cluster;
        let ports = Ports { kafka: 9092, http: 9644 };
        let settings = broker_settings(&cluster.spec, 0, Path::new("/data/broker-0"), ports);
        assert_eq!(settings["log.dirs"], "/data/broker-0/data");
        assert_eq!(settings["num.io.threads"], "4");
        assert_eq!(settings["log.flush.interval.ms"], "50");
        assert_eq!(settings["forebay.ulimit.nofile"], "65535");
        let read = parse_properties(&render_properties(&settings)).unwrap();
        let config = BrokerConfig::from_settings(read).unwrap();
        assert_eq!(config.advertised_listeners[0].port, 9092);
    }
}
