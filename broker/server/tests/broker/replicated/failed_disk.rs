//! One disk of one broker fails: what it led there is led elsewhere, what lies on its other disk stays.

use forebay_broker_wire::messages::metadata::MetadataResponsePartition;
use forebay_broker_wire::types::ErrorCode;

use super::SETTINGS;
use super::cluster::Cluster;
use crate::create_topics;
use crate::harness::{batch, eventually};
use crate::mounts::Mount;

const PARTITIONS: i32 = 6;

fn partition(cluster: &Cluster, index: i32) -> MetadataResponsePartition {
    // Not of the one whose disk fails: others must know too.
    let mut partitions = cluster.partitions(&mut cluster.client(1), "orders").unwrap();
    partitions.remove(usize::try_from(index).unwrap())
}

#[test]
fn a_broker_hands_over_what_it_leads_on_a_failed_disk_and_nothing_else() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let Some(disk) = Mount::ext4(&dirs[0].path().join("second"), 64) else { return };
    let mut cluster = Cluster::start_in(dirs, SETTINGS);
    let topic = create_topics::topic("orders", PARTITIONS, &[("min.insync.replicas", Some("2"))]);
    cluster.create(&forebay_broker_wire::messages::create_topics::CreatableTopic { replication_factor: 3, ..topic });
    let all_in_sync = |cluster: &Cluster| {
        let partitions = cluster.partitions(&mut cluster.client(1), "orders")?;
        let whole = partitions.iter().all(|partition| partition.isr_nodes.len() == 3 && partition.leader_id >= 0);
        (whole && partitions.len() == usize::try_from(PARTITIONS).unwrap()).then_some(())
    };
    eventually("all are in sync", || all_in_sync(&cluster));
    let produce = |cluster: &Cluster, index: i32, value: &str| {
        eventually("the record is acknowledged", || {
            let leader = usize::try_from(partition(cluster, index).leader_id).ok()?;
            let answer = cluster.client(leader).produce("orders", index, batch(&[value]), -1);
            (answer.error_code == 0).then_some(answer.base_offset)
        })
    };
    for index in 0..PARTITIONS {
        produce(&cluster, index, "before");
    }
    let on_second = |index: i32| cluster.second(0).join(format!("orders-{index}")).exists();
    let led_by_0: Vec<_> = (0..PARTITIONS).filter(|index| partition(&cluster, *index).leader_id == 0).collect();
    let (bad, good): (Vec<_>, Vec<_>) = led_by_0.into_iter().partition(|index| on_second(*index));
    assert!(!bad.is_empty() && !good.is_empty(), "broker 0 leads on both disks: {bad:?} {good:?}");

    disk.fail();
    // A write finds out.
    let answer = cluster.client(0).produce("orders", bad[0], batch(&["refused"]), -1);
    assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::KafkaStorageError);
    for index in &bad {
        eventually("it is led elsewhere", || {
            let partition = partition(&cluster, *index);
            (partition.leader_id > 0 && !partition.isr_nodes.contains(&0)).then_some(())
        });
        assert_eq!(produce(&cluster, *index, "after"), 1, "nothing acknowledged is lost");
    }
    for index in &good {
        assert_eq!(partition(&cluster, *index).leader_id, 0);
        assert_eq!(produce(&cluster, *index, "after"), 1);
    }

    cluster.kill(0);
    disk.repair();
    cluster.start_again(0);
    eventually("the disk's replicas catch up", || all_in_sync(&cluster));
}

#[test]
fn a_broker_without_the_disk_that_had_the_metadata_serves_its_other_disk_and_votes_again() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    std::fs::create_dir(dirs[0].path().join("second")).unwrap();
    let mut cluster = Cluster::start_in(dirs, SETTINGS);
    let topic = create_topics::topic("orders", PARTITIONS, &[("min.insync.replicas", Some("2"))]);
    cluster.create(&forebay_broker_wire::messages::create_topics::CreatableTopic { replication_factor: 3, ..topic });
    let in_sync = |cluster: &Cluster, wanted: &dyn Fn(i32) -> bool| {
        let partitions = cluster.partitions(&mut cluster.client(2), "orders")?;
        let is_in_sync = |one: &MetadataResponsePartition| one.isr_nodes.contains(&0);
        let as_wanted = partitions.iter().all(|one| is_in_sync(one) == wanted(one.partition_index));
        (as_wanted && partitions.len() == usize::try_from(PARTITIONS).unwrap()).then_some(())
    };
    eventually("all are in sync", || in_sync(&cluster, &|_| true));
    let second: Vec<i32> =
        (0..PARTITIONS).filter(|index| cluster.second(0).join(format!("orders-{index}")).exists()).collect();
    assert!(!second.is_empty() && second.len() < usize::try_from(PARTITIONS).unwrap());

    cluster.kill(0);
    let (data, away) = (cluster.data(0), cluster.data(0).with_extension("away"));
    std::fs::rename(&data, &away).unwrap();
    std::fs::create_dir(&data).unwrap();
    cluster.start_again(0);
    assert!(cluster.brokers[0].as_ref().unwrap().said("the metadata comes from the other brokers").is_some());
    eventually("what lies on the other disk is in sync", || in_sync(&cluster, &|index| second.contains(&index)));
    eventually("it is a voter again", || {
        let changed = |id: usize| cluster.brokers[id].as_ref().unwrap().said("metadata quorum: its voters change");
        changed(0).or(changed(1)).or(changed(2))
    });
    cluster.create_replicated("settled", 3, "2");
    // Two of three decide, and it is one of them.
    cluster.kill(1);
    let topic = create_topics::topic("decided", 1, &[]);
    cluster.create(&forebay_broker_wire::messages::create_topics::CreatableTopic { replication_factor: 2, ..topic });
    cluster.start_again(1);

    cluster.kill(0);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&away, &data).unwrap();
    cluster.start_again(0);
    eventually("the disk's replicas catch up", || in_sync(&cluster, &|_| true));
    assert!(data.join("__cluster_metadata-0.replaced").exists(), "the newer metadata counts");
}
