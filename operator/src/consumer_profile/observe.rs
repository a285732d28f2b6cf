//! All reads of a ConsumerProfile's reconcile: its Cluster, its topics as brokers have them, its ConfigMap.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_crds::{Cluster, ConsumerProfile};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ApiResource;
use serde_json::Value;

use super::plan::config_map_name;
use crate::context::Context;
use crate::kafka::TopicSeen;
use crate::kube::apply;
use crate::reconcile::ReconcileError;
use crate::stores::{ClusterKey, cluster_key};
use crate::topic::{ClusterSeen, admitted};

/// What there is.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) cluster_key: ClusterKey,
    pub(crate) cluster: ClusterSeen<Brokers>,
    /// The live ConfigMap.
    pub(crate) config_map: Option<Value>,
}

/// What brokers and their Cluster say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Brokers {
    /// The brokers' own settings, as the Cluster states them.
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) topics: BTreeMap<String, Arc<TopicSeen>>,
}

pub(crate) async fn observe(context: &Context, profile: &ConsumerProfile) -> Result<Observed, ReconcileError> {
    let namespace = profile.namespace().unwrap_or_default();
    let key = cluster_key(&profile.spec.cluster_ref, &namespace);
    let cluster = match admitted(context, &key, &namespace, false).await? {
        ClusterSeen::Reached(cluster) => brokers(context, &key, &cluster, &profile.spec.topics).await,
        ClusterSeen::Missing => ClusterSeen::Missing,
        ClusterSeen::Deleting => ClusterSeen::Deleting,
        ClusterSeen::NotAllowed => ClusterSeen::NotAllowed,
        ClusterSeen::Unreachable(why) => ClusterSeen::Unreachable(why),
    };
    let resource = ApiResource::erase::<ConfigMap>(&());
    let config_map = apply::get(&context.client, &namespace, &resource, &config_map_name(&profile.name_any())).await?;
    Ok(Observed { cluster_key: key, cluster, config_map })
}

async fn brokers(context: &Context, key: &ClusterKey, cluster: &Cluster, topics: &[String]) -> ClusterSeen<Brokers> {
    let kafka = context.kafka.get(key, &context.args.bootstrap_of(&key.namespace, &key.name));
    let mut seen = BTreeMap::new();
    for topic in topics {
        match kafka.looks.at(&kafka.admin, topic).await {
            Ok(found) => drop(seen.insert(topic.clone(), found)),
            Err(why) => return ClusterSeen::Unreachable(why),
        }
    }
    let config = cluster.spec.config.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    ClusterSeen::Reached(Brokers { config, topics: seen })
}
