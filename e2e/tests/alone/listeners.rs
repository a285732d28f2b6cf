//! A broker that comes back on another node is reached there by clients outside of Kubernetes.

use anyhow::{Result, ensure};
use forebay_crds::Cluster;
use forebay_crds::Topic;
use forebay_e2e::kafka::{lines, sorted};
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as KubePod};
use kube::ResourceExt;
use kube::api::DeleteParams;

use super::brokers::another_serves;

const MANIFESTS: &str = include_str!("../../../examples/listeners.yaml");
const CLUSTER: &str = "outside";
const TOPIC: &str = "arrivals";
const PARTITIONS: i32 = 6;
const MOVED: &str = "outside-broker-2";

#[tokio::test]
async fn clients_outside_reach_a_broker_on_another_node() -> Result<()> {
    tell("moved", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Cluster>(CLUSTER, 150).await?;
        story.expect_condition::<Cluster>(CLUSTER, "ListenersReady", "True", 60).await?;
        story.expect_ready::<Topic>(TOPIC, 60).await?;
        let client = story.outside(CLUSTER).await?;
        let mut produced = client.everywhere(story, TOPIC, PARTITIONS, 0).await?;
        let before = story.listener(CLUSTER).await?.brokers;
        let moved = moves_to_another_node(story).await;
        story.mend_nodes().await;
        moved?;
        story.expect_ready::<Cluster>(CLUSTER, 120).await?;
        story.expect_condition::<Cluster>(CLUSTER, "ListenersReady", "True", 60).await?;
        let client = story.outside(CLUSTER).await?;
        let after = story.listener(CLUSTER).await?.brokers;
        ensure!(after[2] != before[2] && after[..2] == before[..2], "before {before:?}, after {after:?}");
        produced.extend(client.everywhere(story, TOPIC, PARTITIONS, 1000).await?);
        let consumed = client.consume(TOPIC).await?;
        ensure!(
            lines(&consumed) == sorted(produced.clone()),
            "{} produced, {} consumed",
            produced.len(),
            consumed.len()
        );
        Ok(())
    })
    .await
}

/// It loses its disk and its place, and its node takes no pods.
async fn moves_to_another_node(story: &Story) -> Result<()> {
    let (pods, node) = (story.api::<KubePod>(), story.node_of(MOVED).await?);
    let old = pods.get(MOVED).await?.uid();
    story.step(&format!("{MOVED} loses its disk on {node}, where it may not come back"));
    story.cordon(&node, true).await?;
    let claims = story.api::<PersistentVolumeClaim>();
    claims.delete(&format!("data-{MOVED}"), &DeleteParams::default()).await?;
    pods.delete(MOVED, &DeleteParams::default().grace_period(0)).await?;
    another_serves(story, MOVED, old.as_deref()).await?;
    let now = story.node_of(MOVED).await?;
    ensure!(now != node, "it is on {node} again");
    Ok(())
}
