//! `forebay group`.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use comfy_table::Table;
use forebay_broker_client::admin::{CommittedOffset, Each, GroupDescription, GroupMember, OffsetSpec};
use forebay_broker_client::types::{ErrorCode, Offset};
use forebay_broker_client::{Admin, TopicPartition};
use serde::Serialize;

use super::all_done;
use crate::args::{GroupArgs, GroupCommand, Output, ResetTo};
use crate::output::table;

pub(crate) async fn run(args: GroupArgs) -> anyhow::Result<()> {
    let admin = args.remote.admin().await?;
    let output = &args.remote.output;
    match args.command {
        GroupCommand::List => list(&admin, output).await,
        GroupCommand::Describe { groups } => describe(&admin, output, &groups).await,
        GroupCommand::Delete { groups } => delete(&admin, output, &groups).await,
        GroupCommand::ResetOffsets { group, topics, to, dry_run } => {
            let moves = plan_reset(&admin, &group, &topics, &to).await?;
            reset(&admin, output, &group, moves, dry_run).await
        }
    }
}

async fn list(admin: &Admin, output: &Output) -> anyhow::Result<()> {
    output.print(&admin.list_groups().await?, |groups| {
        let mut t = table(["group", "state", "type"]);
        groups.iter().for_each(|g| {
            t.add_row([&g.group, &g.state, &g.kind]);
        });
        t
    })
}

/// One partition as a group sees it.
#[derive(Serialize)]
struct Position {
    #[serde(flatten)]
    partition: TopicPartition,
    /// None when nothing is committed.
    committed: Option<Offset>,
    /// None when the partition can't be asked.
    end: Option<Offset>,
    /// End less committed, never negative; none when one of them is not known.
    lag: Option<i64>,
    /// Who reads it.
    member_id: Option<String>,
}

#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    group: GroupDescription,
    positions: Vec<Position>,
}

async fn describe(admin: &Admin, output: &Output, groups: &[String]) -> anyhow::Result<()> {
    let names: Vec<&str> = groups.iter().map(String::as_str).collect();
    let mut described = Vec::new();
    for (name, group) in all_done(admin.describe_groups(&names).await?, "group")? {
        // Committed first, then the end: the other way round lag could be negative.
        let committed = admin.committed_offsets(&name).await?;
        let assigned: BTreeMap<TopicPartition, &GroupMember> =
            group.members.iter().flat_map(|m| m.assigned.iter().map(move |tp| (tp.clone(), m))).collect();
        let mut partitions: Vec<TopicPartition> = committed.keys().chain(assigned.keys()).cloned().collect();
        partitions.sort();
        partitions.dedup();
        let ends = ends(admin, &partitions).await?;
        let positions = partitions.into_iter().map(|tp| position(tp, &committed, &ends, &assigned)).collect();
        described.push(Described { group, positions });
    }
    output.print(&described, |rows| shown(rows))
}

async fn ends(admin: &Admin, partitions: &[TopicPartition]) -> anyhow::Result<BTreeMap<TopicPartition, Offset>> {
    let wanted: Vec<_> = partitions.iter().map(|tp| (tp.clone(), OffsetSpec::Latest)).collect();
    let listed = admin.list_offsets(&wanted).await?;
    Ok(listed.into_iter().filter_map(|(tp, end)| Some((tp, end.ok()?.offset))).collect())
}

fn position(
    partition: TopicPartition,
    committed: &Each<TopicPartition, CommittedOffset>,
    ends: &BTreeMap<TopicPartition, Offset>,
    assigned: &BTreeMap<TopicPartition, &GroupMember>,
) -> Position {
    let committed = committed.get(&partition).and_then(|c| c.as_ref().ok()).map(|c| c.offset);
    let end = ends.get(&partition).copied();
    Position {
        committed,
        end,
        lag: committed.zip(end).map(|(committed, end)| (end.0 - committed.0).max(0)),
        member_id: assigned.get(&partition).map(|m| m.member_id.clone()),
        partition,
    }
}

