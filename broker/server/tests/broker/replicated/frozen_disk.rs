//! A disk hangs: what is written to it neither succeeds nor fails. Others go on, and the broker is back when the disk is.

use forebay_broker_wire::messages::create_topics::CreatableTopic;
use forebay_broker_wire::messages::metadata::MetadataRequest;
use forebay_broker_wire::messages::produce::ProduceRequest;

use super::SETTINGS;
use super::cluster::Cluster;
use crate::create_topics;
use crate::harness::{Client, PRODUCE, batch, eventually, produce};
use crate::mounts::Mount;

/// A client with a request that the frozen broker can't carry out; it must hear of that before the disk goes on.
fn left_with_a_request(cluster: &Cluster, frozen: usize) -> Client {
    let mut client = cluster.client(frozen);
    client.send(&produce("orders", 0, batch(&["refused"]), -1), PRODUCE);
    client
}

/// By an error, or by the end of the connection.
fn was_told(client: &mut Client) -> bool {
    match client.try_receive::<ProduceRequest>(PRODUCE) {
        Ok(answer) => answer.responses[0].partition_responses[0].error_code != 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn produce_elsewhere(cluster: &Cluster, frozen: usize, partition: i32, value: &str) -> usize {
    eventually("the record is acknowledged by another", || {
        let mut asked = cluster.client((frozen + 1) % 3);
        let partitions = cluster.partitions(&mut asked, "orders")?;
        let leader = partitions.get(usize::try_from(partition).ok()?)?.leader_id;
        let leader = usize::try_from(leader).ok().filter(|leader| *leader != frozen)?;
        let answer = cluster.client(leader).produce("orders", partition, batch(&[value]), -1);
        (answer.error_code == 0).then_some(leader)
    })
}

fn hung(cluster: &Cluster, id: usize) -> bool {
    let metrics = cluster.brokers[id].as_ref().unwrap().http_get("/metrics");
    metrics.lines().any(|line| line.starts_with("forebay_log_dir_hung") && line.ends_with(" 1"))
}

#[test]
fn the_others_go_on_without_a_broker_whose_disk_hangs_and_it_is_back_when_the_disk_is() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let disks: Option<Vec<_>> = dirs.iter().map(|dir| Mount::ext4(&dir.path().join("data"), 64)).collect();
    let Some(disks) = disks else { return };
    let cluster = Cluster::start_in(dirs, SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let mut acknowledged = Vec::new();
    // Each of them: one of them leads the quorum, and each leads the topic in its turn.
    for round in 0..3 {
        let frozen = cluster.leader("orders");
        let value = format!("{round}-before");
        acknowledged.push(value.clone());
        cluster.produce("orders", &value);
        let hanging = disks[frozen].freeze();
        let mut left = left_with_a_request(&cluster, frozen);
        for number in 0..3 {
            let value = format!("{round}-{number}");
            assert_ne!(produce_elsewhere(&cluster, frozen, 0, &value), frozen);
            acknowledged.push(value);
        }
        assert!(was_told(&mut left), "whoever waits is told");
        assert!(hung(&cluster, frozen));
        drop(hanging);
        eventually("it lets clients in again", || {
            let mut client = cluster.client(frozen);
            client.try_send(&MetadataRequest::default(), 9).ok()?;
            client.try_receive::<MetadataRequest>(9).ok()
        });
        assert!(!hung(&cluster, frozen));
        cluster.await_in_sync("orders", 3);
    }
    let found: Vec<String> = cluster.read_all("orders").into_values().collect();
    let kept: Vec<&String> = found.iter().filter(|value| *value != "refused").collect();
    assert_eq!(kept, acknowledged.iter().collect::<Vec<_>>());
}

#[test]
fn one_disk_of_two_that_hangs_takes_only_its_own_partitions() {
    const PARTITIONS: i32 = 6;
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let Some(disk) = Mount::ext4(&dirs[0].path().join("second"), 64) else { return };
    let cluster = Cluster::start_in(dirs, SETTINGS);
    let topic = create_topics::topic("orders", PARTITIONS, &[("min.insync.replicas", Some("2"))]);
    cluster.create(&CreatableTopic { replication_factor: 3, ..topic });
    let whole = |topic: &str, in_sync: usize| {
        let partitions = cluster.partitions(&mut cluster.client(1), topic)?;
        partitions.iter().all(|one| one.isr_nodes.len() == in_sync && one.leader_id >= 0).then_some(partitions)
    };
    let partitions = eventually("all are in sync", || whole("orders", 3));
    let led = partitions.iter().filter(|one| one.leader_id == 0).map(|one| one.partition_index);
    let on_second = |index: &i32| cluster.second(0).join(format!("orders-{index}")).exists();
    let (bad, good): (Vec<_>, Vec<_>) = led.partition(on_second);
    assert!(!bad.is_empty() && !good.is_empty(), "broker 0 leads on both disks: {bad:?} {good:?}");

    let hanging = disk.freeze();
    let mut left = cluster.client(0);
    left.send(&produce("orders", bad[0], batch(&["refused"]), -1), PRODUCE);
    for index in &bad {
        produce_elsewhere(&cluster, 0, *index, "after");
    }
    assert!(was_told(&mut left), "whoever waits is told");
    for index in &good {
        let answer = cluster.client(0).produce("orders", *index, batch(&["after"]), -1);
        assert_eq!((answer.error_code, answer.base_offset), (0, 0), "{:?}", answer.error_message);
    }
    // Changes are followed all the while: new partitions lie on the other disk.
    let topic = create_topics::topic("new", 3, &[]);
    cluster.create(&CreatableTopic { replication_factor: 3, ..topic });
    eventually("the new ones are in sync", || whole("new", 3));
    assert!(hung(&cluster, 0));

    drop(hanging);
    eventually("its replicas catch up", || whole("orders", 3));
}
