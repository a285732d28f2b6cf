//! Brokers that die, freeze, stop in order and come back: who leads meanwhile, and that nobody waits longer than needed.

use std::process::Command;
use std::time::{Duration, Instant};

use forebay_broker_wire::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use forebay_broker_wire::messages::create_topics::CreatableReplicaAssignment;
use forebay_broker_wire::messages::describe_cluster::DescribeClusterRequest;
use forebay_broker_wire::messages::elect_leaders::{ElectLeadersRequest, TopicPartitions};
use forebay_broker_wire::messages::list_partition_reassignments::ListPartitionReassignmentsRequest;
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponsePartition};
use forebay_broker_wire::messages::unregister_broker::UnregisterBrokerRequest;
use forebay_broker_wire::types::ErrorCode;

use crate::create_topics::{create, topic};
use crate::harness::{Client, batch, eventually};
use crate::quorum::{Cluster, metric};

/// So long that whatever happens sooner does not happen because a session is over.
const LONG_SESSIONS: &str = "broker.session.timeout.ms=600000";
const STAY: &str = "auto.leader.rebalance.enable=false";

/// Partition 0 of topic `t` on these brokers, the first one leading.
fn place(cluster: &Cluster, replicas: &[usize]) {
    let broker_ids = replicas.iter().map(|id| i32::try_from(*id).unwrap()).collect();
    let mut wanted = topic("t", -1, &[]);
    wanted.replication_factor = -1;
    wanted.assignments = vec![CreatableReplicaAssignment { partition_index: 0, broker_ids }];
    assert_eq!(create(&mut cluster.client(replicas[0]), wanted).error_code, 0);
}

fn partition(client: &mut Client) -> MetadataResponsePartition {
    let topics = vec![MetadataRequestTopic { name: Some("t".into()), ..MetadataRequestTopic::default() }];
    let request = MetadataRequest { topics: Some(topics), ..MetadataRequest::default() };
    client.call(&request, 12).topics[0].partitions.remove(0)
}

/// The leader that a broker tells its clients, once it tells one that is wanted.
fn await_leader(cluster: &Cluster, at: usize, wanted: impl Fn(usize) -> bool) -> usize {
    let mut client = cluster.client(at);
    eventually("the partition is led", || {
        usize::try_from(partition(&mut client).leader_id).ok().filter(|id| wanted(*id))
    })
}

fn await_isr(cluster: &Cluster, at: usize, count: usize) {
    let mut client = cluster.client(at);
    eventually("the replicas are in sync", || (partition(&mut client).isr_nodes.len() == count).then_some(()));
}

fn brokers(cluster: &Cluster, at: usize, include_fenced_brokers: bool) -> Vec<i32> {
    let request =
        DescribeClusterRequest { endpoint_type: 1, include_fenced_brokers, ..DescribeClusterRequest::default() };
    cluster.client(at).call(&request, 2).brokers.iter().map(|broker| broker.broker_id).collect()
}

fn signal(cluster: &Cluster, id: usize, name: &str) {
    let process = cluster.broker(id).id().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &process]).status().unwrap().success());
}

#[test]
fn partitions_of_a_killed_broker_are_led_by_others_long_before_its_session_is_over() {
    let mut cluster = Cluster::started_with(3, &[LONG_SESSIONS, STAY]);
    place(&cluster, &[0, 1, 2]);
    // Each in turn, so that the controller is among them.
    for _ in 0..3 {
        let leader = await_leader(&cluster, 0, |_| true);
        let other = (leader + 1) % 3;
        let acknowledged = cluster.client(leader).produce("t", 0, batch(&["a"]), -1);
        assert_eq!(acknowledged.error_code, 0);
        cluster.kill(leader);
        let next = await_leader(&cluster, other, |id| id != leader);
        assert!(!brokers(&cluster, other, false).contains(&i32::try_from(leader).unwrap()));
        eventually("what was acknowledged is there", || {
            let first = cluster.client(next).read_all("t", 0).into_keys().next();
            (first == Some(0)).then_some(())
        });
        cluster.start(&[leader]);
        await_isr(&cluster, 0, 3);
    }
}

#[test]
fn a_frozen_broker_is_fenced_when_its_session_is_over_and_comes_back_by_itself() {
    let settings = ["broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=100", STAY];
    let cluster = Cluster::started_with(3, &settings);
    let controller = cluster.leader();
    let (frozen, other) = ((controller + 1) % 3, (controller + 2) % 3);
    place(&cluster, &[frozen, other, controller]);
    signal(&cluster, frozen, "STOP");
    await_leader(&cluster, other, |id| id != frozen);
    let number = i32::try_from(frozen).unwrap();
    eventually("it is not relied on", || (!brokers(&cluster, other, false).contains(&number)).then_some(()));
    assert!(brokers(&cluster, other, true).contains(&number), "it is known still");
    signal(&cluster, frozen, "CONT");
    eventually("it is relied on again", || brokers(&cluster, other, false).contains(&number).then_some(()));
    await_isr(&cluster, other, 3);
    assert!(cluster.broker(controller).said("broker is fenced: its session is over").is_some());
}

#[test]
fn a_broker_that_stops_in_order_is_left_by_its_leaders_first_and_gets_them_back_when_it_returns() {
    let settings = [LONG_SESSIONS, "leader.imbalance.check.interval.seconds=1"];
    let mut cluster = Cluster::started_with(3, &settings);
    place(&cluster, &[1, 2, 0]);
    let before = partition(&mut cluster.client(0)).leader_epoch;
    let stopping = cluster.brokers[1].take().unwrap();
    signal_process(stopping.id(), "TERM");
    eventually("the leader moves before the broker is gone", || stopping.said("all leaders have moved away"));
    assert_ne!(partition(&mut cluster.client(0)).leader_id, 1);
    assert!(stopping.wait(), "a clean end");
    let moved = partition(&mut cluster.client(0));
    assert_eq!(moved.leader_epoch, before + 1, "once, and not by an accident");
    cluster.start(&[1]);
    await_leader(&cluster, 0, |id| id == 1);
}

