//! From a Cluster to the settings of each of its brokers on this machine. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_broker_config::{Settings, add_cluster_settings, voter_count};
use forebay_crds::ClusterSpec;

/// Where one broker listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) kafka: u16,
    pub(crate) http: u16,
    /// Where brokers listen to each other; not used by a broker that is alone.
    pub(crate) controller: u16,
}

impl Ports {
    /// Kafka address.
    pub(crate) fn address(self) -> String {
        format!("127.0.0.1:{}", self.kafka)
    }

    fn controller_address(self) -> String {
        format!("127.0.0.1:{}", self.controller)
    }

    /// Metrics and status address.
    pub(crate) fn http_address(self) -> String {
        format!("127.0.0.1:{}", self.http)
    }
}

/// The settings of broker `id`, whose folder is `folder`: the manifest's, and those that are decided here. `ports` are those of all
/// brokers, by id; `cluster_id` counts only when there are several.
pub(crate) fn broker_settings(
    spec: &ClusterSpec,
    id: i32,
    folder: &Path,
    ports: &BTreeMap<i32, Ports>,
    cluster_id: &str,
) -> Option<Settings> {
    let own = *ports.get(&id)?;
    let mut settings: Settings = spec.config.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let mut set = |name: &str, value: String| {
        settings.insert(name.to_owned(), value);
    };
    let disks: Vec<String> = spec.disks.iter().map(|disk| folder.join(&disk.name).display().to_string()).collect();
    set("node.id", id.to_string());
    let mut listeners = format!("PLAINTEXT://{}", own.address());
    if ports.len() > 1 {
        listeners += &format!(",CONTROLLER://{}", own.controller_address());
    }
    set("listeners", listeners.clone());
    set("advertised.listeners", listeners);
    set("forebay.http.listener", own.http_address());
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
    if ports.len() > 1 {
        let voters = voter_count(i32::try_from(ports.len()).unwrap_or(i32::MAX));
        let address = |id: i32| ports.get(&id).map(|ports| ports.controller_address()).unwrap_or_default();
        add_cluster_settings(&mut settings, voters, cluster_id, address);
    }
    Some(settings)
}

/// What the manifest asks for that only Kubernetes has, for people.
pub(crate) fn left_out(spec: &ClusterSpec) -> Option<String> {
    let listeners: Vec<&str> = spec.listeners.iter().map(|listener| listener.name.as_str()).collect();
    let what = match (listeners.is_empty(), spec.network_policy.is_some()) {
        (true, false) => return None,
        (true, true) => "spec.networkPolicy".to_owned(),
        (false, policy) => {
            let policy = if policy { " and spec.networkPolicy" } else { "" };
            format!("spec.listeners ({}){policy}", listeners.join(", "))
        }
    };
    Some(format!("{what}: only on Kubernetes; here clients of all kinds connect to the brokers' own ports"))
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
        let settings = broker_settings(&cluster.spec, 0, Path::new("/data/broker-0"), &ports(1), "").unwrap();
        assert_eq!(settings["log.dirs"], "/data/broker-0/data");
        assert_eq!(settings["num.io.threads"], "4");
        assert_eq!(settings["log.flush.interval.ms"], "50");
        assert_eq!(settings["forebay.ulimit.nofile"], "65535");
        let read = parse_properties(&render_properties(&settings)).unwrap();
        let config = BrokerConfig::from_settings(read).unwrap();
        assert_eq!(config.advertised_listeners[0].port, 9092);
        assert_eq!(config.quorum, None);
    }

    fn ports(brokers: u16) -> BTreeMap<i32, Ports> {
        let of = |n| Ports { kafka: 9092 + n, http: 9644 + n, controller: 9192 + n };
        (0..brokers).map(|n| (i32::from(n), of(n))).collect()
    }

    #[test]
    fn what_only_kubernetes_has_is_said_and_keeps_nothing_from_starting() {
        let cluster = |more: &str| {
            let text = format!(
                "apiVersion: forebay.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: demo}}\n\
                 spec: {{replicas: 1, disks: [{{name: data, size: 1Gi}}]{more}}}\n"
            );
            manifest::parse(&[("demo.yaml".to_owned(), text)]).unwrap().cluster
        };
        assert_eq!(left_out(&cluster("").spec), None);
        let with = cluster(", listeners: [{name: external, port: 9094, type: NodePort}], networkPolicy: {}");
        let said = left_out(&with.spec).unwrap();
        assert!(said.starts_with("spec.listeners (external) and spec.networkPolicy: only on Kubernetes"), "{said}");
        let settings = broker_settings(&with.spec, 0, Path::new("/d"), &ports(1), "").unwrap();
        assert_eq!(settings["listeners"], "PLAINTEXT://127.0.0.1:9092");
    }

    #[test]
    fn each_of_several_knows_the_same_voters_and_listens_to_the_others() {
        let cluster = "apiVersion: forebay.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\n\
            spec: {replicas: 5, disks: [{name: data, size: 1Gi}]}\n";
        let cluster = manifest::parse(&[("demo.yaml".to_owned(), cluster.to_owned())]).unwrap().cluster;
        let of = |id| {
            let id_22 = "Zm9yZWJheS1mb3JlYmF5LQ";
            let settings = broker_settings(&cluster.spec, id, Path::new("/d"), &ports(5), id_22).unwrap();
            BrokerConfig::from_settings(settings).unwrap()
        };
        let (first, last) = (of(0).quorum.unwrap(), of(4).quorum.unwrap());
        assert_eq!((first.voters.len(), &first.voters), (5, &last.voters));
        assert_eq!((first.listener.port, last.listener.port), (9192, 9196));
        assert_eq!(of(3).default_replication_factor, 3);
    }
}
