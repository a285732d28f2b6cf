//! What the documents say together: one Cluster that this machine can run, topics and profiles that belong to it, no name twice,
//! settings that brokers and topics really have.

use std::collections::BTreeMap;

use forebay_broker_config::{check_broker_count, nearest, validate_broker, validate_topic};
use forebay_crds::quantity::quantity;
use forebay_crds::{Cluster, ClusterRef, ConsumerProfile, Topic};
use serde_json::Value;

use super::{ManifestError, Place};

/// Broker settings that are decided here, and where the manifest has them instead.
const OWNED: [(&str, &str); 16] = [
    ("node.id", "brokers are numbered from 0"),
    ("broker.id", "brokers are numbered from 0"),
    ("listeners", "use --port"),
    ("advertised.listeners", "use --port"),
    ("forebay.listeners.without.address", "brokers know their addresses here"),
    ("log.dirs", "use spec.disks"),
    ("log.dir", "use spec.disks"),
    ("num.network.threads", "use spec.threads.network"),
    ("num.io.threads", "use spec.threads.io"),
    ("num.replica.fetchers", "use spec.threads.replicaFetchers"),
    ("forebay.http.listener", "use --http-port"),
    ("forebay.ulimit.nofile", "use spec.ulimits.nofile"),
    ("forebay.cluster.id", "it is chosen once"),
    ("controller.quorum.voters", "the first brokers vote"),
    ("controller.listener.names", "brokers listen to each other on --controller-port"),
    ("inter.broker.listener.name", "brokers fetch from each other where clients do"),
];

/// Brokers that one machine is asked to run.
const BROKERS_MAX: i32 = 9;

/// The documents found so far, each with its place.
#[derive(Debug, Default)]
pub(super) struct Found {
    clusters: Vec<(Place, Cluster)>,
    pub(super) topics: Vec<(Place, Topic)>,
    pub(super) profiles: Vec<(Place, ConsumerProfile)>,
}

impl Found {
    /// Takes a document that fits its schema.
    pub(super) fn take(&mut self, kind: &str, place: Place, value: Value) -> Result<(), String> {
        fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
            serde_json::from_value(value).map_err(|e| e.to_string())
        }
        match kind {
            "Cluster" => self.clusters.push((place, typed(value)?)),
            "Topic" => self.topics.push((place, typed(value)?)),
            _ => self.profiles.push((place, typed(value)?)),
        }
        Ok(())
    }

    /// The Cluster, when there is one.
    pub(super) fn cluster(&self) -> Option<Cluster> {
        self.clusters.first().map(|(_, cluster)| cluster.clone())
    }

    /// Everything wrong between the documents.
    pub(super) fn check(&self) -> Vec<ManifestError> {
        let mut errors = Vec::new();
        match self.clusters.as_slice() {
            [] => errors.push(ManifestError::Whole("no Cluster in the manifests: one is needed to run".to_owned())),
            [(place, cluster)] => {
                check_cluster(place, cluster, &mut errors);
                self.check_belonging(cluster, &mut errors);
            }
            [_, others @ ..] => {
                let again = others.iter().map(|(place, _)| {
                    field(place, "kind", "a second Cluster: one `forebay up` runs one; use another --data and --port")
                });
                errors.extend(again);
            }
        }
        let topics = self.topics.iter().map(|(place, topic)| (place, topic_name(topic)));
        twice(topics, "spec.topicName", &mut errors);
        let profiles = self.profiles.iter().map(|(p, profile)| (p, profile.metadata.name.clone().unwrap_or_default()));
        twice(profiles, "metadata.name", &mut errors);
        errors
    }

    fn check_belonging(&self, cluster: &Cluster, errors: &mut Vec<ManifestError>) {
        for (place, topic) in &self.topics {
            check_reference(place, &topic.spec.cluster_ref, cluster, errors);
            if let Some(factor) = topic.spec.replication_factor.filter(|factor| *factor > cluster.spec.replicas) {
                let problem = format!("{factor} replicas on {} brokers", cluster.spec.replicas);
                errors.push(field(place, "spec.replicationFactor", &problem));
            }
            for (name, value) in &topic.spec.config {
                if let Err(error) = validate_topic(name, &value.to_string()) {
                    errors.push(field(place, &format!("spec.config.{name}"), &error.to_string()));
                }
            }
        }
        for (place, profile) in &self.profiles {
            check_reference(place, &profile.spec.cluster_ref, cluster, errors);
        }
    }
}

