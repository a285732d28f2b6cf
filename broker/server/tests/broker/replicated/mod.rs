//! Replicated topics on three brokers: what is acknowledged stays, whoever dies.

mod cluster;
mod damaged;
mod failed_disk;
mod frozen_disk;
mod full_disk;
mod listeners;
mod lost_disk;
mod moving;
mod pass_on;
mod reassignment;
mod stop;

use std::time::Duration;

use forebay_broker_wire::messages::fetch::FetchRequest;
use forebay_broker_wire::types::ErrorCode;

use self::cluster::Cluster;
use crate::group_client::{commit, committed};
use crate::harness::{FETCH, batch, eventually, fetch, only, produce, values};

/// The records of these tests are from 2023.
const SETTINGS: &[&str] = &["replica.lag.time.max.ms=2000", "log.retention.ms=-1"];

#[test]
fn what_all_in_sync_replicas_have_survives_the_death_of_the_leader() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        for number in 0..20 {
            let value = format!("{round}-{number}");
            acknowledged.push((cluster.produce("orders", &value), value));
        }
        let leader = cluster.leader("orders");
        cluster.kill(leader);
        let value = format!("{round}-after");
        acknowledged.push((cluster.produce("orders", &value), value));
        let found = cluster.read_all("orders");
        for (offset, value) in &acknowledged {
            assert_eq!(found.get(offset), Some(value), "round {round}, leader {leader} was killed");
        }
        cluster.start_again(leader);
        cluster.await_in_sync("orders", 3);
    }
}

#[test]
fn a_dead_follower_leaves_the_in_sync_replicas_and_comes_back() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "1");
    let leader = cluster.leader("orders");
    let follower = (leader + 1) % 3;
    cluster.kill(follower);
    cluster.await_in_sync("orders", 2);
    for number in 0..50 {
        cluster.produce("orders", &number.to_string());
    }
    cluster.start_again(follower);
    cluster.await_in_sync("orders", 3);
    // It has everything: it can lead alone.
    cluster.kill(leader);
    cluster.await_records("orders", 50);
}

#[test]
fn acks_all_is_refused_with_fewer_in_sync_replicas_than_wanted() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("pair", 2, "2");
    let leader = cluster.leader("pair");
    let partition = cluster.partition(&mut cluster.any(), "pair").unwrap();
    let follower = partition.replica_nodes.iter().find(|id| **id != partition.leader_id).unwrap();
    cluster.produce("pair", "both");
    cluster.kill(usize::try_from(*follower).unwrap());
    cluster.await_in_sync("pair", 1);
    let mut client = cluster.client(leader);
    let refused = eventually("the leader knows", || {
        let answer = client.produce("pair", 0, batch(&["alone"]), -1);
        (answer.error_code == ErrorCode::NotEnoughReplicas.code()).then_some(answer)
    });
    let message = "1 replicas are in sync, but min.insync.replicas of topic 'pair' is 2";
    assert_eq!(refused.error_message.as_deref(), Some(message));
    assert_eq!(client.produce("pair", 0, batch(&["alone"]), 1).error_code, 0, "acks=1 promises less");
    cluster.start_again(usize::try_from(*follower).unwrap());
    cluster.await_in_sync("pair", 2);
    cluster.produce("pair", "both again");
}

#[test]
fn a_follower_cuts_what_its_new_leader_does_not_have() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "1");
    let old = cluster.leader("orders");
    cluster.produce("orders", "everywhere");
    let others: Vec<_> = (0..3).filter(|id| *id != old).collect();
    others.iter().for_each(|id| cluster.signal(*id, "-STOP"));
    // What they have asked for already must not bring them the records: it has been answered after `replica.fetch.wait.max.ms`.
    std::thread::sleep(Duration::from_secs(1));
    let lost = cluster.client(old).produce("orders", 0, batch(&["only here", "and this"]), 1);
    assert_eq!((lost.error_code, lost.base_offset), (0, 1));
    cluster.kill(old);
    others.iter().for_each(|id| cluster.signal(*id, "-CONT"));
    cluster.produce("orders", "instead");
    cluster.start_again(old);
    cluster.await_in_sync("orders", 3);
    cluster.produce("orders", "with all");
    // A consumer may read from any replica.
    eventually("the old leader's log is the new leader's", || {
        let there = cluster.client(old).read_all("orders", 0);
        (there == cluster.read_all("orders") && there.len() == 3).then_some(())
    });
    assert!(!cluster.read_all("orders").values().any(|value| value == "only here"));
}