fn shown(rows: &[Described]) -> Table {
    let mut t = table(["group", "state", "topic", "partition", "committed", "end", "lag", "member"]);
    let number = |n: Option<i64>| n.map_or("-".to_owned(), |n| n.to_string());
    for row in rows {
        if row.positions.is_empty() {
            t.add_row([&row.group.group, &row.group.state, "", "", "", "", "", ""]);
        }
        for p in &row.positions {
            t.add_row([
                row.group.group.clone(),
                row.group.state.clone(),
                p.partition.topic.clone(),
                p.partition.partition.to_string(),
                number(p.committed.map(|o| o.0)),
                number(p.end.map(|o| o.0)),
                number(p.lag),
                p.member_id.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
    }
    t
}

async fn delete(admin: &Admin, output: &Output, groups: &[String]) -> anyhow::Result<()> {
    let names: Vec<&str> = groups.iter().map(String::as_str).collect();
    let deleted = all_done(admin.delete_groups(&names).await?, "group")?;
    let deleted: Vec<String> = deleted.into_iter().map(|(name, ())| name).collect();
    output.say(&deleted, |names| format!("{} deleted", names.join(", ")))
}

/// One partition's move.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Move {
    #[serde(flatten)]
    partition: TopicPartition,
    from: Option<Offset>,
    to: Offset,
    /// Where it was to go, if that is not within the partition's records.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<Offset>,
}

async fn plan_reset(admin: &Admin, group: &str, topics: &[String], to: &ResetTo) -> anyhow::Result<Vec<Move>> {
    let committed: BTreeMap<TopicPartition, Offset> = {
        let all = admin.committed_offsets(group).await?;
        all.into_iter().filter_map(|(tp, c)| Some((tp, c.ok()?.offset))).collect()
    };
    let partitions = selected(admin, topics, &committed).await?;
    let list = async |spec| {
        let wanted: Vec<_> = partitions.iter().map(|tp| (tp.clone(), spec)).collect();
        let found = all_done(admin.list_offsets(&wanted).await?, "partition")?;
        anyhow::Ok(found.into_iter().map(|(tp, o)| (tp, o.offset)).collect::<BTreeMap<_, _>>())
    };
    let (first, end) = (list(OffsetSpec::Earliest).await?, list(OffsetSpec::Latest).await?);
    let at_time = match to.to_timestamp {
        Some(ms) => list(OffsetSpec::Timestamp(ms)).await?,
        None => BTreeMap::new(),
    };
    let moves = partitions.into_iter().map(|tp| {
        let (low, high) = (first[&tp], end[&tp]);
        let from = committed.get(&tp).copied();
        let asked = target(to, low, high, from, at_time.get(&tp).copied())
            .with_context(|| format!("partition {tp} has no committed offset to shift"))?;
        Ok(within(tp, from, asked, low, high))
    });
    moves.collect()
}

/// The partitions meant: those named, or all that have an offset.
async fn selected(
    admin: &Admin,
    topics: &[String],
    committed: &BTreeMap<TopicPartition, Offset>,
) -> anyhow::Result<Vec<TopicPartition>> {
    if topics.is_empty() {
        if committed.is_empty() {
            bail!("the group has no committed offsets: say which partitions with --topic");
        }
        return Ok(committed.keys().cloned().collect());
    }
    let mut partitions = Vec::new();
    for given in topics {
        // A topic's name has no colon, so what follows one is a partition.
        match given.split_once(':') {
            Some((topic, index)) => {
                let index = index.parse().with_context(|| format!("--topic {given}: {index:?} is no partition"))?;
                partitions.push(TopicPartition::new(topic, index));
            }
            None => {
                for (name, topic) in all_done(admin.describe_topics(&[given]).await?, "topic")? {
                    partitions.extend(topic.partitions.iter().map(|p| TopicPartition::new(&name, p.index)));
                }
            }
        }
    }
    Ok(partitions)
}

/// A move that is kept within the partition's records.
fn within(partition: TopicPartition, from: Option<Offset>, asked: Offset, low: Offset, high: Offset) -> Move {
    let to = Offset(asked.0.clamp(low.0, high.0));
    Move { partition, from, to, asked: (asked != to).then_some(asked) }
}

/// Where a partition goes, by the words of the command line; none when there is nothing to shift from.
fn target(to: &ResetTo, low: Offset, high: Offset, from: Option<Offset>, at_time: Option<Offset>) -> Option<Offset> {
    Some(if to.to_earliest {
        low
    } else if let Some(offset) = to.to_offset {
        Offset(offset)
    } else if let Some(records) = to.shift_by {
        Offset(from?.0.saturating_add(records))
    } else {
        at_time.filter(|o| o.0 >= 0).unwrap_or(high) // no record so late: the end
    })
}

async fn reset(admin: &Admin, output: &Output, group: &str, moves: Vec<Move>, dry_run: bool) -> anyhow::Result<()> {
    for Move { partition, to, asked, .. } in &moves {
        if let Some(asked) = asked {
            eprintln!("note: {partition} has no offset {asked}: {to} is as far as it goes");
        }
    }
    if !dry_run {
        let offsets: Vec<_> = moves.iter().map(|m| (m.partition.clone(), m.to)).collect();
        let committed = admin.commit_offsets(group, &offsets).await?;
        // Only members may commit to a group that has some, and no member is named here.
        if committed.values().any(|one| one.as_ref().is_err_and(|error| error.code == ErrorCode::UnknownMemberId)) {
            bail!("group {group} has members: end them first, then reset its offsets");
        }
        all_done(committed, "partition")?;
    }
    output.print(&moves, |moves| {
        let mut t = table(["topic", "partition", "from", "to"]);
        moves.iter().for_each(|m| {
            let from = m.from.map_or("-".to_owned(), |o| o.0.to_string());
            t.add_row([m.partition.topic.clone(), m.partition.partition.to_string(), from, m.to.0.to_string()]);
        });
        t
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: ResetTo =
        ResetTo { to_earliest: false, to_latest: false, to_offset: None, to_timestamp: None, shift_by: None };

    fn moved(to: &ResetTo, from: Option<i64>, at_time: Option<i64>) -> Option<Move> {
        let (low, high, from) = (Offset(10), Offset(50), from.map(Offset));
        let asked = target(to, low, high, from, at_time.map(Offset))?;
        Some(within(TopicPartition::new("t", 0), from, asked, low, high))
    }

    fn to(to: &ResetTo, from: Option<i64>, at_time: Option<i64>) -> Option<i64> {
        Some(moved(to, from, at_time)?.to.0)
    }

    #[test]
    fn offsets_stay_within_what_the_partition_has() {
        assert_eq!(to(&ResetTo { to_earliest: true, ..NOWHERE }, None, None), Some(10));
        assert_eq!(to(&ResetTo { to_latest: true, ..NOWHERE }, None, None), Some(50));
        assert_eq!(to(&ResetTo { to_offset: Some(7), ..NOWHERE }, None, None), Some(10));
        assert_eq!(to(&ResetTo { to_offset: Some(99), ..NOWHERE }, None, None), Some(50));
        assert_eq!(to(&ResetTo { shift_by: Some(-100), ..NOWHERE }, Some(20), None), Some(10));
        assert_eq!(to(&ResetTo { shift_by: Some(5), ..NOWHERE }, Some(20), None), Some(25));
    }

    #[test]
    fn an_offset_that_is_cut_is_told() {
        let asked = |to: &ResetTo| moved(to, Some(20), None).unwrap().asked.map(|offset| offset.0);
        assert_eq!(asked(&ResetTo { to_offset: Some(99), ..NOWHERE }), Some(99));
        assert_eq!(asked(&ResetTo { shift_by: Some(-100), ..NOWHERE }), Some(-80));
        assert_eq!(asked(&ResetTo { to_offset: Some(50), ..NOWHERE }), None);
    }

    #[test]
    fn a_time_after_the_last_record_means_the_end() {
        let at = ResetTo { to_timestamp: Some(1), ..NOWHERE };
        assert_eq!(to(&at, None, Some(30)), Some(30));
        assert_eq!(to(&at, None, Some(-1)), Some(50));
    }

    #[test]
    fn what_has_no_offset_can_not_be_shifted() {
        assert_eq!(to(&ResetTo { shift_by: Some(1), ..NOWHERE }, None, None), None);
    }
}
