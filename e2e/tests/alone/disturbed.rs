//! Three brokers under load: two of them are evicted at once, one loses its pod and its disk, a bad image comes and goes, threads
//! and open files are changed and seen in force. Nothing that was acknowledged is lost.

use anyhow::{Context, Result, ensure};
use forebay_crds::Cluster;
use forebay_e2e::conditions::condition;
use forebay_e2e::nodes::Evicted;
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as KubePod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

use super::brokers::{CLUSTER, begin, healed, one_may_go};

#[tokio::test]
async fn brokers_are_disturbed_and_nothing_is_lost() -> Result<()> {
    tell("disturbed", async |story| {
        let load = begin(story, "rack: {nodeLabel: topology.kubernetes.io/zone}", None).await?;
        healed(story, 60).await?;
        evicted_two_at_once(story).await?;
        a_pod_and_its_disk_are_deleted(story).await?;
        a_bad_image_comes_and_goes(story).await?;
        threads_and_files_change(story).await?;
        load.end().await?;
        Ok(())
    })
    .await
}

async fn evicted_two_at_once(story: &Story) -> Result<()> {
    one_may_go(story).await?;
    let (one, two) = tokio::join!(story.evict("c-broker-1"), story.evict("c-broker-2"));
    let answers = [one?, two?];
    let let_through = answers.iter().filter(|one| **one == Evicted::Yes).count();
    ensure!(let_through == 1, "of two evictions at once one is let through: {answers:?}");
    story.step("of two evictions at once one was let through");
    healed(story, 180).await
}

async fn a_pod_and_its_disk_are_deleted(story: &Story) -> Result<()> {
    let claims = story.api::<PersistentVolumeClaim>();
    let old = claims.get("data-c-broker-2").await?.uid();
    story.step("broker 2 loses its pod and its disk");
    claims.delete("data-c-broker-2", &DeleteParams::default()).await?;
    story.api::<KubePod>().delete("c-broker-2", &DeleteParams::default().grace_period(0)).await?;
    story
        .expect("data-c-broker-2", "it gets another disk", 90, |claim: &PersistentVolumeClaim| {
            let phase = claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            ensure!(claim.uid() != old && phase == "Bound", "it is the old one or {phase}");
            Ok(())
        })
        .await?;
    healed(story, 180).await
}

async fn a_bad_image_comes_and_goes(story: &Story) -> Result<()> {
    let before = story.api::<KubePod>().get("c-broker-0").await?;
    let good = before.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone()).context("no image")?;
    story.merge::<Cluster>(CLUSTER, json!({"spec": {"image": "forebay.local/no-such-broker:1"}})).await?;
    story
        .expect(CLUSTER, "the image costs one broker", 120, |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.status == "False" && ready.message.contains("Image"), "{ready:?}");
            let running = cluster.status.as_ref().and_then(|status| status.ready_replicas);
            ensure!(running == Some(2), "{running:?} are ready");
            Ok(())
        })
        .await?;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let status = story.api::<Cluster>().get(CLUSTER).await?.status.context("no status")?;
    ensure!(status.ready_replicas == Some(2), "and no more than one: {:?}", status.ready_replicas);
    story.merge::<Cluster>(CLUSTER, json!({"spec": {"image": good}})).await?;
    healed(story, 180).await
}

async fn threads_and_files_change(story: &Story) -> Result<()> {
    let change = json!({"spec": {"threads": {"network": 2, "io": 5}, "ulimits": {"nofile": 4097}}});
    story.merge::<Cluster>(CLUSTER, change).await?;
    story
        .expect(CLUSTER, "threads and open files are in force on all brokers", 300, |cluster: &Cluster| {
            let brokers = cluster.status.as_ref().map(|status| status.brokers.as_slice()).unwrap_or_default();
            let in_force: Vec<_> = brokers
                .iter()
                .filter_map(|broker| {
                    let (threads, nofile) = (broker.threads.as_ref()?, broker.nofile.as_ref()?);
                    Some((threads.network, threads.io, nofile.wanted?))
                })
                .collect();
            ensure!(in_force == [(2, 5, 4097); 3], "{in_force:?}");
            Ok(())
        })
        .await?;
    healed(story, 180).await?;
    let tuning = story.expect_condition::<Cluster>(CLUSTER, "TuningInForce", "True", 60).await?;
    story.step(&format!("in force, racks among it: {}", tuning.message));
    Ok(())
}
