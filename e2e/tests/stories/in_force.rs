//! The status says what is in force, not what was asked for.

use anyhow::{Context, Result, ensure};
use forebay_crds::Cluster;
use forebay_e2e::tell;
use serde_json::json;

/// Every figure differs from its default, so that none is right by accident.
const MANIFEST: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  replicas: 1
  disks: [{name: fast, size: 1Gi, mountPath: /srv/logs, mountOptions: [rw]}]
  threads: {network: 2, io: 5}
  ulimits: {nofile: 4097}
  config: {log.flush.interval.messages: 1, log.flush.interval.ms: 70}
";
/// More than any node allows.
const NOFILE_TOO_MANY: i64 = 1_073_741_000;

#[tokio::test]
async fn what_is_in_force_is_read_back_and_a_limit_too_high_is_said() -> Result<()> {
    tell("in-force", async |story| {
        story.apply(MANIFEST).await?;
        story.expect_ready::<Cluster>("c", 90).await?;
        story.expect_condition::<Cluster>("c", "TuningInForce", "True", 30).await?;
        let status = story.api::<Cluster>().get("c").await?.status.context("no status")?;
        let broker = status.brokers.first().context("no broker in the status")?;
        let threads = broker.threads.as_ref().context("no threads")?;
        ensure!((threads.network, threads.io) == (2, 5), "{threads:?}");
        let nofile = broker.nofile.as_ref().context("no nofile")?;
        ensure!(nofile.wanted == Some(4097) && nofile.soft >= 4097 && nofile.hard >= nofile.soft, "{nofile:?}");
        let flush = broker.flush.as_ref().context("no flush policy")?;
        ensure!((flush.messages, flush.ms) == (1, 70), "{flush:?}");
        let disk = broker.disks.first().context("no disk")?;
        ensure!(disk.path == "/srv/logs" || disk.path.starts_with("/srv/logs/"), "{disk:?}");
        ensure!(disk.mount_point.as_deref() == Some("/srv/logs"), "a volume of its own is mounted there: {disk:?}");
        ensure!(disk.mount_options.iter().any(|option| option == "rw") && disk.fs_type.is_some(), "{disk:?}");
        story.step(&format!("in force: {threads:?} {nofile:?} {disk:?}"));

        story.merge::<Cluster>("c", json!({"spec": {"ulimits": {"nofile": NOFILE_TOO_MANY}}})).await?;
        let differs = story.expect_condition::<Cluster>("c", "TuningInForce", "False", 60).await?;
        for figure in [NOFILE_TOO_MANY.to_string(), nofile.hard.to_string()] {
            ensure!(differs.message.contains(&figure), "{figure} is missing: {}", differs.message);
        }
        story.step(&format!("said with both figures: {}", differs.message));
        story.expect_ready::<Cluster>("c", 60).await
    })
    .await
}
