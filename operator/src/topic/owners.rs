//! Which Topics name which topic of which Cluster: looked up for each reconcile, made anew from the stores when it may be
//! out of date. Without it, N reconciles would walk N Topics each.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_crds::Topic;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::stores::{ClusterKey, Stores, cluster_key, topic_name};

/// A Topic that is gone may be an owner for so long: the other one is told of a conflict that is none, and tried again.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// A Topic that names a topic. The oldest owns it; of two of one age, the one with the smaller uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    created: Option<Timestamp>,
    uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Owner {
    fn of(topic: &Topic) -> Self {
        Self {
            created: topic.creation_timestamp().map(|time| time.0),
            uid: topic.uid().unwrap_or_default(),
            namespace: topic.namespace().unwrap_or_default(),
            name: topic.name_any(),
        }
    }
}

/// All Topics, by Cluster and topic.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_cluster: HashMap<ClusterKey, HashMap<String, Vec<Owner>>>,
    uids: HashSet<String>,
}

impl Index {
    pub(crate) fn build<'a>(topics: impl Iterator<Item = &'a Topic>) -> Self {
        let mut index = Self::default();
        for topic in topics {
            let key = cluster_key(&topic.spec.cluster_ref, &topic.namespace().unwrap_or_default());
            let owner = Owner::of(topic);
            index.uids.insert(owner.uid.clone());
            index.by_cluster.entry(key).or_default().entry(topic_name(topic)).or_default().push(owner);
        }
        index
    }

    /// The Clusters that Topics name.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &ClusterKey> {
        self.by_cluster.keys()
    }

    /// The topics of a Cluster.
    pub(crate) fn names(&self, key: &ClusterKey) -> BTreeSet<String> {
        self.by_cluster.get(key).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// The Topics that name a topic.
    pub(crate) fn owners(&self, key: &ClusterKey, name: &str) -> &[Owner] {
        self.by_cluster.get(key).and_then(|topics| topics.get(name)).map_or(&[], Vec::as_slice)
    }

    /// The Topic that owns the topic instead of this one. One in a namespace that the Cluster does not admit owns nothing.
    pub(crate) fn older(&self, key: &ClusterKey, topic: &Topic, admits: impl Fn(&str) -> bool) -> Option<String> {
        let own = Owner::of(topic);
        let rivals = self.owners(key, &topic_name(topic)).iter();
        let oldest = rivals.filter(|other| other.uid != own.uid && admits(&other.namespace)).min()?;
        (*oldest < own).then(|| format!("{}/{}", oldest.namespace, oldest.name))
    }
}

/// The index as it was last made.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    newest: Mutex<Option<(Instant, Arc<Index>)>>,
}

impl Owners {
    /// An index in which the Topic with this uid is. A Topic that came later than another finds that one in it, because the
    /// watch brought the older first.
    pub(crate) fn index(&self, stores: &Stores, uid: Option<&str>) -> Arc<Index> {
        let mut newest = self.newest.lock();
        if let Some((built, index)) = newest.as_ref()
            && built.elapsed() < GOOD_FOR
            && uid.is_none_or(|uid| index.uids.contains(uid))
        {
            return Arc::clone(index);
        }
        let topics = stores.topics();
        let index = Arc::new(Index::build(topics.iter().filter_map(|guarded| guarded.0.as_ref().ok())));
        *newest = Some((Instant::now(), Arc::clone(&index)));
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn topic(namespace: &str, name: &str, created: &str) -> Topic {
        let metadata = json!({"name": name, "namespace": namespace, "uid": format!("{namespace}/{name}"), "creationTimestamp": created});
        serde_json::from_value(json!({
            "apiVersion": "forebay.dev/v1alpha1", "kind": "Topic", "metadata": metadata,
            "spec": {"clusterRef": {"name": "c", "namespace": "kafka"}, "topicName": "orders", "partitions": 1},
        }))
        .unwrap()
    }

    #[test]
    fn the_oldest_owns_the_topic_unless_its_namespace_may_not() {
        let topics = [
            topic("a", "late", "2026-01-01T00:00:02Z"),
            topic("b", "first", "2026-01-01T00:00:00Z"),
            topic("c", "next", "2026-01-01T00:00:01Z"),
        ];
        let index = Index::build(topics.iter());
        let key = ClusterKey { namespace: "kafka".into(), name: "c".into() };
        let owner_of = |topic, denied: &str| index.older(&key, topic, |namespace| namespace != denied);
        assert_eq!(owner_of(&topics[0], "").as_deref(), Some("b/first"));
        assert_eq!(owner_of(&topics[1], ""), None);
        assert_eq!(owner_of(&topics[0], "b").as_deref(), Some("c/next"), "what may not be there owns nothing");
        assert_eq!(owner_of(&topics[2], "b"), None);
        assert_eq!(index.names(&key), BTreeSet::from(["orders".to_owned()]));
    }

    #[test]
    fn of_two_of_one_age_one_owns_the_topic() {
        let topics = [topic("a", "x", "2026-01-01T00:00:00Z"), topic("b", "x", "2026-01-01T00:00:00Z")];
        let index = Index::build(topics.iter());
        let key = ClusterKey { namespace: "kafka".into(), name: "c".into() };
        assert_eq!(topics.each_ref().map(|topic| index.older(&key, topic, |_| true)), [None, Some("a/x".to_owned())]);
    }
}
