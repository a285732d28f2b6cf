//! Every manifest in `examples/` does what it says there.

use anyhow::{Result, ensure};
use forebay_crds::{ConsumerProfile, Topic};
use forebay_e2e::{root, tell};
use kube::ResourceExt;
use kube::api::ListParams;

/// The one profile that is there to be refused.
const REFUSED: &str = "refused";

#[tokio::test]
async fn the_examples_do_what_they_say() -> Result<()> {
    tell("examples", async |story| {
        story.apply(&std::fs::read_to_string(root().join("examples/quickstart.yaml"))?).await?;
        story.expect_ready::<Topic>("orders", 90).await?;
        story.apply(&std::fs::read_to_string(root().join("examples/profiles.yaml"))?).await?;
        let profiles = story.api::<ConsumerProfile>().list(&ListParams::default()).await?.items;
        ensure!(profiles.iter().any(|profile| profile.name_any() == REFUSED), "one is to be refused");
        for profile in profiles {
            let name = profile.name_any();
            let status = if name == REFUSED { "False" } else { "True" };
            story.expect_condition::<ConsumerProfile>(&name, "Ready", status, 30).await?;
            let written = story.config_map(&format!("{name}-consumer")).await;
            ensure!(written.is_ok() == (name != REFUSED), "{name}: settings are written when they work: {written:?}");
        }
        Ok(())
    })
    .await
}
