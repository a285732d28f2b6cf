//! Rolls by table: `testdata/roll/*.yaml` say how things are and what is to be done next.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::{Marks, Situation, Step, Template, asks_brokers, next};
use crate::cluster::observe::PodSeen;
use crate::kafka::brokers::{BrokersSeen, PartitionSeen};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Case {
    pods: Vec<Pod>,
    #[serde(default)]
    partitions: Vec<Partition>,
    /// The broker that leads the metadata quorum; none: the brokers do not answer.
    leader: Option<i32>,
    /// No maintenance window is open.
    #[serde(default)]
    closed: bool,
    #[serde(default)]
    unchanged_for_seconds: u64,
    /// The disks of a new pod.
    #[serde(default)]
    disks: Vec<String>,
    step: String,
    /// Topics that are named because they have no replica to spare.
    without_spare: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pod {
    id: i32,
    /// `old` or `new`, or another image than the wanted one.
    has: String,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    deleting: bool,
    #[serde(default)]
    restart: bool,
    recovers: Option<String>,
    message: Option<String>,
    /// A claim whose file system grows when it is mounted anew.
    growth: Option<String>,
    #[serde(default)]
    disks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Partition {
    topic: String,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
    min: usize,
}

fn marks(has: &str) -> Marks {
    let checksum = Some(if has == "config" { "other" } else { "same" }.to_owned());
    let image = Some(if has == "new" || has == "config" { "new" } else { has }.to_owned());
    Marks { image, checksum, restart: None }
}

fn seen(pod: &Pod) -> PodSeen {
    let name = format!("c-broker-{}", pod.id);
    PodSeen {
        uid: format!("uid-of-{name}"),
        name,
        ordinal: pod.id,
        revision: pod.has.clone(),
        marks: marks(&pod.has),
        ready: pod.ready,
        deleting: pod.deleting,
        restart_requested: pod.restart,
        message: pod.message.clone(),
        holds_growth_of: pod.growth.iter().cloned().collect(),
        disks: pod.disks.clone(),
        ..PodSeen::default()
    }
}

fn step_of(case: &Case) -> (Step, bool) {
    let pods: Vec<PodSeen> = case.pods.iter().map(seen).collect();
    let of_pod = |pod: &Pod| Some((format!("c-broker-{}", pod.id), pod.recovers.clone()?));
    let recovering: BTreeMap<String, String> = case.pods.iter().filter_map(of_pod).collect();
    let partition = |(index, partition): (i32, &Partition)| PartitionSeen {
        topic: partition.topic.clone(),
        index,
        replicas: partition.replicas.clone(),
        in_sync: partition.in_sync.clone(),
        min_in_sync: partition.min,
    };
    let brokers = match case.leader {
        Some(leader) => Ok(BrokersSeen {
            partitions: (0..).zip(&case.partitions).map(partition).collect(),
            quorum_leader: Some(leader).filter(|leader| *leader >= 0),
            voters: vec![0, 1, 2],
        }),
        None => Err("no answer".to_owned()),
    };
    let template = Template { revision: "new".to_owned(), marks: marks("new"), disks: case.disks.clone() };
    let replicas = i32::try_from(pods.len()).unwrap();
    let situation = Situation {
        pods: &pods,
        replicas,
        template: &template,
        recovering: &recovering,
        brokers: Some(&brokers),
        closed: case.closed.then_some("closed until Sunday"),
        unchanged_for: Duration::from_secs(case.unchanged_for_seconds),
    };
    (next(&situation), asks_brokers(&pods, replicas, &template, case.closed))
}

#[test]
fn every_case_gives_its_step() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/roll");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Case = serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (step, asked) = step_of(&case);
        let (found, named) = match step {
            Step::Nothing => ("nothing".to_owned(), None),
            Step::Wait(why) => (format!("wait: {why}"), None),
            Step::WaitForWindow(why) => (format!("window: {why}"), None),
            Step::Replace(one) => {
                (format!("replace {} ({}): {}", one.name, one.reason.as_str(), one.why), one.without_spare)
            }
        };
        assert_eq!((found.as_str(), named), (case.step.as_str(), case.without_spare), "{}", path.display());
        let unasked = found == "nothing" || found.starts_with("window: ") || found.contains("is stopping");
        assert!(asked || case.pods.len() == 1 || unasked, "{found}");
        seen += 1;
    }
    assert!(seen >= 20, "only {seen} cases");
}

#[test]
fn a_whole_roll_takes_each_broker_once_and_the_leader_last() {
    let text = "{pods: [{id: 0, has: old, ready: true}, {id: 1, has: old, ready: true}, {id: 2, has: old, ready: true}], \
        leader: 2, partitions: [{topic: t, replicas: [0, 1, 2], inSync: [0, 1, 2], min: 2}], step: ''}";
    let mut case: Case = serde_yaml_ng::from_str(text).unwrap();
    let mut order = Vec::new();
    while let (Step::Replace(one), _) = step_of(&case) {
        let id = one.name.rsplit('-').next().unwrap().parse::<usize>().unwrap();
        order.push(id);
        case.pods[id].has = "new".to_owned();
        case.pods[id].ready = false;
        assert!(matches!(step_of(&case).0, Step::Wait(_) | Step::Nothing), "one at a time");
        case.pods[id].ready = true;
    }
    assert_eq!(order, [1, 0, 2]);
    assert_eq!(step_of(&case).0, Step::Nothing);
}
