//! A client outside of Kubernetes writes and reads through a node port of every broker; a broker that dies is reached again. When the
//! listener goes, so do its Services.

use anyhow::{Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::kafka::{lines, sorted};
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::{Pod as KubePod, Service};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;

const MANIFESTS: &str = include_str!("../../../examples/listeners.yaml");
const CLUSTER: &str = "outside";
const TOPIC: &str = "arrivals";
const PARTITIONS: i32 = 6;

#[tokio::test]
async fn clients_outside_reach_every_broker() -> Result<()> {
    tell("listeners", async |story| {
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Cluster>(CLUSTER, 150).await?;
        story.expect_condition::<Cluster>(CLUSTER, "ListenersReady", "True", 60).await?;
        story.expect_ready::<Topic>(TOPIC, 60).await?;
        let client = story.outside(CLUSTER).await?;
        let mut produced = client.everywhere(story, TOPIC, PARTITIONS, 0).await?;

        let (killed, pods) = ("outside-broker-1", story.api::<KubePod>());
        let old = pods.get(killed).await?.uid();
        story.step(&format!("{killed} is killed"));
        pods.delete(killed, &DeleteParams::default().grace_period(0)).await?;
        story
            .expect(killed, "another pod has its place", 60, |pod: &KubePod| {
                ensure!(pod.uid() != old && pod.metadata.deletion_timestamp.is_none(), "it is the old one");
                Ok(())
            })
            .await?;
        story.expect_ready::<Cluster>(CLUSTER, 90).await?;
        produced.extend(client.everywhere(story, TOPIC, PARTITIONS, 1000).await?);
        let consumed = client.consume(TOPIC).await?;
        ensure!(
            lines(&consumed) == sorted(produced.clone()),
            "{} produced, {} consumed",
            produced.len(),
            consumed.len()
        );
        the_listener_goes(story).await
    })
    .await
}

async fn the_listener_goes(story: &Story) -> Result<()> {
    story.merge::<Cluster>(CLUSTER, json!({"spec": {"listeners": null, "networkPolicy": null}})).await?;
    let services: Api<Service> = story.api();
    let of_listener = ListParams::default().labels("forebay.dev/listener");
    story
        .eventually("the listener's Services are gone", 60, async || {
            let left = services.list(&of_listener).await?.items;
            ensure!(left.is_empty(), "{:?}", left.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
            Ok(())
        })
        .await?;
    story.expect_ready::<Cluster>(CLUSTER, 180).await?;
    let told = story.kafka(CLUSTER).see(TOPIC).await?;
    ensure!(told.brokers.len() == 3, "clients inside go on: {told:?}");
    Ok(())
}
