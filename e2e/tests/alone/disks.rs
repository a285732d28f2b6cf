//! A disk of running brokers is removed, and another one added, under load, and nothing is lost.

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::conditions::condition;
use forebay_e2e::kafka::{lines, sorted};
use forebay_e2e::load::TOPIC;
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

/// Three brokers of two disks each, and the topic that load is put on.
const TWO_DISKS: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: d}
spec:
  replicas: 3
  reclaimPolicy: Delete
  disks: [{name: data, size: 1Gi}, {name: more, size: 1Gi}]
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: own}
spec: {clusterRef: {name: d}, partitions: 4, replicationFactor: 3, config: {min.insync.replicas: 2}}
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: filled}
spec: {clusterRef: {name: d}, partitions: 6, replicationFactor: 3}
";

#[tokio::test]
async fn a_disk_is_removed_under_load_and_nothing_is_lost() -> Result<()> {
    tell("disk-removed", async |story| {
        story.apply(TWO_DISKS).await?;
        story.expect_ready::<Topic>(TOPIC, 150).await?;
        story.expect_ready::<Topic>("filled", 60).await?;
        let kafka = story.kafka("d");
        let produced = kafka.produce("filled", 0..2000, None).await?;
        let mut load = story.load("d", &[]).await?;
        load.stage("at rest").await?;

        the_disk_with_the_metadata_stays(story).await?;
        load.stage("a disk that can't be removed is put back").await?;

        story.step("disk more goes, and disk new comes");
        story.merge::<Cluster>("d", named(&["data", "new"])).await?;
        for id in 0..3 {
            story.expect_gone::<PersistentVolumeClaim>(&format!("more-d-broker-{id}"), 420).await?;
        }
        story.expect_ready::<Cluster>("d", 120).await?;
        story.expect_condition::<Cluster>("d", "Progressing", "False", 120).await?;
        load.stage("a disk is removed and another one added").await?;
        let status = story.api::<Cluster>().get("d").await?.status.context("no status")?;
        ensure!(status.removing_disks.is_empty(), "{:?}", status.removing_disks);
        for broker in status.brokers {
            let paths: Vec<&str> = broker.disks.iter().map(|disk| disk.path.as_str()).collect();
            ensure!(paths == ["/var/lib/forebay/data", "/var/lib/forebay/new"], "broker {}: {paths:?}", broker.id);
        }
        load.end().await?;
        let consumed = kafka.consume("filled").await?;
        ensure!(lines(&consumed) == sorted(produced.clone()), "{} of {}", consumed.len(), produced.len());
        Ok(())
    })
    .await
}

/// It is refused with the reason, and all is as before when the disk is put back; no broker is restarted.
async fn the_disk_with_the_metadata_stays(story: &Story) -> Result<()> {
    let pod = story.api::<Pod>().get("d-broker-0").await?.uid();
    story.merge::<Cluster>("d", named(&["more"])).await?;
    story
        .expect("d", "the disk with the metadata can't be removed", 60, |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.reason == "NotSupported" && ready.message.contains("metadata"), "{ready:?}");
            Ok(())
        })
        .await?;
    story.merge::<Cluster>("d", named(&["data", "more"])).await?;
    story
        .expect("d", "the disk is put back", 60, |cluster: &Cluster| {
            let (ready, progressing) = (condition(cluster, "Ready")?, condition(cluster, "Progressing")?);
            ensure!(ready.status == "True" && progressing.status == "False", "{ready:?}, {progressing:?}");
            ensure!(cluster.status.as_ref().is_some_and(|status| status.removing_disks.is_empty()), "not yet");
            Ok(())
        })
        .await?;
    ensure!(story.api::<Pod>().get("d-broker-0").await?.uid() == pod, "the broker's pod is the same");
    Ok(())
}

fn named(names: &[&str]) -> Value {
    let disks: Vec<Value> = names.iter().map(|name| json!({"name": name, "size": "1Gi"})).collect();
    json!({"spec": {"disks": disks}})
}