fn signal_process(process: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success());
}

#[test]
fn what_nobody_else_could_lead_does_not_hold_up_a_stop() {
    let mut cluster = Cluster::started_with(3, &[LONG_SESSIONS]);
    place(&cluster, &[2]);
    let began = Instant::now();
    let stopping = cluster.brokers[2].take().unwrap();
    assert!(stopping.terminate(), "a clean end");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let orphan = partition(&mut cluster.client(0));
    assert_eq!((orphan.leader_id, orphan.isr_nodes), (-1, vec![2]));
    cluster.start(&[2]);
    await_leader(&cluster, 0, |id| id == 2);
}

#[test]
fn replicas_move_while_records_come_and_the_old_ones_go_when_the_new_are_in_sync() {
    let cluster = Cluster::started_with(3, &[LONG_SESSIONS, STAY]);
    place(&cluster, &[0, 1]);
    let mut client = cluster.client(0);
    for number in 0..20 {
        assert_eq!(client.produce("t", 0, batch(&[&number.to_string()]), -1).error_code, 0);
    }
    let partitions = vec![ReassignablePartition { partition_index: 0, replicas: Some(vec![2, 1]) }];
    let topics = vec![ReassignableTopic { name: "t".into(), partitions }];
    let request = AlterPartitionReassignmentsRequest { topics, ..AlterPartitionReassignmentsRequest::default() };
    let answer = client.call(&request, 1);
    assert_eq!((answer.error_code, answer.responses[0].partitions[0].error_code), (0, 0));
    eventually("the replicas have moved", || (partition(&mut client).replica_nodes == [2, 1]).then_some(()));
    let all = ListPartitionReassignmentsRequest { topics: None, ..ListPartitionReassignmentsRequest::default() };
    assert!(client.call(&all, 0).topics.is_empty());
    let leader = await_leader(&cluster, 1, |id| id != 0);
    let read = eventually("the records are there", || {
        let read = cluster.client(leader).read_all("t", 0);
        (read.len() == 20).then_some(read)
    });
    let expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(read.into_values().collect::<Vec<_>>(), expected);
}

#[test]
fn a_replica_that_is_not_in_sync_leads_only_when_asked() {
    let mut cluster = Cluster::started_with(3, &[LONG_SESSIONS, STAY]);
    let [last, behind, asked] = {
        let leader = cluster.leader();
        [(leader + 1) % 3, (leader + 2) % 3, leader]
    };
    place(&cluster, &[last, behind]);
    cluster.kill(behind);
    await_isr(&cluster, asked, 1);
    cluster.kill(last);
    // Two of three are gone: without one of them nothing is decided.
    cluster.start(&[behind]);
    let mut client = cluster.client(asked);
    eventually("nobody leads", || (partition(&mut client).leader_id == -1).then_some(()));
    let topic_partitions = Some(vec![TopicPartitions { topic: "t".into(), partitions: vec![0] }]);
    let mut elect = |election_type| {
        let request =
            ElectLeadersRequest { election_type, topic_partitions: topic_partitions.clone(), timeout_ms: 10_000 };
        let answer = client.call(&request, 2);
        ErrorCode::from_code(answer.replica_election_results[0].partition_result[0].error_code)
    };
    assert_eq!(elect(0), ErrorCode::PreferredLeaderNotAvailable);
    assert_eq!(elect(1), ErrorCode::None);
    await_leader(&cluster, asked, |id| id == behind);
}

#[test]
fn a_stopped_broker_is_taken_off_the_list_and_one_at_work_is_not() {
    let mut cluster = Cluster::started_with(3, &[LONG_SESSIONS]);
    let unregister = |cluster: &Cluster, broker_id| {
        ErrorCode::from_code(cluster.client(0).call(&UnregisterBrokerRequest { broker_id }, 0).error_code)
    };
    assert_eq!(unregister(&cluster, 2), ErrorCode::InvalidRequest);
    assert!(cluster.brokers[2].take().unwrap().terminate());
    assert_eq!(unregister(&cluster, 2), ErrorCode::None);
    assert_eq!(unregister(&cluster, 2), ErrorCode::BrokerIdNotRegistered);
    assert_eq!(brokers(&cluster, 0, true), [0, 1]);
    cluster.start(&[2]);
    eventually("it registers anew", || (brokers(&cluster, 0, false) == [0, 1, 2]).then_some(()));
}

#[test]
fn the_cluster_says_what_its_partitions_lack() {
    let mut cluster = Cluster::started_with(3, &[LONG_SESSIONS, STAY, "min.insync.replicas=2"]);
    place(&cluster, &[0, 1]);
    let sum = |cluster: &Cluster, name: &str| -> i64 {
        cluster.brokers.iter().flatten().map(|broker| metric(broker, name)).sum()
    };
    assert_eq!(sum(&cluster, "forebay_active_controller"), 1);
    assert_eq!(sum(&cluster, "forebay_under_replicated_partitions"), 0);
    cluster.kill(1);
    for name in ["forebay_under_replicated_partitions", "forebay_under_min_isr_partitions"] {
        eventually(name, || (sum(&cluster, name) == 1).then_some(()));
    }
    assert_eq!(sum(&cluster, "forebay_offline_partitions"), 0);
    assert_eq!(sum(&cluster, "forebay_isr_shrinks_total"), 1);
    cluster.start(&[1]);
    await_isr(&cluster, 1, 2);
    assert_eq!(sum(&cluster, "forebay_isr_expands_total"), 1);
}
