//! Nodes are drained, powered off and lost, under load.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_crds::Cluster;
use forebay_e2e::conditions::condition;
use forebay_e2e::nodes::{self, Evicted};
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod as KubePod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use super::brokers::{Brokers, CLUSTER, Operator, another_serves, claim, pod, two_serve_while};

#[tokio::test]
async fn a_node_is_drained_and_then_two_at_once() -> Result<()> {
    drained("drained", Operator::Lives).await
}

#[tokio::test]
async fn an_operator_killed_while_nodes_are_drained_goes_on() -> Result<()> {
    drained("drained-operator", Operator::IsKilled).await
}

async fn drained(name: &str, operator: Operator) -> Result<()> {
    tell(name, async |story| {
        let mut brokers = Brokers::begin(story, json!({}), &[1, 2], operator).await?;
        let told = async {
            one_node(&mut brokers).await?;
            two_nodes(&mut brokers).await
        };
        let told = told.await;
        story.mend_nodes().await;
        told?;
        brokers.end().await
    })
    .await
}

/// Its broker has its disk there: it waits until the node takes pods again.
async fn one_node(brokers: &mut Brokers<'_>) -> Result<()> {
    let (story, name) = (brokers.story, pod(1));
    let node = story.node_of(&name).await?;
    let old = story.api::<KubePod>().get(&name).await?.uid();
    two_serve_while(story, async {
        story.drain(&node, 120).await?;
        brokers.middle().await?;
        says_who_is_missing(story, &name).await
    })
    .await?;
    story.cordon(&node, false).await?;
    another_serves(story, &name, old.as_deref()).await?;
    brokers.healed("node drained").await
}

async fn two_nodes(brokers: &mut Brokers<'_>) -> Result<()> {
    let story = brokers.story;
    let (one, two) = (story.node_of(&pod(1)).await?, story.node_of(&pod(2)).await?);
    ensure!(one != two, "brokers 1 and 2 are both on {one}, though there are other nodes");
    let pods = story.api::<KubePod>();
    let old = [pods.get(&pod(1)).await?.uid(), pods.get(&pod(2)).await?.uid()];
    let drained = async |node: &str| {
        story.drain(node, 300).await?;
        // The other one has to wait as long as this one takes no pods.
        tokio::time::sleep(Duration::from_secs(10)).await;
        story.cordon(node, false).await
    };
    two_serve_while(story, async {
        tokio::try_join!(drained(&one), drained(&two), async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            brokers.middle().await
        })?;
        Ok(())
    })
    .await?;
    for (id, old) in [1, 2].into_iter().zip(&old) {
        another_serves(story, &pod(id), old.as_deref()).await?;
    }
    brokers.healed("two nodes drained at once").await
}

async fn says_who_is_missing(story: &Story, pod: &str) -> Result<()> {
    story
        .expect(CLUSTER, "the Cluster says which broker is missing", 150, |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.status == "False" && ready.message.contains(pod), "{ready:?}");
            Ok(())
        })
        .await
}

#[tokio::test]
async fn a_node_is_powered_off_and_comes_back() -> Result<()> {
    powered_off("power", Operator::Lives).await
}

#[tokio::test]
async fn an_operator_killed_while_a_node_is_off_goes_on() -> Result<()> {
    powered_off("power-operator", Operator::IsKilled).await
}

async fn powered_off(name: &str, operator: Operator) -> Result<()> {
    tell(name, async |story| {
        if !nodes::can_be_stopped(story) {
            return Ok(());
        }
        let mut brokers = Brokers::begin(story, json!({}), &[1], operator).await?;
        let node = story.node_of(&pod(1)).await?;
        story.stop_node(&node).await?;
        let told = without_its_node(&brokers).await;
        story.start_node(&node).await?;
        told?;
        brokers.healed("node powered off and back").await?;
        brokers.end().await
    })
    .await
}

async fn without_its_node(brokers: &Brokers<'_>) -> Result<()> {
    let story = brokers.story;
    says_who_is_missing(story, &pod(1)).await?;
    brokers.middle().await?;
    ensure!(story.evict(&pod(2)).await? == Evicted::NotNow, "no other broker may go meanwhile");
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
        let more = json!({"onNodeLost": "Replace"});
        let mut brokers = Brokers::begin(story, more, &[1], Operator::Lives).await?;
        let node = story.node_of(&pod(1)).await?;
        let claims = story.api::<PersistentVolumeClaim>();
        let uid = async |id: usize| anyhow::Ok(claims.get(&claim(id)).await?.uid());
        let (old, others) = (uid(1).await?, [uid(0).await?, uid(2).await?]);
        story.stop_node(&node).await?;
        let told = begins_anew(story, &node, old).await;
        story.start_node(&node).await?;
        told?;
        ensure!([uid(0).await?, uid(2).await?] == others, "the other brokers' claims are the same");
        brokers.healed("node lost for good, broker begun anew").await?;
        brokers.end().await
    })
    .await
}

/// The node is taken off the list, as whoever runs it would do when it does not come back.
async fn begins_anew(story: &Story, node: &str, old: Option<String>) -> Result<()> {
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
        .expect(&claim(1), "the broker gets another disk", 180, |claim: &PersistentVolumeClaim| {
            let phase = claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            ensure!(claim.uid() != old && phase == "Bound", "it is the old one or {phase}");
            Ok(())
        })
        .await?;
    another_serves(story, &pod(1), None).await?;
    let now = story.node_of(&pod(1)).await?;
    ensure!(now != node, "it is on {now}");
    Ok(())
}
