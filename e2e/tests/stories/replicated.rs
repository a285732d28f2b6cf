//! Three brokers: the leader's pod is killed under a producer, and all are replaced by a roll; nothing that was acknowledged is lost, ids
//! and names stay, every replica comes back. One is added, and
//! goes again when it is empty.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use forebay_e2e::conditions::condition;
use forebay_e2e::kafka::{Kafka, lines, sorted};
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

const REPLICATED: &str = include_str!("../../../examples/replicated.yaml");
const CLUSTER: &str = "replicated";
const TOPIC: &str = "payments";
/// On four brokers each of its brokers has about 6 of the 8 partitions.
const MORE: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: more}
spec: {clusterRef: {name: replicated}, partitions: 8, replicationFactor: 3}
";

#[tokio::test]
async fn three_brokers_lose_nothing_with_one_of_them() -> Result<()> {
    tell("replicated", async |story| {
        story.apply(REPLICATED).await?;
        story.expect_ready::<Cluster>(CLUSTER, 150).await?;
        story.expect_ready::<Topic>(TOPIC, 60).await?;
        story.expect_ready::<ConsumerProfile>("ledger", 30).await?;
        let kafka = story.kafka(CLUSTER);
        all_in_sync(story, kafka, 6).await?;
        let seen = kafka.see(TOPIC).await?;
        ensure!(seen.brokers.keys().collect::<Vec<_>>() == [&0, &1, &2], "{seen:?}");

        let mut produced = kafka.produce(TOPIC, 0..1000, None).await?;
        let leader = kafka.partitions(TOPIC).await?.first().context("no partition")?.leader;
        let (more, killed) = tokio::join!(produce_for_a_while(kafka, 1000, 4), kill(story, leader));
        produced.extend(more?);
        killed?;
        story.expect_ready::<Cluster>(CLUSTER, 90).await?;
        all_in_sync(story, kafka, 6).await?;
        let again = kafka.see(TOPIC).await?;
        ensure!(again == seen, "the same brokers with the same ids and names: {again:?}, before {seen:?}");

        a_setting_changes_while_they_run(story).await?;
        story.step("a setting changes that is read at the start: every broker is replaced, one after the other");
        let change = json!({"spec": {"config": {"num.recovery.threads.per.data.dir": 3}}});
        story.merge::<Cluster>(CLUSTER, change).await?;
        let (more, rolled) = tokio::join!(produce_for_a_while(kafka, 5000, 6), rolled(story));
        produced.extend(more?);
        rolled?;
        all_in_sync(story, kafka, 6).await?;

        let consumed = kafka.consume(TOPIC).await?;
        ensure!(
            lines(&consumed) == sorted(produced.clone()),
            "{} produced, {} consumed",
            produced.len(),
            consumed.len()
        );
        brokers_are_added_and_taken_away(story, kafka).await
    })
    .await
}

/// A setting that brokers take while they run restarts none of them.
async fn a_setting_changes_while_they_run(story: &Story) -> Result<()> {
    let brokers = ListParams::default().labels("app.kubernetes.io/component=broker");
    let uids = async || -> Result<Vec<_>> {
        let pods = story.api::<KubePod>().list(&brokers).await?.items;
        Ok(pods.iter().filter_map(ResourceExt::uid).collect())
    };
    let before = uids().await?;
    let change = json!({"spec": {"config": {"log.flush.interval.ms": 40}}});
    story.merge::<Cluster>(CLUSTER, change).await?;
    story
        .expect(CLUSTER, "a setting is in force on all brokers", 60, |cluster: &Cluster| {
            let brokers = cluster.status.as_ref().map(|status| status.brokers.as_slice()).unwrap_or_default();
            let ms: Vec<_> = brokers.iter().filter_map(|broker| Some(broker.flush.as_ref()?.ms)).collect();
            ensure!(ms == [40; 3], "flush.ms is {ms:?}");
            Ok(())
        })
        .await?;
    story.expect_ready::<Cluster>(CLUSTER, 30).await?;
    ensure!(uids().await? == before, "no broker is restarted for it");
    Ok(())
}

/// Waits until every replica of the topic is in sync.
async fn all_in_sync(story: &Story, kafka: Kafka<'_>, partitions: usize) -> Result<()> {
    story
        .eventually("every replica is in sync", 120, async || {
            let seen = kafka.partitions(TOPIC).await?;
            let full = seen.iter().filter(|partition| partition.replicas == 3 && partition.in_sync == 3).count();
            ensure!(full == partitions, "{full} of {partitions} partitions: {seen:?}");
            Ok(())
        })
        .await
}

