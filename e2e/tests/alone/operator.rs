//! The operator is upgraded in the middle of what it does, and a namespace goes with all that is in it.

use anyhow::Result;
use forebay_crds::{Cluster, Topic};
use forebay_e2e::helm::helm;
use forebay_e2e::load::TOPIC;
use forebay_e2e::{NEXT, tell};
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
