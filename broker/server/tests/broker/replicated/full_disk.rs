//! A disk fills up under one broker, or under all: whoever has room goes on, nobody flaps, and all is as before when there is room again.

use forebay_broker_wire::messages::create_topics::CreatableTopic;
use forebay_broker_wire::messages::metadata::MetadataResponsePartition;
use forebay_broker_wire::types::ErrorCode;

use super::cluster::Cluster;
use crate::create_topics;
use crate::group_client::{commit, committed};
use crate::harness::{batch, eventually};
use crate::mounts::Mount;

const RESERVE_BYTES: u64 = 8 << 20;
/// Who does not leave the in-sync replicas by itself, is not left out by its leader while a test lasts.
const SETTINGS: &[&str] =
    &["replica.lag.time.max.ms=300000", "log.retention.ms=-1", "forebay.log.dir.reserve.bytes=8388608"];
const WITHOUT_RESERVE: &[&str] =
    &["replica.lag.time.max.ms=300000", "log.retention.ms=-1", "forebay.log.dir.reserve.bytes=0"];

fn is_full(cluster: &Cluster, id: usize) -> bool {
    let metrics = cluster.brokers[id].as_ref().unwrap().http_get("/metrics");
    metrics.lines().any(|line| line.starts_with("forebay_log_dir_full") && line.ends_with(" 1"))
}

fn await_full(cluster: &Cluster, id: usize, full: bool) {
    eventually("the broker knows its disk", || (is_full(cluster, id) == full).then_some(()));
}

/// Gives who acknowledged it. `asked` knows who leads.
fn produce(cluster: &Cluster, asked: usize, index: i32, value: &str) -> usize {
    eventually("the record is acknowledged", || {
        let partitions = cluster.partitions(&mut cluster.client(asked), "orders")?;
        let leader = usize::try_from(partitions.get(usize::try_from(index).ok()?)?.leader_id).ok()?;
        let answer = cluster.client(leader).produce("orders", index, batch(&[value]), -1);
        (answer.error_code == 0).then_some(leader)
    })
}

/// Leader, its epoch, and who is in sync.
fn state(partition: &MetadataResponsePartition) -> (i32, i32, Vec<i32>) {
    (partition.leader_id, partition.leader_epoch, partition.isr_nodes.clone())
}

#[test]
fn a_full_disk_gives_way_to_others_and_takes_its_part_again_when_there_is_room() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let disks: Option<Vec<_>> = dirs.iter().map(|dir| Mount::tmpfs(&dir.path().join("data"), 64)).collect();
    let Some(disks) = disks else { return };
    let cluster = Cluster::start_in(dirs, SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let mut acknowledged = Vec::new();
    // Each of them: one of them leads the quorum, and each leads the topic in its turn.
    for round in 0..3 {
        let full = cluster.leader("orders");
        acknowledged.push(format!("{round}-before"));
        cluster.produce("orders", &format!("{round}-before"));
        let filler = disks[full].fill_up_to(RESERVE_BYTES / 2);
        await_full(&cluster, full, true);
        let moved = eventually("it is not in sync", || {
            let partition = cluster.partition(&mut cluster.client(full), "orders")?;
            let left = !partition.isr_nodes.contains(&i32::try_from(full).unwrap());
            (left && partition.isr_nodes.len() == 2).then(|| state(&partition))
        });
        for number in 0..3 {
            let value = format!("{round}-{number}");
            produce(&cluster, (full + 1) % 3, 0, &value);
            acknowledged.push(value);
        }
        assert!(cluster.client(full).read_all("orders", 0).len() > round, "what it has is read there");
        std::thread::sleep(std::time::Duration::from_secs(3));
        let later = cluster.partition(&mut cluster.any(), "orders").unwrap();
        assert_eq!(state(&later), moved, "it stays so");
        assert_ne!(usize::try_from(moved.0), Ok(full));

        std::fs::remove_file(filler).unwrap();
        await_full(&cluster, full, false);
        cluster.await_in_sync("orders", 3);
    }
    assert_eq!(cluster.read_all("orders").into_values().collect::<Vec<_>>(), acknowledged);
}

