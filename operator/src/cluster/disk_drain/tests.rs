//! Removals by table: `testdata/disk_drain/*.yaml` say how disks are and what is to be done next.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_broker_config::status::{BrokerStatus, LogDirStatus};
use forebay_crds::cluster::Disk;
use serde::Deserialize;
use serde_json::json;

use super::{BrokerDisks, Situation, Step, next};
use crate::cluster::tests::Dir;
use crate::kafka::log_dirs::DirSeen;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Names of disks; each is at `/NAME`.
    #[serde(default)]
    removing: Vec<String>,
    brokers: Vec<Broker>,
    step: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Broker {
    id: i32,
    #[serde(default)]
    down: bool,
    /// The disks that its pod has; all that it tells of if left out.
    mounts: Option<Vec<String>>,
    /// What it says of itself; left out: nothing.
    log_dirs: Option<Vec<LogDirStatus>>,
    dirs: Option<Vec<Dir>>,
    /// Why it does not say what is on its disks.
    error: Option<String>,
}

fn disk(name: &String) -> Disk {
    serde_json::from_value(json!({"name": name, "size": "1Gi", "mountPath": format!("/{name}")})).unwrap()
}

struct Seen {
    mounts: Vec<String>,
    said: Option<BrokerStatus>,
    dirs: Option<Result<Vec<DirSeen>, String>>,
}

fn seen(broker: &Broker) -> Seen {
    let told = broker.log_dirs.iter().flatten().map(|dir| dir.path.trim_start_matches('/').to_owned());
    let dirs = broker.dirs.as_ref().map(|dirs| Ok(dirs.iter().map(Dir::seen).collect()));
    Seen {
        mounts: broker.mounts.clone().unwrap_or_else(|| told.collect()),
        said: broker.log_dirs.clone().map(|log_dirs| BrokerStatus { log_dirs, ..BrokerStatus::default() }),
        dirs: broker.error.clone().map(Err).or(dirs),
    }
}

fn step_of(case: &Case) -> Step {
    let removing: Vec<Disk> = case.removing.iter().map(disk).collect();
    let seen: Vec<Seen> = case.brokers.iter().map(seen).collect();
    let brokers = case.brokers.iter().zip(&seen).map(|(broker, seen)| BrokerDisks {
        id: broker.id,
        ready: !broker.down,
        mounts: &seen.mounts,
        said: seen.said.as_ref(),
        dirs: seen.dirs.as_ref(),
    });
    next(&Situation { removing: &removing, brokers: &brokers.collect::<Vec<_>>() })
}

fn text_of(step: Step) -> String {
    match step {
        Step::Nothing => "nothing".to_owned(),
        Step::Refuse(why) => format!("refuse: {why}"),
        Step::Wait(why) => format!("wait: {why}"),
        Step::Move { moves, text } => {
            let moves = moves.iter().map(|one| format!("{}:{}-{} to {}", one.broker, one.topic, one.index, one.to));
            format!("move {} ({text})", moves.collect::<Vec<_>>().join("; "))
        }
        Step::Emptied(disks) => format!("emptied {}", disks.join(", ")),
    }
}

#[test]
fn every_case_gives_its_step() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/disk_drain");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Case = serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(text_of(step_of(&case)), case.step, "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} cases");
}

#[test]
fn no_more_than_some_move_at_once_and_brokers_take_turns() {
    let replicas = |count: i32, bytes: u64| -> BTreeMap<String, u64> {
        (0..count).map(|index| (format!("t-{index}"), bytes)).collect()
    };
    let dirs = |count: i32, futures: i32| -> Vec<Dir> {
        let a = json!({"path": "/a", "total": 1000, "free": 900, "futures": replicas(futures, 0)});
        let b = json!({"path": "/b", "total": 1000, "free": 900, "replicas": replicas(count, 1)});
        serde_json::from_value(json!([a, b])).unwrap()
    };
    let log_dirs: Vec<LogDirStatus> = [("/a", false), ("/b", true)]
        .map(|(path, cordoned)| LogDirStatus { path: path.to_owned(), cordoned, ..LogDirStatus::default() })
        .into();
    let broker = |id, count, futures| Broker {
        id,
        down: false,
        mounts: None,
        log_dirs: Some(log_dirs.clone()),
        dirs: Some(dirs(count, futures)),
        error: None,
    };
    let brokers = vec![broker(0, 200, 10), broker(1, 200, 0), broker(2, 5, 0)];
    let case = Case { removing: vec!["b".to_owned()], brokers, step: String::new() };
    let Step::Move { moves, text } = step_of(&case) else { panic!("replicas are left") };
    assert_eq!(text, "disk b: 405 replicas left, 90 more begin to move");
    let of = |id: i32| moves.iter().filter(|one| one.broker == id).count();
    assert_eq!([of(0), of(1), of(2)], [43, 42, 5]);
}
