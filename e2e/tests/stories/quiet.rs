//! A converged operator goes quiet: nothing that it looks after is written again, however often it looks.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use forebay_e2e::{Story, tell};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Resource, ResourceExt};

const QUICKSTART: &str = include_str!("../../../examples/quickstart.yaml");
/// Longer than the operator's resync interval: it looks at everything again at least once.
const WATCHED: Duration = Duration::from_secs(45);

#[tokio::test]
async fn a_converged_operator_writes_nothing() -> Result<()> {
    tell("quiet", async |story| {
        story.apply(QUICKSTART).await?;
        story.expect_ready::<Cluster>("quickstart", 90).await?;
        story.expect_ready::<Topic>("orders", 30).await?;
        story.expect_ready::<ConsumerProfile>("billing", 30).await?;
        // What Kubernetes itself writes after a start (endpoints, the budget's counts) settles.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = versions(story).await?;
        tokio::time::sleep(WATCHED).await;
        let after = versions(story).await?;
        ensure!(before.len() >= 8, "the Cluster's children are there: {before:?}");
        ensure!(before == after, "written again although converged: {before:?}, then {after:?}");
        story.step(&format!("{} objects were not written for {} s", before.len(), WATCHED.as_secs()));
        Ok(())
    })
    .await
}

/// The version of every object that the operator writes.
async fn versions(story: &Story) -> Result<BTreeMap<String, String>> {
    let mut versions = BTreeMap::new();
    versions.extend(versions_of::<Cluster>(story).await?);
    versions.extend(versions_of::<Topic>(story).await?);
    versions.extend(versions_of::<ConsumerProfile>(story).await?);
    versions.extend(versions_of::<StatefulSet>(story).await?);
    versions.extend(versions_of::<Service>(story).await?);
    versions.extend(versions_of::<ConfigMap>(story).await?);
    versions.extend(versions_of::<PodDisruptionBudget>(story).await?);
    Ok(versions)
}

async fn versions_of<K>(story: &Story) -> Result<Vec<(String, String)>>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let objects = story.api::<K>().list(&ListParams::default()).await?.items;
    let version = |object: &K| {
        let name = format!("{}/{}", K::kind(&()), object.name_any());
        (name, object.resource_version().unwrap_or_default())
    };
    Ok(objects.iter().map(version).collect())
}