#[test]
fn where_all_disks_are_full_leaders_stay_and_refuse_until_there_is_room() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let disks: Option<Vec<_>> = dirs.iter().map(|dir| Mount::tmpfs(&dir.path().join("data"), 64)).collect();
    let Some(disks) = disks else { return };
    let cluster = Cluster::start_in(dirs, SETTINGS);
    let topic = create_topics::topic("orders", 3, &[("min.insync.replicas", Some("2"))]);
    cluster.create(&CreatableTopic { replication_factor: 3, ..topic });
    let partitions = || cluster.partitions(&mut cluster.any(), "orders");
    let whole = || partitions()?.iter().all(|one| one.isr_nodes.len() == 3 && one.leader_id >= 0).then_some(());
    eventually("all are in sync", whole);
    for index in 0..3 {
        produce(&cluster, 0, index, "before");
    }
    let coordinator = cluster.coordinator("readers");
    assert_eq!(commit(&mut cluster.client(coordinator), "readers", "orders", 7, ""), ErrorCode::None);

    let fillers: Vec<_> = disks.iter().map(|disk| disk.fill_up_to(RESERVE_BYTES / 2)).collect();
    (0..3).for_each(|id| await_full(&cluster, id, true));
    let all = || partitions().unwrap().iter().map(state).collect::<Vec<_>>();
    let at_rest = eventually("nothing moves", || {
        let before = all();
        std::thread::sleep(std::time::Duration::from_secs(1));
        (before == all()).then_some(before)
    });
    for (index, (leader, _, _)) in at_rest.iter().enumerate() {
        let mut client = cluster.client(usize::try_from(*leader).unwrap());
        let index = i32::try_from(index).unwrap();
        let refused = client.produce("orders", index, batch(&["refused"]), -1);
        assert_eq!(ErrorCode::from_code(refused.error_code), ErrorCode::KafkaStorageError);
        assert_eq!(client.read_all("orders", index).into_values().collect::<Vec<_>>(), ["before"]);
    }
    let coordinator = cluster.coordinator("readers");
    assert_eq!(commit(&mut cluster.client(coordinator), "readers", "orders", 8, ""), ErrorCode::None);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(all(), at_rest, "nobody hands anything back and forth");

    fillers.iter().for_each(|filler| std::fs::remove_file(filler).unwrap());
    eventually("all are in sync", whole);
    for index in 0..3 {
        let leader = produce(&cluster, 0, index, "after");
        let found: Vec<_> = cluster.client(leader).read_all("orders", index).into_values().collect();
        assert_eq!(found, ["before", "after"]);
    }
    let coordinator = cluster.coordinator("readers");
    assert_eq!(committed(&mut cluster.client(coordinator), "readers", "orders").committed_offset, 8);
}

#[test]
fn nobody_waits_for_a_replica_without_any_room() {
    const PARTITIONS: i32 = 6;
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let Some(disk) = Mount::tmpfs(&dirs[0].path().join("second"), 32) else { return };
    let cluster = Cluster::start_in(dirs, WITHOUT_RESERVE);
    let topic = create_topics::topic("orders", PARTITIONS, &[("min.insync.replicas", Some("2"))]);
    cluster.create(&CreatableTopic { replication_factor: 3, ..topic });
    let partitions = || cluster.partitions(&mut cluster.client(1), "orders");
    let whole = || partitions()?.iter().all(|one| one.isr_nodes.len() == 3 && one.leader_id >= 0).then_some(());
    eventually("all are in sync", whole);
    let on_second: Vec<i32> =
        (0..PARTITIONS).filter(|index| cluster.second(0).join(format!("orders-{index}")).exists()).collect();
    assert!(on_second.len() > 1, "broker 0 has replicas on both disks: {on_second:?}");

    let filler = disk.fill_up_to(0);
    let value = "x".repeat(100_000); // more than a block of the file may have left
    for index in &on_second {
        produce(&cluster, 1, *index, &value);
    }
    let left = |one: &MetadataResponsePartition| {
        on_second.contains(&one.partition_index) != one.isr_nodes.contains(&0) && one.isr_nodes.len() >= 2
    };
    eventually("it is in sync on its other disk only", || partitions()?.iter().all(left).then_some(()));
    let said = cluster.brokers[0].as_ref().unwrap().all_said();
    assert_eq!(said.iter().filter(|line| line.contains("no room for appends")).count(), 1, "told once, not for each");

    std::fs::remove_file(filler).unwrap();
    eventually("its replicas catch up", whole);
}
