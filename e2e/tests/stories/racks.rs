//! Every broker registers with the zone of its node, at its first start and when it comes back.

use anyhow::{Context, Result, ensure};
use forebay_crds::Cluster;
use forebay_e2e::{Story, tell};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};

const ZONE: &str = "topology.kubernetes.io/zone";
const MANIFEST: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  replicas: 3
  disks: [{name: data, size: 1Gi}]
  rack: {nodeLabel: topology.kubernetes.io/zone}
";

#[tokio::test]
async fn every_broker_registers_with_the_zone_of_its_node() -> Result<()> {
    tell("racks", async |story| {
        story.apply(MANIFEST).await?;
        story.expect_ready::<Cluster>("c", 150).await?;
        zones_are_in_force(story).await?;
        let (pods, name) = (story.api::<Pod>(), "c-broker-1");
        let old = pods.get(name).await?.uid();
        story.step(&format!("{name} is killed"));
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        story
            .expect(name, "another pod has its place, and serves", 90, |pod: &Pod| {
                ensure!(pod.uid() != old && pod.metadata.deletion_timestamp.is_none(), "it is the old one");
                let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let mut ready = conditions.filter(|one| one.type_ == "Ready" && one.status == "True");
                ready.next().context("it is not ready").map(drop)
            })
            .await?;
        story.expect_ready::<Cluster>("c", 90).await?;
        zones_are_in_force(story).await
    })
    .await
}

/// What each broker says of its rack is the label of the node that its pod is on.
async fn zones_are_in_force(story: &Story) -> Result<()> {
    let nodes: Api<Node> = Api::all(story.client.clone());
    let clusters: Api<Cluster> = story.api();
    story
        .eventually("every broker has registered with the zone of its node", 60, async || {
            let brokers = clusters.get("c").await?.status.context("no status")?.brokers;
            ensure!(brokers.len() == 3, "{} brokers", brokers.len());
            for broker in brokers {
                let node = nodes.get(&broker.node.context("it is on no node")?).await?;
                let zone = node.labels().get(ZONE).context("the nodes have no zones")?;
                let rack = broker.tuning.iter().find(|check| check.setting == "rack");
                let rack = rack.with_context(|| format!("broker {} says nothing of its rack", broker.id))?;
                ensure!(rack.holds && rack.in_force == *zone, "broker {} in {zone}: {rack:?}", broker.id);
            }
            Ok(())
        })
        .await?;
    story.expect_condition::<Cluster>("c", "TuningInForce", "True", 30).await.map(drop)
}
