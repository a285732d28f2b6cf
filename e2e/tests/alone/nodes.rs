//! Nodes are drained, powered off and lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_crds::Cluster;
use forebay_e2e::conditions::condition;
use forebay_e2e::nodes::{self, Evicted};
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod as KubePod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};

use super::brokers::{CLUSTER, begin, healed, one_may_go, operator_is_content};

#[tokio::test]
async fn two_drains_at_once_take_one_broker_after_the_other() -> Result<()> {
    tell("drained", async |story| {
        let told = drained(story).await;
        story.mend_nodes().await;
        told
    })
    .await
}

async fn drained(story: &Story) -> Result<()> {
    let load = begin(story, "", None).await?;
    healed(story, 60).await?;
    let (one, two) = (story.node_of("c-broker-1").await?, story.node_of("c-broker-2").await?);
    ensure!(one != two, "brokers 1 and 2 are both on {one}, though there are other nodes");
    story.cordon(&one, true).await?;
    story.cordon(&two, true).await?;
    one_may_go(story).await?;
    let both = tokio::join!(story.evict("c-broker-1"), story.evict("c-broker-2"));
    let (first, second) = match (both.0?, both.1?) {
        (Evicted::Yes, Evicted::NotNow) => ((one, "c-broker-1"), (two, "c-broker-2")),
        (Evicted::NotNow, Evicted::Yes) => ((two, "c-broker-2"), (one, "c-broker-1")),
        other => anyhow::bail!("exactly one of two evictions is let through, not {other:?}"),
    };
    story.step(&format!("{} is drained, {} has to wait", first.1, second.1));
    for _ in 0..20 {
        ensure!(story.evict(second.1).await? == Evicted::NotNow, "both are down");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    story
        .expect(CLUSTER, "the Cluster says which broker can't be placed", 60, |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.status == "False" && ready.message.contains(first.1), "{ready:?}");
            Ok(())
        })
        .await?;
    story.cordon(&first.0, false).await?;
    story
        .eventually("then the second drain goes on", 120, async || {
            ensure!(story.evict(second.1).await? == Evicted::Yes, "the budget still forbids it");
            Ok(())
        })
        .await?;
    story.cordon(&second.0, false).await?;
    healed(story, 120).await?;
    load.end().await?;
    operator_is_content(story).await
}

#[tokio::test]
async fn a_node_is_powered_off_and_comes_back() -> Result<()> {
    tell("power", async |story| {
        if !nodes::can_be_stopped(story) {
            return Ok(());
        }
        let load = begin(story, "", Some("c-broker-1")).await?;
        healed(story, 60).await?;
        let node = story.node_of("c-broker-1").await?;
        story.stop_node(&node).await?;
        let told = without_its_node(story).await;
        story.start_node(&node).await?;
        told?;
        healed(story, 180).await?;
        load.end().await?;
        operator_is_content(story).await
    })
    .await
}

async fn without_its_node(story: &Story) -> Result<()> {
    story
        .expect(CLUSTER, "the Cluster says that a broker is missing", 150, |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.status == "False" && ready.message.contains("c-broker-1"), "{ready:?}");
            Ok(())
        })
        .await?;
    ensure!(story.evict("c-broker-2").await? == Evicted::NotNow, "no other broker may go meanwhile");
    // Long enough that its pods are evicted.
    tokio::time::sleep(Duration::from_secs(45)).await;
    Ok(())
}

#[tokio::test]
async fn a_broker_whose_node_is_lost_begins_anew_elsewhere() -> Result<()> {
    tell("lost", async |story| {
        if !nodes::can_be_stopped(story) {
            return Ok(());
        }
        let load = begin(story, "onNodeLost: Replace", Some("c-broker-1")).await?;
        healed(story, 60).await?;
        let node = story.node_of("c-broker-1").await?;
        let claims = story.api::<PersistentVolumeClaim>();
        let old = claims.get("data-c-broker-1").await?.uid();
        let others = (claims.get("data-c-broker-0").await?.uid(), claims.get("data-c-broker-2").await?.uid());
        story.stop_node(&node).await?;
        let told = replaced(story, &node, old).await;
        story.start_node(&node).await?;
        told?;
        let now = (claims.get("data-c-broker-0").await?.uid(), claims.get("data-c-broker-2").await?.uid());
        ensure!(now == others, "the other brokers' claims are the same");
        healed(story, 120).await?;
        load.end().await?;
        operator_is_content(story).await
    })
    .await
}

/// The node is taken off the list, as whoever runs it would do when it does not come back.
async fn replaced(story: &Story, node: &str, old: Option<String>) -> Result<()> {
    let nodes: Api<Node> = Api::all(story.client.clone());
    nodes.delete(node, &DeleteParams::default()).await.context("take the node off the list")?;
    story
        .expect(CLUSTER, "the Cluster says that the disk's node is gone", 180, |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.reason == "NodeLost" && ready.message.contains(node), "{ready:?}");
            Ok(())
        })
        .await?;
    story
        .expect("data-c-broker-1", "the broker gets another disk", 180, |claim: &PersistentVolumeClaim| {
            let phase = claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            ensure!(claim.uid() != old && phase == "Bound", "it is the old one or {phase}");
            Ok(())
        })
        .await?;
    story
        .expect("c-broker-1", "and is on another node", 60, |pod: &KubePod| {
            let now = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            ensure!(now.as_deref().is_some_and(|now| now != node), "it is on {now:?}");
            Ok(())
        })
        .await?;
    healed(story, 180).await
}
