//! Rebalances by table: `testdata/rebalance/*.yaml` say how things are and what is to be done next.

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
    /// Replicas of `t-0`, `t-1` and so on.
    partitions: Vec<Vec<i32>>,
    #[serde(default)]
    held: bool,
    #[serde(default)]
    not_ready: Vec<i32>,
    /// The spec does not ask for it (any more).
    #[serde(default)]
    unwanted: bool,
    #[serde(default)]
    begun: bool,
    /// Indexes of `t` that are on their way, and where they go.
    #[serde(default)]
    moving: BTreeMap<i32, Vec<i32>>,
    /// Indexes of `t` of which a replica is not in sync.
    #[serde(default)]
    behind: Vec<i32>,
    #[serde(default)]
    throttled: bool,
    #[serde(default)]
    racks: BTreeMap<i32, String>,
    #[serde(default)]
    unreachable: bool,
    step: String,
}

fn brokers(case: &Case) -> BrokersSeen {
    let partition = |(index, replicas): (i32, &Vec<i32>)| {
        let behind = usize::from(case.behind.contains(&index));
        let in_sync = replicas.iter().copied().skip(behind).collect();
        PartitionSeen { topic: "t".to_owned(), index, replicas: replicas.clone(), in_sync, min_in_sync: 1 }
    };
    let partitions = (0..).zip(&case.partitions).map(partition).collect();
    BrokersSeen { partitions, quorum_leader: Some(0), voters: vec![0, 1, 2] }
}

fn step_of(case: &Case) -> Step {
    let brokers = if case.unreachable { Err("no answer".to_owned()) } else { Ok(brokers(case)) };
    let moves = Ok(MovesSeen {
        moving: case.moving.iter().map(|(index, to)| (("t".to_owned(), *index), to.clone())).collect(),
        throttled: case.throttled.then(|| "t".to_owned()).into_iter().collect(),
        at_work: (0..case.staying).map(|id| (id, case.racks.get(&id).cloned())).collect(),
        ..MovesSeen::default()
    });
    next(&Situation {
        staying: case.staying,
        held: case.held,
        not_ready: &case.not_ready,
        brokers: &brokers,
        moves: &moves,
        wanted: !case.unwanted,
        begun: case.begun,
    })
}

fn text_of(step: Step) -> String {
    match step {
        Step::Nothing => "nothing".to_owned(),
        Step::Wait(why) => format!("wait: {why}"),
        Step::Move { moves, text } => {
            let moves = moves.iter().map(|one| format!("{}-{} to {:?}", one.topic, one.index, one.to));
            format!("move {} ({text})", moves.collect::<Vec<_>>().join("; "))
        }
        Step::Unthrottle { topics, text } => format!("unthrottle {topics:?} ({text})"),
    }
}

#[test]
fn every_case_gives_its_step() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/rebalance");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Case = serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(text_of(step_of(&case)), case.step, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 12, "only {seen} cases");
}

/// Does what is asked for until nothing is, and gives the moves that it took.
fn settle(case: &mut Case) -> usize {
    let mut moved = 0;
    case.begun = false;
    while let Step::Move { moves, .. } = step_of(case) {
        moved += moves.len();
        for one in moves {
            case.partitions[usize::try_from(one.index).unwrap()] = one.to;
        }
        case.begun = true;
    }
    moved
}

#[test]
fn two_new_brokers_get_their_share_of_replicas_and_leaders_by_the_fewest_moves_and_racks_stay_apart() {
    let text = "{staying: 5, partitions: [], racks: {0: a, 1: b, 2: c, 3: a, 4: b}, step: ''}";
    let mut case: Case = serde_yaml_ng::from_str(text).unwrap();
    case.partitions = (0..300).map(|index| (0..3).map(|place| (index + place) % 3).collect()).collect();
    let moved = settle(&mut case);
    let mut replicas = BTreeMap::new();
    let mut leaders = BTreeMap::new();
    for partition in &case.partitions {
        partition.iter().for_each(|id| *replicas.entry(*id).or_insert(0) += 1);
        *leaders.entry(partition[0]).or_insert(0) += 1;
        let mut racks: Vec<_> = partition.iter().map(|id| case.racks[id].clone()).collect();
        racks.sort();
        assert_eq!(racks, ["a", "b", "c"], "{partition:?}");
    }
    // Rack c has only broker 2, so it keeps a replica of each; 600 are left for the four others.
    assert_eq!(replicas[&2], 300);
    assert!([0, 1, 3, 4].iter().all(|id| (120..=180).contains(&replicas[id])), "{replicas:?}");
    // A third of what the new ones get was led by whom it came from; broker 2, alone in its rack, can't give any away.
    assert!([3, 4].iter().all(|id| leaders[id] >= 40) && leaders.values().all(|count| *count <= 100), "{leaders:?}");
    let gained: i32 = replicas[&3] + replicas[&4];
    assert_eq!(i32::try_from(moved), Ok(gained), "each move gives a new broker a replica, and none moves twice");
    assert!(matches!(step_of(&case), Step::Nothing), "{:?}", step_of(&case));
}
