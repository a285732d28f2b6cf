//! The README's Kubernetes quick start, with what it promises: clients produce and consume, and a killed pod loses nothing.

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use forebay_e2e::conditions::condition;
use forebay_e2e::kafka::{lines, sorted};
use forebay_e2e::{Pod, tell};
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::ResourceExt;
use kube::api::DeleteParams;

const QUICKSTART: &str = include_str!("../../../examples/quickstart.yaml");
const CLUSTER: &str = "quickstart";
const TOPIC: &str = "orders";
const BROKER: &str = "quickstart-broker-0";

#[tokio::test]
async fn the_quickstart_works_and_a_killed_broker_loses_nothing() -> Result<()> {
    tell("quickstart", async |story| {
        story.apply(QUICKSTART).await?;
        let judged = |cluster: &Cluster| condition(cluster, "Ready");
        story.expect(CLUSTER, "the Cluster has conditions at once", 10, judged).await?;
        story.expect_ready::<Cluster>(CLUSTER, 90).await?;
        story.expect_ready::<Topic>(TOPIC, 30).await?;
        story.expect_ready::<ConsumerProfile>("billing", 30).await?;

        let kafka = story.kafka(CLUSTER);
        let produced = sorted(kafka.produce(TOPIC, 0..2000, None).await?);
        let before = kafka.consume(TOPIC).await?;
        ensure!(lines(&before) == produced, "{} produced, {} consumed", produced.len(), before.len());
        let seen = kafka.see(TOPIC).await?;
        ensure!(seen.brokers.keys().collect::<Vec<_>>() == [&0] && seen.partitions == Some(4), "{seen:?}");
        let ours = Pod::forebay(&["topic", "list", "--bootstrap-server", &kafka.bootstrap()]).run(story, 30).await?;
        ensure!(ours.contains(TOPIC), "the project's own client sees the topic too: {ours}");

        let identity = story.api::<Cluster>().get(CLUSTER).await?.status.and_then(|status| status.cluster_id);
        ensure!(identity.is_some(), "the status names the cluster's id");
        kill(story).await?;
        story.expect_ready::<Cluster>(CLUSTER, 60).await?;

        let after = kafka.consume(TOPIC).await?;
        ensure!(
            after == before,
            "the same records at the same offsets: {} before, {} after",
            before.len(),
            after.len()
        );
        let again = kafka.see(TOPIC).await?;
        ensure!(again == seen, "the same broker with the same id and name: {again:?}, before {seen:?}");
        let status = story.api::<Cluster>().get(CLUSTER).await?.status.context("no status")?;
        ensure!(status.cluster_id == identity, "the cluster's id stays");
        kafka.produce(TOPIC, 2000..2100, None).await?;
        ensure!(kafka.consume(TOPIC).await?.len() == 2100, "it goes on where it was");
        Ok(())
    })
    .await
}

/// Kills the broker at once, as a failure would: no time to shut down.
async fn kill(story: &forebay_e2e::Story) -> Result<()> {
    let pods = story.api::<KubePod>();
    let old = pods.get(BROKER).await?.uid();
    pods.delete(BROKER, &DeleteParams::default().grace_period(0)).await?;
    story
        .expect(BROKER, "another pod takes the killed broker's place and is ready", 60, |pod: &KubePod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
            let ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
            ensure!(pod.uid() != old && ready, "it is the old one or not ready");
            Ok(())
        })
        .await
}
