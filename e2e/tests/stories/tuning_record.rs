//! A parameter that is changed is on the Cluster's record: when, why, and what brokers measured before and after.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use forebay_crds::cluster::TuningChange;
use forebay_crds::{Cluster, Topic};
use forebay_e2e::tell;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::json;

const MANIFESTS: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  replicas: 1
  disks: [{name: data, size: 1Gi}]
  threads: {io: 2}
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {clusterRef: {name: c}, partitions: 1}
";

fn last(cluster: &Cluster) -> Result<&TuningChange> {
    let status = cluster.status.as_ref().context("no status")?;
    status.tuning_record.last().context("nothing is on the record")
}

#[tokio::test]
async fn a_changed_parameter_is_on_the_record_with_its_reason_and_its_effect() -> Result<()> {
    tell("tuning-record", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Topic>("orders", 90).await?;
        let found = story.api::<Cluster>().get("c").await?;
        ensure!(last(&found).is_err(), "a first spec is no change: {:?}", last(&found));
        // Brokers take a sample every 10 s; a rate is between the oldest and the newest.
        tokio::time::sleep(Duration::from_secs(12)).await;
        story.kafka("c").produce("orders", 0..5_000, None).await?;
        tokio::time::sleep(Duration::from_secs(12)).await;
        let reason = json!({"forebay.dev/tuning-reason": "appends wait for the disk"});
        let patch = json!({"metadata": {"annotations": reason}, "spec": {"threads": {"io": 4}}});
        story.merge::<Cluster>("c", patch).await?;
        let begun =
            story.expect::<Cluster, _>("c", "the change is on the record", 30, |found| Ok(last(found)?.clone()));
        let begun = begun.await?;
        let [change] = begun.changes.as_slice() else { bail!("{begun:?}") };
        ensure!((change.parameter.as_str(), change.from.as_deref()) == ("threads.io", Some("2")), "{begun:?}");
        ensure!(change.to.as_deref() == Some("4") && begun.reason.as_deref() == Some("appends wait for the disk"));
        let before = begun.before.context("nothing was measured before")?;
        ensure!(before.records_in_per_second > 0 && before.produce_p99_ms.is_some(), "{before:?}");

        story.expect_ready::<Cluster>("c", 90).await?;
        let measured = |found: &Cluster| last(found)?.after.clone().context("not measured yet");
        let after = story.expect::<Cluster, _>("c", "its effect is known", 300, measured).await?;
        ensure!(after.seconds >= 60, "{after:?}");
        let events = story.api::<Event>().list(&ListParams::default()).await?;
        for wanted in ["TuningChanged", "TuningMeasured"] {
            let count = events.items.iter().filter(|event| event.reason.as_deref() == Some(wanted)).count();
            ensure!(count == 1, "{count} Events {wanted}");
        }
        Ok(())
    })
    .await
}
