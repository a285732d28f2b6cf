//! The operator is upgraded in the middle of what it does, and a namespace goes with all that is in it.

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::helm::helm;
use forebay_e2e::load::TOPIC;
use forebay_e2e::{NEXT, Story, provider, tell};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::json;

use super::brokers::{Brokers, CLUSTER, Operator, replaced, two_serve_while, uids};

#[tokio::test]
async fn an_operator_upgraded_in_the_middle_of_a_roll_goes_on_with_it() -> Result<()> {
    tell("upgraded", async |story| {
        let mut brokers = Brokers::begin(story, json!({}), &[], Operator::Lives).await?;
        let told = upgraded(&mut brokers).await;
        // However it ended: the stories after this one begin with the operator that was installed.
        let put_back = upgrade_to("").await;
        told.and(put_back)?;
        brokers.healed("operator put back").await?;
        brokers.end().await
    })
    .await
}

async fn upgraded(brokers: &mut Brokers<'_>) -> Result<()> {
    let story = brokers.story;
    let old = uids(story).await?;
    story.step("a roll begins");
    story.merge::<Cluster>(CLUSTER, json!({"spec": {"threads": {"network": 2, "io": 5}}})).await?;
    two_serve_while(story, async {
        replaced(story, &old, 1).await?;
        story.step(&format!("helm upgrade to {NEXT}"));
        upgrade_to(NEXT).await?;
        replaced(story, &old, 3).await
    })
    .await?;
    brokers.healed("operator upgraded in the middle of a roll").await
}

async fn upgrade_to(tag: &str) -> Result<()> {
    let tag = format!("image.tag={tag}");
    helm(&["upgrade", "forebay", "charts/forebay", "--reuse-values", "--set", &tag, "--wait"]).await
}

#[tokio::test]
async fn a_namespace_is_deleted_under_load() -> Result<()> {
    tell("deleted", async |story| {
        let brokers = Brokers::begin(story, json!({}), &[], Operator::Lives).await?;
        brokers.end().await?;
        let _cut_off = story.load(CLUSTER, &[]).await?;
        // `tell` deletes the namespace now, and fails when anything holds it.
        story.expect_ready::<Topic>(TOPIC, 10).await
    })
    .await
}

/// One broker is enough.
const ONE: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  replicas: 1
  disks: [{name: data, size: 1Gi}]
";
/// Of the machine's kernel, where the nodes are on this machine.
const MAX_MAP_COUNT: &str = "/proc/sys/vm/max_map_count";

#[tokio::test]
async fn nodes_are_given_the_kernel_settings_that_are_wanted_where_it_is_allowed() -> Result<()> {
    tell("node-settings", async |story| {
        story.apply(ONE).await?;
        story.expect_ready::<Cluster>("c", 90).await?;
        let before = max_map_count(&story.api::<Cluster>().get("c").await?)?;
        let told = set_by_the_chart(story, before + 1).await;
        // What was set stays; here it is put back, whatever has come of it.
        let off = helm_settings("nodeSettings.enabled=false").await;
        if provider() != "current" {
            std::fs::write(MAX_MAP_COUNT, before.to_string()).context("put max_map_count back")?;
        }
        told.and(off)
    })
    .await
}

async fn set_by_the_chart(story: &Story, wanted: i64) -> Result<()> {
    story.merge::<Cluster>("c", json!({"spec": {"kernel": {"maxMapCount": wanted}}})).await?;
    let differs = story.expect_condition::<Cluster>("c", "TuningInForce", "False", 60).await?;
    ensure!(differs.message.contains(&wanted.to_string()), "{}", differs.message);
    helm_settings("nodeSettings.enabled=true,nodeSettings.allowed={maxMapCount}").await?;
    story.expect_condition::<Cluster>("c", "TuningInForce", "True", 120).await?;
    ensure!(max_map_count(&story.api::<Cluster>().get("c").await?)? == wanted, "it is what was wanted");
    let events = story.api::<Event>().list(&ListParams::default()).await?;
    let changed = events.items.iter().filter(|event| event.reason.as_deref() == Some("NodeSettingChanged"));
    ensure!(changed.count() == 1, "one Event tells of it");
    story.expect_ready::<Cluster>("c", 10).await
}

async fn helm_settings(values: &str) -> Result<()> {
    helm(&["upgrade", "forebay", "charts/forebay", "--reuse-values", "--set", values, "--wait"]).await
}

fn max_map_count(cluster: &Cluster) -> Result<i64> {
    let broker = cluster.status.as_ref().and_then(|status| status.brokers.first()).context("no broker")?;
    broker.kernel.as_ref().and_then(|kernel| kernel.max_map_count).context("max_map_count is not told")
}
