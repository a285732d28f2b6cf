//! All reads of a Topic's reconcile: its Cluster, the other Topics of the same name, the topic as brokers have it.

use forebay_crds::{Cluster, Topic};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Resource, ResourceExt};

use crate::context::Context;
use crate::kafka::TopicSeen;
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
    pub(crate) cluster: ClusterSeen<TopicSeen>,
    /// An older Topic that names the same topic: it owns the topic.
    pub(crate) owner: Option<String>,
    /// Only looked at while the Topic is being deleted.
    pub(crate) namespace_is_terminating: bool,
}

pub(crate) async fn observe(context: &Context, topic: &Topic) -> Result<Observed, ReconcileError> {
    let namespace = topic.namespace().unwrap_or_default();
    let key = cluster_key(&topic.spec.cluster_ref, &namespace);
    let name = topic_name(topic);
    let is_deleting = topic.metadata.deletion_timestamp.is_some();
    let cluster = match admitted(context, &key, &namespace, is_deleting).await? {
        ClusterSeen::Reached(_) => brokers(context, &key, &name).await,
        ClusterSeen::Missing => ClusterSeen::Missing,
        ClusterSeen::Deleting => ClusterSeen::Deleting,
        ClusterSeen::NotAllowed => ClusterSeen::NotAllowed,
        ClusterSeen::Unreachable(why) => ClusterSeen::Unreachable(why),
    };
    let others: Vec<_> = context.stores.topics_of(&key).collect();
    let others = others.iter().filter_map(|guarded| guarded.0.as_ref().ok());
    Ok(Observed {
        owner: older_owner(topic, &name, others),
        namespace_is_terminating: is_deleting && namespace_is_terminating(context, &namespace).await,
        cluster_key: key,
        topic_name: name,
        cluster,
    })
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

async fn brokers(context: &Context, key: &ClusterKey, topic: &str) -> ClusterSeen<TopicSeen> {
    let kafka = context.kafka.get(key, &context.args.bootstrap_of(&key.namespace, &key.name));
    let look = kafka.looks.at(&kafka.admin, topic, || context.stores.topic_names(key)).await;
    match look {
        Ok(look) => ClusterSeen::Reached(look.topic(topic)),
        Err(why) => ClusterSeen::Unreachable(why),
    }
}

/// The oldest Topic owns the topic; of two of one age, the one with the smaller uid.
fn older_owner<'a>(topic: &Topic, name: &str, others: impl Iterator<Item = &'a Topic>) -> Option<String> {
    let age = |topic: &Topic| (topic.creation_timestamp(), topic.uid());
    let rivals = others.filter(|other| topic_name(other) == name && other.uid() != topic.uid());
    let oldest = rivals.min_by_key(|other| age(other))?;
    (age(oldest) < age(topic)).then(|| format!("{}/{}", oldest.namespace().unwrap_or_default(), oldest.name_any()))
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
