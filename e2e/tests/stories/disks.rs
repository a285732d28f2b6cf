//! A disk grows without a broker noticing, and never shrinks.

use anyhow::{Context, Result, bail, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::tell;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

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
";

#[tokio::test]
async fn a_disk_grows_under_a_running_broker() -> Result<()> {
    tell("disks", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Topic>("events", 90).await?;
        let kafka = story.kafka("c");
        kafka.produce("events", 0..200, None).await?;
        let pod = story.api::<Pod>().get("c-broker-0").await?.uid();

        story.merge::<Cluster>("c", resized("2Gi")).await?;
        story
            .expect("data-c-broker-0", "the claim has 2Gi", 60, |claim: &PersistentVolumeClaim| {
                let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
                let storage = capacity.and_then(|capacity| capacity.get("storage")).context("no capacity")?;
                ensure!(storage.0 == "2Gi", "it has {}", storage.0);
                Ok(())
            })
            .await?;
        story
            .expect("c-broker", "so do brokers to come", 60, |set: &StatefulSet| {
                let set = serde_json::to_value(set)?;
                let size = &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"];
                ensure!(size == "2Gi", "the claim template has {size}");
                Ok(())
            })
            .await?;
        story.expect_condition::<Cluster>("c", "DisksInForce", "True", 30).await?;
        story.expect_ready::<Cluster>("c", 30).await?;
        ensure!(story.api::<Pod>().get("c-broker-0").await?.uid() == pod, "the broker's pod is the same");
        ensure!(kafka.consume("events").await?.len() == 200, "and has its records");

        let Err(refused) = story.merge::<Cluster>("c", resized("1Gi")).await else { bail!("a disk must not shrink") };
        ensure!(format!("{refused:#}").contains("can't shrink"), "{refused:#}");
        story.step("shrinking is refused");
        Ok(())
    })
    .await
}

fn resized(size: &str) -> Value {
    json!({"spec": {"disks": [{"name": "data", "size": size}]}})
}
