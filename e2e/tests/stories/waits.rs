//! Whoever waits for an object by the rules that all kinds share is never told that it is done before it is, from the moment it was
//! applied on.

use anyhow::{Result, bail, ensure};
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use forebay_e2e::conditions::{Progress, Reports, condition, kstatus};
use forebay_e2e::{Story, tell};
use serde::Serialize;
use serde_json::json;

const QUICKSTART: &str = include_str!("../../../examples/quickstart.yaml");

#[tokio::test]
async fn a_wait_right_after_apply_is_never_fooled() -> Result<()> {
    tell("waits", async |story| {
        story.apply(QUICKSTART).await?;
        tokio::try_join!(
            current_means_ready::<Cluster>(story, "quickstart"),
            current_means_ready::<Topic>(story, "orders"),
            current_means_ready::<ConsumerProfile>(story, "billing"),
        )?;
        story.merge::<Topic>("orders", json!({"spec": {"partitions": 7}})).await?;
        current_means_ready::<Topic>(story, "orders").await?;
        let partitions = story.kafka("quickstart").see("orders").await?.partitions;
        ensure!(partitions == Some(7), "it is current, and the brokers have {partitions:?} partitions");
        Ok(())
    })
    .await
}

/// Looks again and again from now on, until it is current.
async fn current_means_ready<K: Reports + Serialize>(story: &Story, name: &str) -> Result<()> {
    let (kind, api) = (K::kind(&()), story.api::<K>());
    let what = format!("{kind} {name} is current, and was not said to be before");
    let mut fooled = None;
    let waited = story.eventually(&what, 120, async || {
        let object = api.get(name).await?;
        match kstatus(&serde_json::to_value(&object)?) {
            Progress::Current => {}
            other => bail!("it is {other:?}"),
        }
        let ready = condition(&object, "Ready");
        if !ready.as_ref().is_ok_and(|ready| ready.status == "True") {
            fooled.get_or_insert_with(|| format!("{kind} {name} counts as current, and Ready is {ready:?}"));
        }
        Ok(())
    });
    waited.await?;
    fooled.map_or(Ok(()), |fooled| bail!(fooled))
}
