//! Partitions move between brokers while records come.

use forebay_broker_wire::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use forebay_broker_wire::messages::create_topics::{CreatableReplicaAssignment, CreatableTopic};
use forebay_broker_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

use super::cluster::Cluster;
use crate::create_topics;
use crate::harness::{batch, eventually};

const PARTITIONS: i32 = 10;

fn create_on(cluster: &Cluster, name: &str, replicas: [i32; 2]) {
    let assigned = (0..PARTITIONS)
        .map(|partition_index| CreatableReplicaAssignment { partition_index, broker_ids: replicas.to_vec() });
    let topic = create_topics::topic(name, -1, &[]);
    cluster.create(&CreatableTopic { replication_factor: -1, assignments: assigned.collect(), ..topic });
}

/// Sends to the partition's leader until it is acknowledged by all in-sync replicas.
fn produce(cluster: &Cluster, topic: &str, partition: i32, value: &str) {
    eventually("the record is acknowledged", || {
        let leader = cluster.partitions(&mut cluster.any(), topic)?.get(usize::try_from(partition).ok()?)?.leader_id;
        let mut client = cluster.client(usize::try_from(leader).ok()?);
        (client.produce(topic, partition, batch(&[value]), -1).error_code == 0).then_some(())
    });
}

/// The slowest rate at which a test still ends.
fn throttle(cluster: &Cluster, topic: &str, bytes_per_second: u32) {
    let config = |name: &str, value: &str| AlterableConfig {
        name: name.into(),
        value: Some(value.into()),
        ..AlterableConfig::default()
    };
    let rate = bytes_per_second.to_string();
    let broker = |id: i32| AlterConfigsResource {
        resource_type: 4,
        resource_name: id.to_string().as_str().into(),
        configs: vec![
            config("leader.replication.throttled.rate", &rate),
            config("follower.replication.throttled.rate", &rate),
        ],
    };
    let lists = ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"];
    let of_topic = AlterConfigsResource {
        resource_type: 2,
        resource_name: topic.into(),
        configs: lists.iter().map(|name| config(name, "*")).collect(),
    };
    let resources = (0..3).map(broker).chain([of_topic]).collect();
    let request = IncrementalAlterConfigsRequest { resources, ..IncrementalAlterConfigsRequest::default() };
    let response = cluster.any().call(&request, 1);
    assert!(response.responses.iter().all(|one| one.error_code == 0), "{response:?}");
}

fn reassign(cluster: &Cluster, topic: &str, replicas: [i32; 2]) {
    let partitions = (0..PARTITIONS)
        .map(|partition_index| ReassignablePartition { partition_index, replicas: Some(replicas.to_vec()) });
    let topics = vec![ReassignableTopic { name: topic.into(), partitions: partitions.collect() }];
    let request = AlterPartitionReassignmentsRequest { topics, ..AlterPartitionReassignmentsRequest::default() };
    let response = cluster.any().call(&request, 0);
    let failed = response.responses.iter().flat_map(|topic| &topic.partitions).any(|one| one.error_code != 0);
    assert!(response.error_code == 0 && !failed, "{response:?}");
}

#[test]
fn partitions_move_to_another_broker_without_losing_a_record() {
    let cluster = Cluster::start(&["log.retention.ms=-1"]);
    create_on(&cluster, "moving", [0, 1]);
    let value = "x".repeat(10_000);
    (0..PARTITIONS).for_each(|partition| (0..20).for_each(|_| produce(&cluster, "moving", partition, &value)));
    throttle(&cluster, "moving", 1_000_000);
    let began = std::time::Instant::now();
    reassign(&cluster, "moving", [1, 2]);
    // 2 MB at 1 MB a second; what comes meanwhile is not held back.
    (0..PARTITIONS).for_each(|partition| produce(&cluster, "moving", partition, "while it moves"));
    eventually("all have moved", || {
        let partitions = cluster.partitions(&mut cluster.client(2), "moving")?;
        partitions.iter().all(|one| one.replica_nodes == [1, 2] && one.isr_nodes.len() == 2).then_some(())
    });
    assert!(began.elapsed().as_millis() > 1_000, "the throttle was in force: {:?}", began.elapsed());
    for partition in 0..PARTITIONS {
        produce(&cluster, "moving", partition, "after");
        let leader = cluster.partitions(&mut cluster.any(), "moving").unwrap()[partition as usize].leader_id;
        let found = cluster.client(usize::try_from(leader).unwrap()).read_all("moving", partition);
        assert_eq!(found.len(), 22);
    }
    eventually("the broker that has no replica any more has no log", || {
        let logs = std::fs::read_dir(cluster.data(0)).unwrap().map(|entry| entry.unwrap().file_name());
        let left = logs
            .filter(|name| name.to_str().is_some_and(|name| name.starts_with("moving-") && !name.ends_with("-delete")));
        (left.count() == 0).then_some(())
    });
}