/// The name of a Topic in Kafka.
pub(crate) fn topic_name(topic: &Topic) -> String {
    topic.spec.topic_name.clone().or_else(|| topic.metadata.name.clone()).unwrap_or_default()
}

fn field(place: &Place, field: &str, problem: &str) -> ManifestError {
    ManifestError::Field { place: place.clone(), field: field.to_owned(), problem: problem.to_owned() }
}

fn check_cluster(place: &Place, cluster: &Cluster, errors: &mut Vec<ManifestError>) {
    if let Err(problem) = check_broker_count(cluster.spec.replicas) {
        errors.push(field(place, "spec.replicas", &problem));
    } else if cluster.spec.replicas > BROKERS_MAX {
        let problem = format!("{} brokers on one machine; at most {BROKERS_MAX}", cluster.spec.replicas);
        errors.push(field(place, "spec.replicas", &problem));
    }
    for (name, value) in &cluster.spec.config {
        let at = format!("spec.config.{name}");
        if let Some((_, instead)) = OWNED.iter().find(|(owned, _)| owned == name) {
            errors.push(field(place, &at, &format!("is not set here: {instead}")));
        } else if let Err(error) = validate_broker(name, &value.to_string()) {
            errors.push(field(place, &at, &error.to_string()));
        }
    }
    for (number, disk) in cluster.spec.disks.iter().enumerate() {
        let size = &disk.size.0;
        if quantity(size).is_none_or(|size| size <= 0) {
            let problem = format!("{size:?} is no size: must be a positive quantity, for example 100Gi");
            errors.push(field(place, &format!("spec.disks[{number}].size"), &problem));
        }
    }
    let resources = cluster.spec.resources.iter();
    for (kind, quantities) in resources.flat_map(|all| [("limits", &all.limits), ("requests", &all.requests)]) {
        for (resource, given) in quantities.iter().flatten() {
            if quantity(&given.0).is_none_or(|given| given < 0) {
                let problem = format!("{:?} is no amount: must be a quantity such as 500m or 4Gi", given.0);
                errors.push(field(place, &format!("spec.resources.{kind}.{resource}"), &problem));
            }
        }
    }
    if let Some(problem) = cluster.spec.page_cache_problem() {
        errors.push(field(place, "spec.pageCache.reserve", &problem));
    }
    let mut names: Vec<&str> = cluster.spec.disks.iter().map(|disk| disk.name.as_str()).collect();
    names.sort_unstable();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        errors.push(field(place, "spec.disks", &format!("disk {} is there twice", pair[0])));
    }
}

fn check_reference(place: &Place, reference: &ClusterRef, cluster: &Cluster, errors: &mut Vec<ManifestError>) {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    if reference.name != name {
        let near =
            nearest(&reference.name, [name].into_iter()).map_or(String::new(), |n| format!("; did you mean {n:?}?"));
        let problem = format!("{:?} is not the Cluster of these manifests, {name:?}{near}", reference.name);
        errors.push(field(place, "spec.clusterRef.name", &problem));
    }
}

fn twice<'a>(names: impl Iterator<Item = (&'a Place, String)>, at: &str, errors: &mut Vec<ManifestError>) {
    let mut seen = BTreeMap::<String, &Place>::new();
    for (place, name) in names {
        if let Some(first) = seen.get(&name) {
            errors.push(field(place, at, &format!("{name:?} is already declared in {first}")));
        } else {
            seen.insert(name, place);
        }
    }
}
