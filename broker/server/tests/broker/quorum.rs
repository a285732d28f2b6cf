//! Several brokers with one metadata: found together, kept by a majority, never by brokers that know nothing.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forebay_broker_wire::messages::describe_quorum::{DescribeQuorumRequest, RequestPartitionData, RequestTopicData};
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataResponse};
use tempfile::TempDir;

use crate::create_topics::{create, topic};
use crate::harness::{BrokerProcess, Client, eventually};

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Brokers in processes of their own.
pub(crate) struct Cluster {
    dir: TempDir,
    /// Who votes, by the configuration of brokers that start from now on.
    voters: Vec<usize>,
    controller_ports: Vec<u16>,
    pub(crate) brokers: Vec<Option<BrokerProcess>>,
    extra: Vec<String>,
}

impl Cluster {
    /// Brokers that are not started yet.
    fn of(count: usize) -> Self {
        // Bound together, so that no port is given twice; free again when the brokers start.
        let bound: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let controller_ports = bound.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        let brokers = (0..count).map(|_| None).collect();
        let (dir, voters) = (tempfile::tempdir().unwrap(), vec![0, 1, 2]);
        Self { dir, voters, controller_ports, brokers, extra: Vec::new() }
    }

    fn started(count: usize) -> Self {
        Self::started_with(count, &[])
    }

    pub(crate) fn started_with(count: usize, settings: &[&str]) -> Self {
        let mut cluster = Self::of(count);
        cluster.extra = settings.iter().map(|setting| (*setting).to_owned()).collect();
        cluster.start(&(0..count).collect::<Vec<_>>());
        cluster
    }

    fn path(&self, id: usize) -> PathBuf {
        self.dir.path().join(id.to_string())
    }

    fn settings(&self, id: usize) -> Vec<String> {
        let voter = |voter: &usize| format!("{voter}@127.0.0.1:{}", self.controller_ports[*voter]);
        let voters: Vec<String> = self.voters.iter().map(voter).collect();
        let own = [
            format!("node.id={id}"),
            format!("listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{}", self.controller_ports[id]),
            format!("controller.quorum.voters={}", voters.join(",")),
            format!("forebay.cluster.id={CLUSTER_ID}"),
        ];
        own.into_iter().chain(self.extra.iter().cloned()).collect()
    }

