//! Looks again and again whether committed offsets go back.
//!
//! A commit that a client gave up may arrive after a later one: it waited in a connection that was cut, and the member went on over another.
//! The protocol can't tell it from a consumer that means to go back. So an acknowledged commit is lost only if it isn't in the group's log
//! before what is found in its place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use forebay_broker_client::types::Offset;
use forebay_broker_client::{Admin, Client, Consumer, FetchConfig, TopicPartition};
use forebay_broker_wire::messages::Data;
use forebay_broker_wire::messages::data::{OffsetCommitKey, OffsetCommitValue};

use super::group;
use crate::ledger::Ledger;
use crate::readback;

const LOOK_EVERY: Duration = Duration::from_secs(3);
const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Looks until it is ended.
pub(super) async fn look(client: Client, topic: &'static str, ledger: Arc<Ledger>) {
    let (admin, group) = (Admin::new(client.clone()), group(topic));
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let least = ledger.least_committed();
        match admin.committed_offsets(&group).await {
            Ok(found) => {
                for (tp, at_least) in least.into_iter().filter(|(tp, least)| tp.topic == topic && *least > 0) {
                    match found.get(&tp) {
                        Some(Ok(committed)) if committed.offset.0 >= at_least => {}
                        Some(Err(error)) => ledger.error(format!("committed offset of {tp}: {error}")),
                        Some(Ok(committed)) => went_back(&client, &tp, (at_least, committed.offset.0), &ledger).await,
                        None => ledger.problem(format!("{group} had committed {at_least} of {tp}, and now has none")),
                    }
                }
            }
            Err(error) => ledger.error(format!("committed offsets of {group}: {error}")),
        }
    }
}

async fn went_back(client: &Client, tp: &TopicPartition, (at_least, now): (i64, i64), ledger: &Ledger) {
    let back = format!("{} had committed {at_least} of {tp}, and now has {now}", group(&tp.topic));
    match all_commits(client, tp).await {
        Ok(commits) if was_overwritten(&commits, at_least, now) => {
            ledger.error(format!("an earlier commit of {} came late: nothing is lost", group(&tp.topic)));
        }
        Ok(_) => ledger.problem(back),
        Err(error) => ledger.problem(format!("{back}; its log can't be read: {error:#}")),
    }
}

/// Whether the commit is there, and what was found came after it.
fn was_overwritten(commits: &[i64], at_least: i64, now: i64) -> bool {
    let acknowledged = commits.iter().position(|offset| *offset >= at_least);
    acknowledged.is_some_and(|at| commits[at..].contains(&now))
}

/// The group's commits of a partition, as they are in its log.
async fn all_commits(client: &Client, tp: &TopicPartition) -> Result<Vec<i64>> {
    let key = OffsetCommitKey {
        group: group(&tp.topic).as_str().into(),
        topic: tp.topic.as_str().into(),
        partition: tp.partition,
    };
    let key = key.to_key_bytes().context("the key")?;
    let topics = Admin::new(client.clone()).describe_topics(&[OFFSETS_TOPIC]).await?;
    let described = topics.get(OFFSETS_TOPIC).context("no offsets topic")?.clone()?;
    let partitions = u16::try_from(described.partitions.len()).context("its partitions")?;
    let ends = readback::ends(client, &[OFFSETS_TOPIC], partitions).await?;
    let mut consumer = Consumer::new(client, FetchConfig::default());
    consumer.assign(ends.keys().map(|tp| (tp.clone(), Offset(0))).collect());
    let mut commits = BTreeMap::new();
    while ends.iter().any(|(tp, end)| consumer.positions().get(tp).is_none_or(|position| position.0 < *end)) {
        for record in consumer.poll().await? {
            if let (true, Some(value)) = (record.key.as_ref() == Some(&key), record.value) {
                commits.insert(record.offset.0, offset_of(value)?);
            }
        }
    }
    Ok(commits.into_values().collect())
}

fn offset_of(value: Bytes) -> Result<i64> {
    Ok(OffsetCommitValue::from_prefixed_bytes(value).context("a commit's value")?.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_lost_unless_it_stands_before_what_is_found() {
        assert!(was_overwritten(&[100, 200, 300, 200], 300, 200), "200 came again");
        assert!(!was_overwritten(&[100, 200], 300, 200));
        assert!(!was_overwritten(&[100, 200, 300], 300, 200), "it is there, and is not shown");
    }
}
