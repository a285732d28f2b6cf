//! What the stories of this folder share: three brokers under load, and how they are looked at.

use anyhow::{Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::load::{Load, TOPIC};
use forebay_e2e::{OPERATOR_NAMESPACE, Story};
use k8s_openapi::api::core::v1::Pod as KubePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams};

pub(crate) const CLUSTER: &str = "c";

/// Three brokers, and the topic that load is put on; `more` is added to the Cluster's spec.
pub(crate) fn manifests(more: &str) -> String {
    format!(
        "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {{name: {CLUSTER}}}
spec:
  replicas: 3
  disks: [{{name: data, size: 1Gi}}]
  {more}
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {{name: {TOPIC}}}
spec: {{clusterRef: {{name: {CLUSTER}}}, partitions: 4, replicationFactor: 3}}
"
    )
}

/// Applies them, waits, and puts load on, from a node that is not `away_from`.
pub(crate) async fn begin<'a>(story: &'a Story, more: &str, away_from: Option<&str>) -> Result<Load<'a>> {
    story.apply(&manifests(more)).await?;
    story.expect_ready::<Cluster>(CLUSTER, 150).await?;
    story.expect_ready::<Topic>(TOPIC, 60).await?;
    let node = match away_from {
        Some(pod) => Some(story.node_of(pod).await?),
        None => None,
    };
    story.load(CLUSTER, node.as_deref()).await
}

/// Every broker serves, and every replica is in sync.
pub(crate) async fn healed(story: &Story, limit_seconds: u64) -> Result<()> {
    story.expect_ready::<Cluster>(CLUSTER, limit_seconds).await?;
    let kafka = story.kafka(CLUSTER);
    story
        .eventually("every replica is in sync", 120, async || {
            let seen = kafka.partitions(TOPIC).await?;
            ensure!(seen.len() == 4 && seen.iter().all(|one| one.replicas == 3 && one.in_sync == 3), "{seen:?}");
            Ok(())
        })
        .await
}

/// The budget lets one broker go.
pub(crate) async fn one_may_go(story: &Story) -> Result<()> {
    story
        .expect("c-broker", "the budget lets one broker go", 60, |budget: &PodDisruptionBudget| {
            let allowed = budget.status.as_ref().map(|status| status.disruptions_allowed);
            ensure!(allowed == Some(1), "it allows {allowed:?}");
            Ok(())
        })
        .await
}

/// The operators that run have met nothing that they call an error.
pub(crate) async fn operator_is_content(story: &Story) -> Result<()> {
    let pods: Api<KubePod> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    for pod in pods.list(&ListParams::default()).await?.items {
        let log = pods.logs(&pod.name_any(), &LogParams::default()).await?;
        let error = log.lines().find(|line| line.contains(" ERROR "));
        ensure!(error.is_none(), "{}: {}", pod.name_any(), error.unwrap_or_default());
    }
    Ok(())
}
