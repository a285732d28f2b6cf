//! What the watches have seen of our own kinds, over all watched namespaces. Reads from here cost no request.
//!
//! What must always hold: nothing is given up or deleted because a store does not have an object: a store may lag, so
//! such decisions ask the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_crds::{Cluster, ConditionType, ConsumerProfile, Reason, Topic};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};

use crate::metrics::{Kind, Metrics};

/// An object that may not decode: one bad object must not stop the others.
pub(crate) type Guarded<K> = DeserializeGuard<K>;

/// A Cluster by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClusterKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The Cluster that a `clusterRef` of an object in `namespace` names.
pub(crate) fn cluster_key(reference: &forebay_crds::ClusterRef, namespace: &str) -> ClusterKey {
    let namespace = reference.namespace.as_deref().unwrap_or(namespace);
    ClusterKey { namespace: namespace.to_owned(), name: reference.name.clone() }
}

/// The topic's name in Kafka.
pub(crate) fn topic_name(topic: &Topic) -> String {
    topic.spec.topic_name.clone().unwrap_or_else(|| topic.name_any())
}

/// One store per watched namespace, or one for all.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    pub(crate) clusters: Vec<Store<Guarded<Cluster>>>,
    pub(crate) topics: Vec<Store<Guarded<Topic>>>,
    pub(crate) profiles: Vec<Store<Guarded<ConsumerProfile>>>,
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores").field("namespaces", &self.clusters.len()).finish_non_exhaustive()
    }
}

impl Stores {
    pub(crate) fn cluster(&self, key: &ClusterKey) -> Option<Cluster> {
        let reference = ObjectRef::new(&key.name).within(&key.namespace);
        self.clusters.iter().find_map(|store| store.get(&reference)).and_then(|guarded| guarded.0.clone().ok())
    }

    /// All Topics that decode.
    pub(crate) fn topics(&self) -> Vec<Arc<Guarded<Topic>>> {
        self.topics.iter().flat_map(Store::state).filter(|guarded| guarded.0.is_ok()).collect()
    }

    /// The topics that ConsumerProfiles of a Cluster name.
    pub(crate) fn names_in_profiles(&self, key: &ClusterKey) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for guarded in self.profiles.iter().flat_map(Store::state) {
            if let Ok(profile) = &guarded.0
                && cluster_key(&profile.spec.cluster_ref, &profile.namespace().unwrap_or_default()) == *key
            {
                names.extend(profile.spec.topics.iter().cloned());
            }
        }
        names
    }

    /// Sets the metrics that are counts of what is watched.
    pub(crate) fn report(&self, metrics: &Metrics) {
        let count = |lengths: Vec<usize>| u32::try_from(lengths.into_iter().sum::<usize>()).unwrap_or(u32::MAX);
        metrics.set_objects(Kind::Cluster, count(self.clusters.iter().map(Store::len).collect()));
        metrics.set_objects(Kind::Topic, count(self.topics.iter().map(Store::len).collect()));
        metrics.set_objects(Kind::ConsumerProfile, count(self.profiles.iter().map(Store::len).collect()));
        metrics.set_not_ready(
            Kind::Cluster,
            not_ready(&self.clusters, |cluster| cluster.status.as_ref().map(|status| &status.conditions)),
        );
        metrics.set_not_ready(
            Kind::Topic,
            not_ready(&self.topics, |topic| topic.status.as_ref().map(|status| &status.conditions)),
        );
        metrics.set_not_ready(
            Kind::ConsumerProfile,
            not_ready(&self.profiles, |profile| profile.status.as_ref().map(|status| &status.conditions)),
        );
        let tuning = self.clusters.iter().flat_map(Store::state).filter_map(|guarded| {
            let cluster = guarded.0.as_ref().ok()?;
            let conditions = &cluster.status.as_ref()?.conditions;
            let condition = conditions.iter().find(|c| c.type_ == ConditionType::TuningInForce.as_str())?;
            let holds = match condition.status.as_str() {
                "True" => true,
                "False" => false,
                _ => return None,
            };
            Some((cluster.namespace().unwrap_or_default(), cluster.name_any(), holds))
        });
        metrics.set_tuning_in_force(&tuning.collect::<Vec<_>>());
        let wanted = self.clusters.iter().flat_map(Store::state).filter_map(|guarded| {
            let cluster = guarded.0.as_ref().ok().filter(|cluster| cluster.metadata.deletion_timestamp.is_none())?;
            Some((cluster.namespace().unwrap_or_default(), cluster.name_any(), cluster.spec.replicas))
        });
        metrics.set_brokers_wanted(&wanted.collect::<Vec<_>>());
    }
}

/// Objects that are not Ready, those that do not decode among them; one that is paused was wanted so.
fn not_ready<K>(stores: &[Store<Guarded<K>>], conditions: impl Fn(&K) -> Option<&Vec<Condition>>) -> u32
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    let is_ready = |guarded: &Guarded<K>| {
        let Ok(object) = &guarded.0 else { return false };
        let ready = conditions(object).into_iter().flatten().find(|c| c.type_ == ConditionType::Ready.as_str());
        ready.is_some_and(|ready| ready.status == "True" || ready.reason == Reason::Paused.as_str())
    };
    let count = stores.iter().flat_map(Store::state).filter(|guarded| !is_ready(guarded)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}
