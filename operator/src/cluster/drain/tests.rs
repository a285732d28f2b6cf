//! Scale-downs by table: `testdata/drain/*.yaml` say how things are and what is to be done next.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{Situation, Step, next};
use crate::kafka::brokers::{BrokersSeen, PartitionSeen};
use crate::kafka::moves::MovesSeen;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Case {
    staying: i32,
    #[serde(default)]
    leaving: Vec<i32>,
    #[serde(default)]
    not_ready: Vec<i32>,
    #[serde(default)]
    emptied: Vec<i32>,
    #[serde(default)]
    voters: Vec<i32>,
    /// Replicas of `t-0`, `t-1` and so on; what is listed under `wide` is a topic of that name.
    #[serde(default)]
    partitions: Vec<Vec<i32>>,
    #[serde(default)]
    wide: BTreeMap<String, Vec<i32>>,
    /// Indexes of `t` that are on their way.
    #[serde(default)]
    moving: Vec<i32>,
    #[serde(default)]
    throttled: bool,
    #[serde(default)]
    on_disks: BTreeMap<i32, usize>,
    #[serde(default)]
    at_work: Vec<i32>,
    #[serde(default)]
    racks: BTreeMap<i32, String>,
    room: Option<(u64, u64)>,
    #[serde(default)]
    unreachable: bool,
    step: String,
}

fn step_of(case: &Case) -> Step {
    let partition = |topic: &str, index: i32, replicas: &Vec<i32>| PartitionSeen {
        topic: topic.to_owned(),
        index,
        in_sync: replicas.clone(),
        replicas: replicas.clone(),
        min_in_sync: 1,
    };
    let of_t = (0..).zip(&case.partitions).map(|(index, replicas)| partition("t", index, replicas));
    let wide = case.wide.iter().map(|(topic, replicas)| partition(topic, 0, replicas));
    let brokers =
        BrokersSeen { partitions: of_t.chain(wide).collect(), quorum_leader: Some(0), voters: case.voters.clone() };
    let brokers = if case.unreachable { Err("no answer".to_owned()) } else { Ok(brokers) };
    let rack = |id: &i32| (*id, case.racks.get(id).cloned());
    let moves = Ok(MovesSeen {
        moving: case.moving.iter().map(|index| (("t".to_owned(), *index), Vec::new())).collect(),
        throttled: case.throttled.then(|| "t".to_owned()).into_iter().collect(),
        bytes_per_second: None,
        on_disks: case.on_disks.clone(),
        at_work: case.at_work.iter().chain(case.racks.keys()).map(rack).collect(),
    });
    next(&Situation {
        staying: case.staying,
        leaving: &case.leaving,
        not_ready: &case.not_ready,
        emptied: &case.emptied,
        brokers: &brokers,
        moves: &moves,
        room: case.room,
    })
}

fn text_of(step: Step) -> String {
    match step {
        Step::Nothing => "nothing".to_owned(),
        Step::Refuse(why) => format!("refuse: {why}"),
        Step::Wait(why) => format!("wait: {why}"),
        Step::Move { moves, text } => {
            let moves = moves.iter().map(|one| format!("{}-{} to {:?}", one.topic, one.index, one.to));
            format!("move {} ({text})", moves.collect::<Vec<_>>().join("; "))
        }
        Step::Unthrottle { topics, text } => format!("unthrottle {topics:?} ({text})"),
        Step::Emptied(ids) => format!("emptied {ids:?}"),
        Step::Unregister(id) => format!("unregister {id}"),
        Step::Refilled(id) => format!("refilled {id}"),
    }
}

#[test]
fn every_case_gives_its_step() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/drain");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Case = serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(text_of(step_of(&case)), case.step, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 15, "only {seen} cases");
}

#[test]
fn partitions_are_spread_over_those_that_stay_and_no_more_than_some_move_at_once() {
    let partitions: Vec<Vec<i32>> = (0..150).map(|index| vec![3, index % 3]).collect();
    let text = "{staying: 3, leaving: [3], voters: [0, 1, 2], atWork: [0, 1, 2, 3], step: ''}";
    let mut case: Case = serde_yaml_ng::from_str(text).unwrap();
    case.partitions = partitions;
    let Step::Move { moves, text } = step_of(&case) else { panic!("partitions are left") };
    assert_eq!(text, "broker 3: 150 partitions left, 100 more begin to move");
    let mut counts = BTreeMap::new();
    for one in &moves {
        assert!(one.to[0] < 3 && one.to[0] != one.to[1], "{one:?}");
        *counts.entry(one.to[0]).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| (30..=37).contains(count)), "{counts:?}");
}