    /// Starts brokers together, as none of them serves before a majority is there.
    pub(crate) fn start(&mut self, ids: &[usize]) {
        let started: Vec<(usize, BrokerProcess)> = std::thread::scope(|scope| {
            let start = |id: &usize| {
                let (id, path, settings) = (*id, self.path(*id), self.settings(*id));
                scope.spawn(move || (id, start_one(&path, &settings).unwrap()))
            };
            let starting: Vec<_> = ids.iter().map(start).collect();
            starting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (id, broker) in started {
            self.brokers[id] = Some(broker);
        }
    }

    pub(crate) fn broker(&self, id: usize) -> &BrokerProcess {
        self.brokers[id].as_ref().unwrap()
    }

    pub(crate) fn client(&self, id: usize) -> Client {
        self.broker(id).client()
    }

    pub(crate) fn kill(&mut self, id: usize) {
        self.brokers[id].take().unwrap().kill();
    }

    fn lose_disk(&self, id: usize) {
        std::fs::remove_dir_all(self.path(id).join("data")).unwrap();
    }

    /// Who leads the quorum, by its own word.
    pub(crate) fn leader(&self) -> usize {
        eventually("somebody leads", || {
            let running = self.brokers.iter().enumerate().filter_map(|(id, broker)| Some((id, broker.as_ref()?)));
            running.into_iter().find(|(_, broker)| metric(broker, "forebay_quorum_leader") == 1).map(|(id, _)| id)
        })
    }

    fn voters(&self, id: usize) -> i64 {
        metric(self.broker(id), "forebay_quorum_voters")
    }
}

fn start_one(path: &Path, settings: &[String]) -> Result<BrokerProcess, Vec<String>> {
    std::fs::create_dir_all(path).unwrap();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    BrokerProcess::try_start(path, &settings)
}

pub(crate) fn metric(broker: &BrokerProcess, name: &str) -> i64 {
    let text = broker.http_get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(-1, |value| value.trim().parse().unwrap())
}

fn topics(client: &mut Client) -> Vec<String> {
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let answer: MetadataResponse = client.call(&all, 12);
    let mut names: Vec<String> = answer.topics.iter().map(|topic| topic.name.clone().unwrap().to_string()).collect();
    names.sort();
    names
}

fn create_one(client: &mut Client, name: &str) {
    assert_eq!(create(client, topic(name, 1, &[])).error_code, 0, "{name}");
}

#[test]
fn three_brokers_are_one_cluster_and_two_go_on() {
    let mut cluster = Cluster::started(3);
    create_one(&mut cluster.client(2), "by-2");
    for id in 0..3 {
        eventually("all see it", || (topics(&mut cluster.client(id)) == ["by-2"]).then_some(()));
    }
    for round in 0..3 {
        let leader = cluster.leader();
        cluster.kill(leader);
        let name = format!("without-{round}");
        create_one(&mut cluster.client((leader + 1) % 3), &name);
        eventually("both see it", || topics(&mut cluster.client((leader + 2) % 3)).contains(&name).then_some(()));
        cluster.start(&[leader]);
        eventually("it comes back", || topics(&mut cluster.client(leader)).contains(&name).then_some(()));
    }
    let before = topics(&mut cluster.client(0));
    (0..3).for_each(|id| cluster.kill(id));
    cluster.start(&[0, 1, 2]);
    for id in 0..3 {
        assert_eq!(topics(&mut cluster.client(id)), before, "broker {id} after a stop of all");
    }
}

#[test]
fn a_leader_that_nobody_answers_leads_no_more_and_the_cluster_goes_on_when_somebody_does() {
    let cluster = Cluster::started(3);
    create_one(&mut cluster.client(0), "before");
    let leader = cluster.leader();
    let signal_others = |signal: &str| {
        for id in (0..3).filter(|id| *id != leader) {
            let pid = cluster.broker(id).id().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        }
    };
    signal_others("-STOP");
    let leads = || metric(cluster.broker(leader), "forebay_quorum_leader") == 1;
    eventually("it is cut off", || (!leads()).then_some(()));
    assert!(cluster.broker(leader).said("this broker is the controller no more").is_some());
    signal_others("-CONT");
    let leader = cluster.leader();
    create_one(&mut cluster.client(leader), "after");
    for id in 0..3 {
        eventually("all see it", || (topics(&mut cluster.client(id)) == ["after", "before"]).then_some(()));
    }
}

#[test]
fn a_voter_that_lost_its_disk_votes_again_under_a_new_identity_when_it_has_the_metadata() {
    let mut cluster = Cluster::started(3);
    create_one(&mut cluster.client(0), "kept");
    let wiped = (cluster.leader() + 1) % 3;
    for what in ["data", "data/__cluster_metadata-0"] {
        cluster.kill(wiped);
        std::fs::remove_dir_all(cluster.path(wiped).join(what)).unwrap();
        cluster.start(&[wiped]);
        eventually("it has the metadata", || (topics(&mut cluster.client(wiped)) == ["kept"]).then_some(()));
    }
    let settled =
        |cluster: &Cluster| cluster.voters(wiped) == 3 && metric(cluster.broker(wiped), "forebay_quorum_learners") == 0;
    eventually("it votes", || settled(&cluster).then_some(()));
    // Its vote counts: with it two of three are left.
    let other = (0..3).find(|id| *id != wiped && *id != cluster.leader()).unwrap();
    cluster.kill(other);
    create_one(&mut cluster.client(wiped), "with-its-vote");
}

#[test]
fn two_brokers_that_lost_their_disks_make_no_metadata_without_the_third() {
    let mut cluster = Cluster::started(3);
    create_one(&mut cluster.client(0), "kept");
    (0..3).for_each(|id| cluster.kill(id));
    cluster.lose_disk(1);
    cluster.lose_disk(2);
    let waiting = |cluster: &Cluster, id: usize| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay-broker"));
        command.args(["--config".as_ref(), cluster.path(id).join("broker.properties").as_os_str()]);
        command.args(cluster.settings(id).iter().flat_map(|setting| ["--set".to_owned(), setting.clone()]));
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut alone: Vec<_> = [1, 2].iter().map(|id| waiting(&cluster, *id)).collect();
    std::thread::sleep(Duration::from_secs(3));
    for (id, process) in [1, 2].iter().zip(&mut alone) {
        assert!(process.try_wait().unwrap().is_none(), "broker {id} waits");
        let log = cluster.path(*id).join("data/__cluster_metadata-0/00000000000000000000.log");
        assert_eq!(std::fs::metadata(log).unwrap().len(), 0, "broker {id} has begun metadata of its own");
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn a_broker_of_another_cluster_is_refused_and_both_say_why() {
    let cluster = Cluster::started(3);
    let mut settings = cluster.settings(1);
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    settings.push("node.id=7".to_owned());
    settings.push(format!("listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{own}"));
    settings.push("forebay.cluster.id=BBBBBBBBBBBBBBBBBBBBBB".to_owned());
    let path = cluster.path(7);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::copy(cluster.path(0).join("broker.properties"), path.join("broker.properties")).unwrap();
    settings.push(format!("log.dirs={}", path.join("data").display()));
    let mut other = std::process::Command::new(env!("CARGO_BIN_EXE_forebay-broker"))
        .args(["--config".as_ref(), path.join("broker.properties").as_os_str()])
        .args(settings.iter().flat_map(|setting| ["--set", setting]))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let words = "broker 7 belongs to cluster BBBBBBBBBBBBBBBBBBBBBB, this is cluster AAAAAAAAAAAAAAAAAAAAAA (forebay.cluster.id)";
    eventually("it is refused", || cluster.broker(0).said(words));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_voter_does_not_go_on_alone_when_its_configuration_forgets_the_others() {
    let mut cluster = Cluster::started(3);
    (0..3).for_each(|id| cluster.kill(id));
    let settings = ["node.id=0", "listeners=PLAINTEXT://127.0.0.1:0"].map(str::to_owned);
    let said = start_one(&cluster.path(0), &settings).err().unwrap().join("\n");
    assert!(said.contains("controller.quorum.voters must name them; a broker alone can't go on for them"), "{said}");
}

#[test]
fn brokers_beyond_the_voters_have_the_metadata_and_do_not_vote() {
    let mut cluster = Cluster::of(4);
    cluster.start(&[0, 1, 2]);
    cluster.start(&[3]);
    create_one(&mut cluster.client(3), "by-a-learner");
    eventually("all see it", || (topics(&mut cluster.client(0)) == ["by-a-learner"]).then_some(()));
    assert_eq!((cluster.voters(3), metric(cluster.broker(3), "forebay_quorum_learners")), (3, 1));
    cluster.kill(3);
    create_one(&mut cluster.client(0), "without-it");
    cluster.start(&[3]);
    eventually("it catches up", || topics(&mut cluster.client(3)).contains(&"without-it".to_owned()).then_some(()));
}

#[test]
fn brokers_that_join_at_once_are_let_in_one_after_another_without_an_error() {
    let cluster = Cluster::started(8);
    eventually("all are in", || (metric(cluster.broker(0), "forebay_quorum_learners") == 5).then_some(()));
    let said = cluster.brokers.iter().flatten().flat_map(BrokerProcess::all_said);
    let errors: Vec<_> = said.filter(|line| line.contains("undergoing a configuration change")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn those_vote_whom_the_configuration_names() {
    let mut cluster = Cluster::of(4);
    cluster.voters = vec![0];
    cluster.start(&[0]);
    create_one(&mut cluster.client(0), "kept");
    // One becomes three, three become others; the brokers learn of it one after another.
    for voters in [vec![0, 1, 2], vec![1, 2, 3]] {
        cluster.voters.clone_from(&voters);
        for id in 0..4 {
            if let Some(broker) = cluster.brokers[id].take() {
                assert!(broker.terminate(), "a clean end");
            }
            cluster.start(&[id]);
        }
        let named: Vec<i64> = voters.iter().map(|id| i64::try_from(*id).unwrap()).collect();
        eventually("they vote", || {
            let votes = |id: &usize| described_voters(&mut cluster.client(*id)) == named;
            [0, 1, 2, 3].iter().all(votes).then_some(())
        });
    }
    cluster.kill(0);
    cluster.kill(3);
    create_one(&mut cluster.client(1), "by-1-and-2");
    assert_eq!(topics(&mut cluster.client(2)), ["by-1-and-2", "kept"]);
}

fn described_voters(client: &mut Client) -> Vec<i64> {
    let partitions = vec![RequestPartitionData { partition_index: 0 }];
    let topics = vec![RequestTopicData { topic_name: "__cluster_metadata".into(), partitions }];
    let answer = client.call(&DescribeQuorumRequest { topics }, 2);
    let voters = answer.topics.iter().flat_map(|topic| &topic.partitions).flat_map(|one| &one.current_voters);
    voters.map(|voter| i64::from(voter.replica_id)).collect()
}

#[test]
fn a_broker_that_was_away_for_long_gets_a_snapshot_and_goes_on_behind_it() {
    let mut cluster = Cluster::started_with(3, &["metadata.log.max.record.bytes.between.snapshots=4000"]);
    create_one(&mut cluster.client(0), "before");
    let away = (cluster.leader() + 1) % 3;
    cluster.kill(away);
    let mut client = cluster.client((away + 1) % 3);
    for number in 0..60 {
        create_one(&mut client, &format!("meanwhile-{number:02}"));
    }
    let metadata = |id: usize| cluster.path(id).join("data/__cluster_metadata-0");
    let begins_at_0 = |id: usize| metadata(id).join("00000000000000000000.log").exists();
    eventually("the log is shortened", || (!begins_at_0((away + 1) % 3) && !begins_at_0((away + 2) % 3)).then_some(()));
    cluster.start(&[away]);
    create_one(&mut client, "after");
    let all = topics(&mut client);
    assert_eq!(all.len(), 62);
    eventually("it has all", || (topics(&mut cluster.client(away)) == all).then_some(()));
    // What it was given outlives the process.
    cluster.kill(away);
    cluster.start(&[away]);
    eventually("it has all still", || (topics(&mut cluster.client(away)) == all).then_some(()));
}
