//! All reads of a Topic's reconcile: its Cluster, the other Topics of the same name, the topic as brokers have it.

use std::sync::Arc;

use forebay_crds::{Cluster, Topic};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Resource, ResourceExt};

use super::placement::{Host, Placed};
use crate::context::Context;
use crate::kafka::{KafkaCluster, TopicSeen};
use crate::reconcile::ReconcileError;
use crate::stores::{ClusterKey, cluster_key, topic_name};

/// The Cluster that a `clusterRef` names, and whether its brokers can be asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClusterSeen<T> {
    /// There is none.
    Missing,
    /// It is on its way out.
    Deleting,
    /// It does not admit objects of this namespace.
    NotAllowed,
    /// Its brokers can't be reached.
    Unreachable(String),
    /// What its brokers say.
    Reached(T),
}

/// What there is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observed {
    pub(crate) cluster_key: ClusterKey,
    pub(crate) topic_name: String,
    pub(crate) cluster: ClusterSeen<Arc<TopicSeen>>,
    /// An older Topic that names the same topic: it owns the topic.
    pub(crate) owner: Option<String>,
    /// Where replicas are and could be; only looked at when there are to be more or fewer.
    pub(crate) placement: Option<Result<Placement, String>>,
    /// Only looked at while the Topic is being deleted.
    pub(crate) namespace_is_terminating: bool,
}

/// A topic's replicas and the brokers that could have some.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placement {
    pub(crate) partitions: Vec<Placed>,
    pub(crate) hosts: Vec<Host>,
}

pub(crate) async fn observe(context: &Context, topic: &Topic) -> Result<Observed, ReconcileError> {
    let namespace = topic.namespace().unwrap_or_default();
    let key = cluster_key(&topic.spec.cluster_ref, &namespace);
    let name = topic_name(topic);
    let is_deleting = topic.metadata.deletion_timestamp.is_some();
    let index = context.owners.index(&context.stores, topic.uid().as_deref());
    let (mut owner, mut placement) = (None, None);
    let cluster = match admitted(context, &key, &namespace, is_deleting).await? {
        ClusterSeen::Reached(cluster) => {
            owner = index.older(&key, topic, |namespace| cluster.spec.admits(&key.namespace, namespace));
            let kafka = kafka(context, &key);
            let seen = kafka.looks.at(&kafka.admin, &name).await;
            if let Ok(seen) = &seen
                && wants_other_replicas(topic, seen)
            {
                placement = Some(place(&kafka, &name).await);
            }
            seen.map_or_else(ClusterSeen::Unreachable, ClusterSeen::Reached)
        }
        ClusterSeen::Missing => ClusterSeen::Missing,
        ClusterSeen::Deleting => ClusterSeen::Deleting,
        ClusterSeen::NotAllowed => ClusterSeen::NotAllowed,
        ClusterSeen::Unreachable(why) => ClusterSeen::Unreachable(why),
    };
    Ok(Observed {
        owner,
        placement,
        namespace_is_terminating: is_deleting && namespace_is_terminating(context, &namespace).await,
        cluster_key: key,
        topic_name: name,
        cluster,
    })
}

/// Tells the sweep whether the topic, as it was seen, needs nothing.
pub(crate) fn settle(context: &Context, observed: &Observed, needs_nothing: bool) {
    let seen = match &observed.cluster {
        ClusterSeen::Reached(seen) => needs_nothing.then_some(seen),
        ClusterSeen::Unreachable(_) => None,
        ClusterSeen::Missing | ClusterSeen::Deleting | ClusterSeen::NotAllowed => return,
    };
    kafka(context, &observed.cluster_key).looks.settled(&observed.topic_name, seen);
}

fn kafka(context: &Context, key: &ClusterKey) -> Arc<KafkaCluster> {
    context.kafka.get(key, &context.args.bootstrap_of(&key.namespace, &key.name))
}

fn wants_other_replicas(topic: &Topic, seen: &TopicSeen) -> bool {
    let TopicSeen::Present(state) = seen else { return false };
    topic.metadata.deletion_timestamp.is_none()
        && topic.spec.replication_factor.is_some_and(|factor| !state.replication.is_to_be(factor))
}

async fn place(kafka: &KafkaCluster, name: &str) -> Result<Placement, String> {
    let mut described = kafka.admin.describe_topics(&[name]).await.map_err(|error| error.to_string())?;
    let topic = described.remove(name).ok_or("brokers did not describe it")?.map_err(|refused| refused.to_string())?;
    let cluster = kafka.admin.describe_cluster().await.map_err(|error| error.to_string())?;
    let ids = |ids: Vec<forebay_broker_client::types::BrokerId>| ids.into_iter().map(|id| id.0).collect();
    let placed = topic.partitions.into_iter().map(|partition| Placed {
        index: partition.index,
        replicas: ids(partition.replicas),
        in_sync: ids(partition.isr),
    });
    let hosts = cluster.brokers.into_iter().map(|broker| Host { id: broker.id.0, rack: broker.rack });
    Ok(Placement { partitions: placed.collect(), hosts: hosts.collect() })
}

/// The Cluster, without asking its brokers. A store may lag: that a Cluster is gone is asked of the API server, and so
/// is everything that a deletion is decided on.
pub(crate) async fn admitted(
    context: &Context,
    key: &ClusterKey,
    namespace: &str,
    ask_api: bool,
) -> Result<ClusterSeen<Box<Cluster>>, ReconcileError> {
    let stored = if ask_api { None } else { context.stores.cluster(key) };
    let cluster = match stored {
        Some(cluster) => Some(cluster),
        None => {
            let api: Api<Cluster> = Api::namespaced(context.client.clone(), &key.namespace);
            api.get_opt(&key.name).await.map_err(ReconcileError::kube(format!("get Cluster {key}")))?
        }
    };
    Ok(match cluster {
        None => {
            context.kafka.forget(key);
            ClusterSeen::Missing
        }
        Some(cluster) if cluster.meta().deletion_timestamp.is_some() => ClusterSeen::Deleting,
        Some(cluster) if !cluster.spec.admits(&key.namespace, namespace) => ClusterSeen::NotAllowed,
        Some(cluster) => ClusterSeen::Reached(Box::new(cluster)),
    })
}

/// False when it can't be told: then the deletion goes its ordinary way.
async fn namespace_is_terminating(context: &Context, namespace: &str) -> bool {
    let api: Api<Namespace> = Api::all(context.client.clone());
    match api.get_opt(namespace).await {
        Ok(Some(namespace)) => namespace.metadata.deletion_timestamp.is_some(),
        Ok(None) => true,
        Err(error) => {
            tracing::debug!(%error, namespace, "namespace can't be read");
            false
        }
    }
}