#[test]
fn a_leader_that_falls_silent_is_replaced_and_follows_when_it_wakes() {
    let cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let old = cluster.leader("orders");
    let asked = (old + 1) % 3;
    cluster.produce("orders", "before");
    cluster.signal(old, "-STOP");
    let mut client = cluster.client(asked);
    eventually("another leads", || {
        let partition = cluster.partition(&mut client, "orders")?;
        (partition.leader_id >= 0 && usize::try_from(partition.leader_id) != Ok(old)).then_some(())
    });
    cluster.signal(old, "-CONT");
    std::thread::sleep(Duration::from_millis(100));
    cluster.produce("orders", "after");
    cluster.await_in_sync("orders", 3);
    assert_eq!(cluster.read_all("orders").into_values().collect::<Vec<_>>(), ["before", "after"]);
}

#[test]
fn groups_go_on_from_their_last_commit_at_another_coordinator() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "1");
    for round in 0..3_i64 {
        let coordinator = cluster.coordinator("readers");
        let mut client = cluster.client(coordinator);
        let last = if round == 0 { -1 } else { 99 + round };
        assert_eq!(committed(&mut client, "readers", "orders").committed_offset, last, "round {round}");
        eventually("the commit is acknowledged", || {
            (commit(&mut client, "readers", "orders", 100 + round, "") == ErrorCode::None).then_some(())
        });
        if round == 0 {
            cluster.await_in_sync("__consumer_offsets", 3);
        }
        cluster.kill(coordinator);
        let next = cluster.coordinator("readers");
        assert_ne!(next, coordinator);
        cluster.start_again(coordinator);
        cluster.await_in_sync("__consumer_offsets", 3);
    }
}

#[test]
fn a_broker_that_does_not_lead_says_who_does() {
    let cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "1");
    let leader = cluster.leader("orders");
    let request = produce("orders", 0, batch(&["x"]), 1);
    let mut response = cluster.client((leader + 1) % 3).call(&request, 12);
    let partition = response.responses.remove(0).partition_responses.remove(0);
    assert_eq!(ErrorCode::from_code(partition.error_code), ErrorCode::NotLeaderOrFollower);
    assert_eq!(usize::try_from(partition.current_leader.leader_id), Ok(leader));
    let [node] = &response.node_endpoints[..] else { panic!("one leader, one address: {response:?}") };
    assert_eq!((usize::try_from(node.node_id), &*node.host), (Ok(leader), "127.0.0.1"));
    assert_eq!(u16::try_from(node.port), Ok(cluster.port(leader)));
}

#[test]
fn consumers_are_sent_to_the_replica_in_their_rack() {
    let cluster = Cluster::start(&[
        "log.retention.ms=-1",
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
    ]);
    cluster.create_replicated("orders", 3, "1");
    cluster.produce("orders", "a");
    let leader = cluster.leader("orders");
    let near = (leader + 1) % 3;
    let from_rack = |id: usize, offset| {
        let rack_id = format!("rack-{id}").as_str().into();
        FetchRequest { rack_id, ..fetch(&[("orders", 0, offset)], 1, 0) }
    };
    let told = only(cluster.client(leader).call(&from_rack(near, 0), FETCH));
    assert_eq!(usize::try_from(told.preferred_read_replica), Ok(near));
    assert!(values(&told).is_empty());
    let own = only(cluster.client(leader).call(&from_rack(leader, 0), FETCH));
    assert_eq!((own.preferred_read_replica, values(&own).len()), (-1, 1));
    // There it is read as far as that replica knows it to be safe.
    let there = eventually("the follower has it", || {
        let there = only(cluster.client(near).call(&from_rack(near, 0), FETCH));
        assert_eq!(there.error_code, 0);
        (!values(&there).is_empty()).then_some(there)
    });
    assert_eq!((there.preferred_read_replica, values(&there)), (-1, vec![(0, "a".to_owned())]));
}

#[test]
fn records_that_every_replica_flushes_first_are_acknowledged_too() {
    let mut cluster = Cluster::start(&["log.retention.ms=-1", "log.flush.interval.messages=1"]);
    cluster.create_replicated("orders", 3, "2");
    for number in 0..20 {
        assert_eq!(cluster.produce("orders", &number.to_string()), number);
    }
    let leader = cluster.leader("orders");
    cluster.kill(leader);
    cluster.await_records("orders", 20);
}
