//! A consumer profile refuses what cannot work, and an application runs on what it computed.

use anyhow::{Result, bail, ensure};
use forebay_crds::{ConsumerProfile, Topic};
use forebay_e2e::conditions::condition;
use forebay_e2e::{Pod, tell};
use serde_json::json;

/// Set D of the tuning lab: 8 MiB at once, where a response carries at most 4 × 1 MiB.
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
metadata: {name: orders}
spec:
  clusterRef: {name: c}
  partitions: 4
---
apiVersion: forebay.dev/v1alpha1
kind: ConsumerProfile
metadata: {name: billing}
spec:
  clusterRef: {name: c}
  topics: [orders]
  clientFamily: librdkafka
  preset: reconciliation
  settings:
    fetch.min.bytes: 8388608
    fetch.max.wait.ms: 1000
    max.partition.fetch.bytes: 1048576
";

#[tokio::test]
async fn set_d_is_refused_and_an_application_runs_on_what_works() -> Result<()> {
    tell("profiles", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Topic>("orders", 90).await?;
        // Until it has seen the new topic it is not ready for another reason.
        let judge = |profile: &ConsumerProfile| {
            let ready = condition(profile, "Ready")?;
            ensure!(ready.reason == "SettingsRefused", "{ready:?}");
            Ok(ready)
        };
        let refused = story.expect("billing", "its settings are refused", 60, judge).await?;
        for part in ["fetch.min.bytes", "8388608", "4194304", "1048576"] {
            ensure!(refused.message.contains(part), "{part} is missing: {}", refused.message);
        }
        story.step(&format!("set D is refused: {}", refused.message));
        if story.config_map("billing-consumer").await.is_ok() {
            bail!("a refused profile must not write settings");
        }

        let works = json!({"spec": {"settings": {"fetch.min.bytes": 4_194_304}}});
        story.merge::<ConsumerProfile>("billing", works).await?;
        story.expect_ready::<ConsumerProfile>("billing", 30).await?;
        let settings = story.config_map("billing-consumer").await?;
        let librdkafka = settings.get("librdkafka.properties").map_or("", String::as_str);
        ensure!(librdkafka.contains("fetch.min.bytes=4194304"), "{settings:?}");

        let kafka = story.kafka("c");
        kafka.produce("orders", 0..500, None).await?;
        let bootstrap = kafka.bootstrap();
        let application =
            ["-F", "/etc/consumer/librdkafka.properties", "-b", &bootstrap, "-X", "auto.offset.reset=earliest"];
        let reads = ["-q", "-c", "500", "-f", "%s\\n", "-G", "billing", "orders"];
        let pod = Pod::kcat(&[&application[..], &reads[..]].concat());
        let printed = pod.with_config_map("billing-consumer", "/etc/consumer").run(story, 60).await?;
        let values = printed.lines().filter(|line| line.starts_with("value-")).count();
        ensure!(values == 500, "an application on the ConfigMap reads all: {printed}");
        Ok(())
    })
    .await
}
