//! Topics are kept as declared, and never hold a namespace that is to go.

use anyhow::{Result, bail, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::{Pod, Story, tell};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

const MANIFESTS: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  replicas: 1
  disks: [{name: data, size: 1Gi}]
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: events}
spec:
  clusterRef: {name: c}
  partitions: 2
  config: {retention.ms: 3600000}
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: kept}
spec:
  clusterRef: {name: c}
  partitions: 1
  reclaimPolicy: Retain
";

#[tokio::test]
async fn topics_grow_and_are_put_back_and_go() -> Result<()> {
    tell("topics", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Topic>("events", 90).await?;
        story.expect_ready::<Topic>("kept", 30).await?;
        let kafka = story.kafka("c");

        story.merge::<Topic>("events", json!({"spec": {"partitions": 5}})).await?;
        story.expect_ready::<Topic>("events", 30).await?;
        ensure!(kafka.see("events").await?.partitions == Some(5), "partitions are raised on the broker");
        for (patch, word) in [
            (json!({"spec": {"partitions": 3}}), "can't be taken away"),
            (json!({"spec": {"topicName": "other"}}), "can't be changed"),
        ] {
            let Err(refused) = story.merge::<Topic>("events", patch.clone()).await else { bail!("{patch} is taken") };
            ensure!(format!("{refused:#}").contains(word), "{patch} is refused without saying why: {refused:#}");
        }
        story.step("taking partitions away and renaming are refused");

        drift_is_put_back(story).await?;

        let topics = story.api::<Topic>();
        for name in ["events", "kept"] {
            topics.delete(name, &DeleteParams::default()).await?;
            story.expect_gone::<Topic>(name, 30).await?;
        }
        ensure!(kafka.see("events").await?.partitions.is_none(), "the deleted Topic's topic is gone");
        ensure!(kafka.see("kept").await?.partitions == Some(1), "a retained topic stays");
        Ok(())
    })
    .await
}

/// A setting changed by hand, and one added by hand, end as declared.
async fn drift_is_put_back(story: &Story) -> Result<()> {
    let bootstrap = story.kafka("c").bootstrap();
    let set = ["--set", "retention.ms=1000", "--set", "segment.ms=5000"];
    let alter = ["topic", "alter", "events", "--bootstrap-server", &bootstrap];
    Pod::forebay(&[&alter[..], &set[..]].concat()).run(story, 30).await?;
    let describe = ["topic", "describe", "events", "--bootstrap-server", &bootstrap, "-o", "json"];
    story
        .eventually("a configuration changed by hand is put back", 120, async || {
            let described = Pod::forebay(&describe).run(story, 30).await?;
            let found: serde_json::Value = serde_json::from_str(&described)?;
            let text = found.to_string();
            ensure!(text.contains("3600000") && !text.contains("5000"), "{described}");
            Ok(())
        })
        .await
}

#[tokio::test]
async fn a_topic_goes_when_its_cluster_went_first() -> Result<()> {
    tell("orphans", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Topic>("events", 90).await?;
        let events = story.api::<Topic>().get("events").await?;
        ensure!(!events.finalizers().is_empty(), "a Topic that deletes its topic holds a finalizer");
        story.api::<Cluster>().delete("c", &DeleteParams::default()).await?;
        story.expect_gone::<Cluster>("c", 60).await?;
        story.api::<Topic>().delete("events", &DeleteParams::default()).await?;
        story.expect_gone::<Topic>("events", 30).await
    })
    .await
}

#[tokio::test]
async fn a_namespace_goes_at_once_with_all_that_is_in_it() -> Result<()> {
    tell("namespace", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Topic>("events", 90).await?;
        // The end of every story deletes its namespace and waits: here with brokers, topics and finalizers in it.
        Ok(())
    })
    .await
}
