//! The operator is killed and upgraded in the middle of what it does, and a namespace goes with all that is in it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::conditions::condition;
use forebay_e2e::helm::helm;
use forebay_e2e::load::TOPIC;
use forebay_e2e::{OPERATOR_NAMESPACE, Story, tell};
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use super::brokers::{CLUSTER, begin, healed, operator_is_content};

#[tokio::test]
async fn an_operator_killed_in_the_middle_of_its_work_goes_on_with_it() -> Result<()> {
    tell("operator", async |story| {
        let load = begin(story, "moves: {toNewBrokers: true}", None).await?;
        healed(story, 60).await?;

        story.step("a roll");
        let old = uids(story).await?;
        story.merge::<Cluster>(CLUSTER, json!({"spec": {"config": {"num.recovery.threads.per.data.dir": 3}}})).await?;
        replaced(story, &old, 1).await?;
        kill_operator(story).await?;
        replaced(story, &old, 3).await?;
        healed(story, 120).await?;

        story.step("two brokers more, and their share of the partitions");
        story.merge::<Cluster>(CLUSTER, json!({"spec": {"replicas": 5}})).await?;
        progresses(story, "Rebalancing").await?;
        kill_operator(story).await?;
        at_rest(story).await?;
        let kafka = story.kafka(CLUSTER);
        let leaders: BTreeSet<i64> = kafka.partitions(TOPIC).await?.iter().map(|one| one.leader).collect();
        let with_replicas = kafka.brokers_of(TOPIC).await?;
        ensure!(with_replicas.len() == 5, "the new brokers have their share: {with_replicas:?}, led by {leaders:?}");

        story.step("two brokers fewer");
        story.merge::<Cluster>(CLUSTER, json!({"spec": {"replicas": 3}})).await?;
        progresses(story, "ScalingDown").await?;
        kill_operator(story).await?;
        story.expect_gone::<KubePod>("c-broker-3", 240).await?;
        story.expect_gone::<KubePod>("c-broker-4", 60).await?;
        at_rest(story).await?;
        healed(story, 60).await?;

        story.step("a roll, in which the operator is upgraded");
        let old = uids(story).await?;
        story.merge::<Cluster>(CLUSTER, json!({"spec": {"threads": {"network": 2, "io": 5}}})).await?;
        replaced(story, &old, 1).await?;
        helm(&[
            "upgrade",
            "forebay",
            "charts/forebay",
            "--reuse-values",
            "--set",
            "podAnnotations.upgraded=yes",
            "--wait",
        ])
        .await?;
        replaced(story, &old, 3).await?;
        healed(story, 120).await?;
        load.end().await?;
        operator_is_content(story).await
    })
    .await
}

#[tokio::test]
async fn a_namespace_is_deleted_under_load() -> Result<()> {
    tell("deleted", async |story| {
        let load = begin(story, "", None).await?;
        healed(story, 60).await?;
        load.end().await?;
        let _cut_off = story.load(CLUSTER, None).await?;
        // `tell` deletes the namespace now, and fails when anything holds it.
        story.expect_ready::<Topic>(TOPIC, 10).await
    })
    .await
}

async fn uids(story: &Story) -> Result<Vec<String>> {
    let brokers = ListParams::default().labels("app.kubernetes.io/component=broker");
    let pods = story.api::<KubePod>().list(&brokers).await?.items;
    Ok(pods.iter().filter_map(ResourceExt::uid).collect())
}

/// So many of these pods have been replaced.
async fn replaced(story: &Story, old: &[String], count: usize) -> Result<()> {
    story
        .eventually(&format!("{count} brokers have been replaced"), 300, async || {
            let now = uids(story).await?;
            let left = old.iter().filter(|uid| now.contains(uid)).count();
            ensure!(old.len() - left >= count, "{left} old ones are left");
            Ok(())
        })
        .await
}

async fn progresses(story: &Story, reason: &str) -> Result<()> {
    story
        .expect(CLUSTER, &format!("the Cluster says {reason}"), 120, |cluster: &Cluster| {
            let progressing = condition(cluster, "Progressing")?;
            ensure!(progressing.status == "True" && progressing.reason == reason, "{progressing:?}");
            Ok(())
        })
        .await
}

/// Ready, and nothing is under way any more.
async fn at_rest(story: &Story) -> Result<()> {
    story.expect_condition::<Cluster>(CLUSTER, "Progressing", "False", 300).await?;
    story.expect_ready::<Cluster>(CLUSTER, 60).await
}

/// Kills the operators at once, and waits until another one has come.
async fn kill_operator(story: &Story) -> Result<()> {
    let pods: Api<KubePod> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    let operators = ListParams::default().labels("app.kubernetes.io/component=operator");
    let old: Vec<_> = pods.list(&operators).await?.items;
    ensure!(!old.is_empty(), "no operator runs");
    for pod in &old {
        story.step(&format!("{} is killed", pod.name_any()));
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    story
        .eventually("another operator has come", 60, async || {
            let now = pods.list(&operators).await?.items;
            let new = now.iter().find(|pod| !old.iter().any(|gone| gone.uid() == pod.uid()));
            let status = new.and_then(|pod| pod.status.clone()).context("there is none")?;
            ensure!(status.phase.as_deref() == Some("Running"), "it is {:?}", status.phase);
            Ok(())
        })
        .await
}
