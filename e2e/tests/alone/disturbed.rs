//! What is done to brokers and what befalls them, one after the other under load, and then once more with the operator killed in the
//! middle of each. Nothing that was acknowledged is lost.

use anyhow::Result;
use forebay_e2e::tell;
use serde_json::json;

use super::brokers::{Brokers, Operator};

#[tokio::test]
async fn brokers_are_changed_and_disturbed_and_nothing_is_lost() -> Result<()> {
    disturbed("disturbed", Operator::Lives).await
}

#[tokio::test]
async fn an_operator_killed_in_the_middle_of_anything_goes_on_with_it() -> Result<()> {
    disturbed("operator", Operator::IsKilled).await
}

async fn disturbed(name: &str, operator: Operator) -> Result<()> {
    tell(name, async |story| {
        let more = json!({"moves": {"toNewBrokers": true}});
        let mut brokers = Brokers::begin(story, more, &[], operator).await?;
        brokers.roll_to_another_image().await?;
        brokers.roll_for_a_setting().await?;
        brokers.take_threads_and_files().await?;
        brokers.grow_their_disks().await?;
        brokers.become_five().await?;
        brokers.become_three().await?;
        brokers.meet_a_bad_image().await?;
        brokers.lose_a_pod().await?;
        brokers.lose_a_pod_and_its_claim().await?;
        brokers.lose_one_of_two_that_are_evicted().await?;
        brokers.end().await
    })
    .await
}