/// Runs of a producer, one after the other.
async fn produce_for_a_while(kafka: Kafka<'_>, from: usize, runs: usize) -> Result<Vec<String>> {
    let mut produced = Vec::new();
    for run in 0..runs {
        let first = from + run * 500;
        produced.extend(kafka.produce(TOPIC, first..first + 500, None).await?);
    }
    Ok(produced)
}

/// Kills a broker's pod at once, as a failure would, and waits for another one in its place.
async fn kill(story: &Story, broker: i64) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (pods, name) = (story.api::<KubePod>(), format!("{CLUSTER}-broker-{broker}"));
    let old = pods.get(&name).await?.uid();
    story.step(&format!("{name} leads, and is killed"));
    pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
    let what = "another pod takes the killed broker's place";
    story
        .expect(&name, what, 60, |pod: &KubePod| {
            ensure!(pod.uid() != old, "it is the old one");
            Ok(())
        })
        .await
}

/// Waits until no pod is left of those that there are now, watching that no two are down at once.
async fn rolled(story: &Story) -> Result<()> {
    let pods = story.api::<KubePod>();
    let brokers = ListParams::default().labels("app.kubernetes.io/component=broker");
    let old: Vec<_> = pods.list(&brokers).await?.items.iter().filter_map(ResourceExt::uid).collect();
    let ready = |pod: &KubePod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none()
            && conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let mut fewest = usize::MAX;
    story
        .eventually("every broker has been replaced", 300, async || {
            let now = pods.list(&brokers).await?.items;
            let up = now.iter().filter(|pod| ready(pod)).count();
            fewest = fewest.min(up);
            let left = now.iter().filter(|pod| pod.uid().is_some_and(|uid| old.contains(&uid))).count();
            ensure!(left == 0 && up == 3, "{left} old ones, {up} are ready");
            Ok(())
        })
        .await?;
    ensure!(fewest >= 2, "only {fewest} brokers were ready at some moment of the roll");
    story.expect_ready::<Cluster>(CLUSTER, 60).await
}

async fn brokers_are_added_and_taken_away(story: &Story, kafka: Kafka<'_>) -> Result<()> {
    story.merge::<Cluster>(CLUSTER, json!({"spec": {"replicas": 4}})).await?;
    story
        .eventually("a fourth broker joins", 120, async || {
            let brokers = kafka.see(TOPIC).await?.brokers;
            ensure!(brokers.len() == 4, "{brokers:?}");
            Ok(())
        })
        .await?;
    story.expect_ready::<Cluster>(CLUSTER, 60).await?;
    story.apply(MORE).await?;
    story.expect_ready::<Topic>("more", 60).await?;
    let mut produced = kafka.produce("more", 0..2000, None).await?;

    story.merge::<Cluster>(CLUSTER, json!({"spec": {"replicas": 3}})).await?;
    let (more, gone) = tokio::join!(
        async {
            let mut produced = Vec::new();
            for run in 0..4 {
                let first = 2000 + run * 500;
                produced.extend(kafka.produce("more", first..first + 500, None).await?);
            }
            anyhow::Ok(produced)
        },
        story.expect_gone::<KubePod>("replicated-broker-3", 240)
    );
    produced.extend(more?);
    gone?;
    story.expect_ready::<Cluster>(CLUSTER, 90).await?;
    let partitions = kafka.partitions("more").await?;
    ensure!(partitions.iter().all(|one| one.replicas == 3 && one.leader != 3), "{partitions:?}");
    ensure!(kafka.see(TOPIC).await?.brokers.len() == 3, "the fourth broker is not on the list any more");
    let consumed = kafka.consume("more").await?;
    ensure!(lines(&consumed) == sorted(produced.clone()), "{} produced, {} consumed", produced.len(), consumed.len());
    let draining = story.api::<Cluster>().get(CLUSTER).await?.status.context("no status")?.draining;
    ensure!(draining.is_empty(), "nothing is left of the move: {draining:?}");

    story.merge::<Cluster>(CLUSTER, json!({"spec": {"replicas": 1}})).await?;
    story
        .expect(CLUSTER, "a quorum does not become a single broker", 30, |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.reason == "NotSupported" && ready.message.contains("needs 3"), "{ready:?}");
            Ok(())
        })
        .await?;
    ensure!(kafka.see(TOPIC).await?.brokers.len() == 3, "no broker was taken away");
    Ok(())
}
