//! Each API in each version that the broker offers: an empty request and one about a real topic both get an answer that
//! can be read. A response with a field that an old version lacks would end the connection instead.

use std::collections::BTreeMap;
use std::fmt::Debug;

use forebay_broker_wire::messages::api_versions::ApiVersionsRequest;
use forebay_broker_wire::messages::fetch::FetchRequest;
use forebay_broker_wire::messages::{
    Request, alter_configs as alter, alter_partition_reassignments as reassign, alter_replica_log_dirs as move_dirs,
    create_partitions as grow, create_topics as create, delete_groups, delete_records as records,
    delete_topics as delete, describe_cluster, describe_configs as configs, describe_groups,
    describe_log_dirs as log_dirs, describe_quorum, describe_topic_partitions as describe, elect_leaders as elect,
    find_coordinator, heartbeat, incremental_alter_configs as incremental, init_producer_id, join_group as join,
    leave_group, list_config_resources, list_groups, list_offsets, list_partition_reassignments, metadata,
    offset_commit as commit, offset_delete, offset_fetch, offset_for_leader_epoch as epochs, produce::ProduceRequest,
    sync_group, unregister_broker,
};
use forebay_broker_wire::types::{ApiKey, Str, Uuid};

use crate::harness::{TestBroker, batch, fetch, produce};

const TOPIC: &str = "orders";
const GROUP: &str = "billing";

struct Offered {
    broker: TestBroker,
    versions: BTreeMap<i16, (i16, i16)>,
    topic_id: Uuid,
}

fn start() -> Offered {
    let broker = TestBroker::start_with(&["group.initial.rebalance.delay.ms=0"]);
    let mut client = broker.client();
    client.create_topic(TOPIC);
    client.produce(TOPIC, 0, batch(&["a", "b"]), 1);
    let told = client.call(&ApiVersionsRequest::default(), 0);
    let versions = told.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
    let all = metadata::MetadataRequest { topics: None, ..metadata::MetadataRequest::default() };
    let topic_id = client.call(&all, 12).topics[0].topic_id;
    Offered { broker, versions, topic_id }
}

impl Offered {
    /// Takes the API off the list of those not tried yet.
    fn check<R: Request + Default + Debug>(&mut self, valid: impl Fn(i16, Uuid) -> R) {
        let (min, max) = self.versions.remove(&R::API_KEY.as_i16()).expect("it is offered");
        // Produce is offered from 0 on for old clients' sake, and has messages from 3 on.
        for version in min.max(*R::VERSIONS.start())..=max {
            // An answer that can't be read fails inside.
            self.broker.client().call(&valid(version, self.topic_id), version);
            // An empty Produce has acks=0, and waits for no answer.
            if R::API_KEY != ApiKey::Produce {
                self.broker.client().call(&R::default(), version);
            }
        }
    }

    fn name_or_id(&self, version: i16, ids_from: i16) -> (Str, Uuid) {
        if version >= ids_from { (Str::default(), self.topic_id) } else { (TOPIC.into(), Uuid::ZERO) }
    }
}

#[test]
fn every_offered_version_of_the_data_apis_is_answered() {
    let mut offered = start();
    offered.check(|_, _| ApiVersionsRequest {
        client_software_name: "test".into(),
        client_software_version: "1".into(),
        cluster_id: None,
        node_id: -1,
    });
    offered.check::<ProduceRequest>(|version, id| {
        let mut request = produce(TOPIC, 0, batch(&["c"]), -1);
        if version >= 13 {
            (request.topic_data[0].name, request.topic_data[0].topic_id) = (Str::default(), id);
        }
        request
    });
    offered.check::<FetchRequest>(|version, id| {
        let mut request = fetch(&[(TOPIC, 0, 0)], 1, 0);
        if version >= 13 {
            (request.topics[0].topic, request.topics[0].topic_id) = (Str::default(), id);
        }
        request
    });
    offered.check(|_, _| {
        let partition = list_offsets::ListOffsetsPartition { timestamp: -1, ..Default::default() };
        let topic = list_offsets::ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] };
        list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() }
    });
    offered.check(|_, _| {
        let topic = metadata::MetadataRequestTopic { name: Some(TOPIC.into()), ..Default::default() };
        metadata::MetadataRequest { topics: Some(vec![topic]), ..Default::default() }
    });
    offered.check(|_, _| init_producer_id::InitProducerIdRequest { transactional_id: None, ..Default::default() });
    offered.check(|_, _| {
        let partition = epochs::OffsetForLeaderPartition { leader_epoch: 0, ..Default::default() };
        let topic = epochs::OffsetForLeaderTopic { topic: TOPIC.into(), partitions: vec![partition] };
        epochs::OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![topic] }
    });
}

#[test]
fn every_offered_version_of_the_group_apis_is_answered() {
    let mut offered = start();
    offered.check(|version, _| find_coordinator::FindCoordinatorRequest {
        key: if version < 4 { GROUP.into() } else { Str::default() },
        coordinator_keys: if version < 4 { Vec::new() } else { vec![GROUP.into()] },
        ..Default::default()
    });
    offered.check(|version, _| join::JoinGroupRequest {
        group_id: format!("join-{version}").as_str().into(),
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: if version >= 1 { 1_000 } else { -1 },
        protocol_type: "consumer".into(),
        protocols: vec![join::JoinGroupRequestProtocol { name: "range".into(), ..Default::default() }],
        ..Default::default()
    });
    offered.check(|_, _| heartbeat::HeartbeatRequest { group_id: GROUP.into(), ..Default::default() });
    offered.check(|_, _| leave_group::LeaveGroupRequest { group_id: GROUP.into(), ..Default::default() });
    offered.check(|_, _| sync_group::SyncGroupRequest { group_id: GROUP.into(), ..Default::default() });
    let ids: Vec<_> = (0..=10).map(|version| offered.name_or_id(version, 10)).collect();
    offered.check(|version, _| {
        let (name, topic_id) = ids[usize::try_from(version).unwrap()].clone();
        let partition = commit::OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
        let topic = commit::OffsetCommitRequestTopic { name, topic_id, partitions: vec![partition] };
        commit::OffsetCommitRequest { group_id: GROUP.into(), topics: vec![topic], ..Default::default() }
    });
    offered.check(|version, _| {
        let groups =
            vec![offset_fetch::OffsetFetchRequestGroup { group_id: GROUP.into(), topics: None, ..Default::default() }];
        let topic = offset_fetch::OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0] };
        if version >= 8 {
            offset_fetch::OffsetFetchRequest { groups, ..Default::default() }
        } else {
            offset_fetch::OffsetFetchRequest { group_id: GROUP.into(), topics: Some(vec![topic]), ..Default::default() }
        }
    });
    offered.check(|_, _| describe_groups::DescribeGroupsRequest { groups: vec![GROUP.into()], ..Default::default() });
    offered.check(|_, _| list_groups::ListGroupsRequest::default());
    offered.check(|_, _| offset_delete::OffsetDeleteRequest { group_id: GROUP.into(), ..Default::default() });
    offered.check(|_, _| delete_groups::DeleteGroupsRequest { groups_names: vec![GROUP.into()] });
}

#[test]
fn every_offered_version_of_the_admin_apis_is_answered() {
    let mut offered = start();
    offered.check(|version, _| {
        let name = format!("made-{version}").as_str().into();
        let topic = create::CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() };
        create::CreateTopicsRequest { topics: vec![topic], timeout_ms: 1_000, ..Default::default() }
    });
    offered.check(|version, _| {
        let name: Str = format!("made-{version}").as_str().into();
        let topic = delete::DeleteTopicState { name: Some(name.clone()), ..Default::default() };
        let (topics, topic_names) = if version >= 6 { (vec![topic], Vec::new()) } else { (Vec::new(), vec![name]) };
        delete::DeleteTopicsRequest { topics, topic_names, timeout_ms: 1_000 }
    });
    offered.check(|_, _| {
        let topic = grow::CreatePartitionsTopic { name: TOPIC.into(), count: 3, assignments: None };
        grow::CreatePartitionsRequest { topics: vec![topic], timeout_ms: 1_000, validate_only: true }
    });
    offered.check(|_, _| {
        let partition = records::DeleteRecordsPartition { partition_index: 0, offset: 1 };
        let topic = records::DeleteRecordsTopic { name: TOPIC.into(), partitions: vec![partition] };
        records::DeleteRecordsRequest { topics: vec![topic], timeout_ms: 1_000 }
    });
    offered.check(|version, _| configs::DescribeConfigsRequest {
        resources: [(2, TOPIC), (4, "1")]
            .map(|(resource_type, name)| configs::DescribeConfigsResource {
                resource_type,
                resource_name: name.into(),
                configuration_keys: None,
            })
            .to_vec(),
        include_synonyms: true,
        include_documentation: version >= 3,
    });
    offered.check(|_, _| {
        let config = alter::AlterableConfig { name: "retention.ms".into(), value: Some("1000000".into()) };
        let resource =
            alter::AlterConfigsResource { resource_type: 2, resource_name: TOPIC.into(), configs: vec![config] };
        alter::AlterConfigsRequest { resources: vec![resource], validate_only: false }
    });
    offered.check(|_, _| {
        let config = incremental::AlterableConfig {
            name: "retention.ms".into(),
            config_operation: 0,
            value: Some("1000000".into()),
        };
        let resource =
            incremental::AlterConfigsResource { resource_type: 2, resource_name: TOPIC.into(), configs: vec![config] };
        incremental::IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false }
    });
    offered.check(|_, _| move_dirs::AlterReplicaLogDirsRequest {
        dirs: vec![move_dirs::AlterReplicaLogDir {
            path: "/nowhere".into(),
            topics: vec![move_dirs::AlterReplicaLogDirTopic { name: TOPIC.into(), partitions: vec![0] }],
        }],
    });
    offered.check(|_, _| log_dirs::DescribeLogDirsRequest { topics: None });
    offered.check(|_, _| list_partition_reassignments::ListPartitionReassignmentsRequest {
        topics: None,
        ..Default::default()
    });
    offered.check(|_, _| describe_quorum::DescribeQuorumRequest {
        topics: vec![describe_quorum::RequestTopicData {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![describe_quorum::RequestPartitionData { partition_index: 0 }],
        }],
    });
}

#[test]
fn every_offered_version_of_the_cluster_apis_is_answered() {
    let mut offered = start();
    offered.check(|_, _| {
        let topic = elect::TopicPartitions { topic: TOPIC.into(), partitions: vec![0] };
        elect::ElectLeadersRequest { topic_partitions: Some(vec![topic]), ..Default::default() }
    });
    offered.check(|_, _| {
        let partition = reassign::ReassignablePartition { partition_index: 0, replicas: Some(vec![1]) };
        let topic = reassign::ReassignableTopic { name: TOPIC.into(), partitions: vec![partition] };
        reassign::AlterPartitionReassignmentsRequest { topics: vec![topic], ..Default::default() }
    });
    offered.check(|_, _| unregister_broker::UnregisterBrokerRequest { broker_id: 9 });
    offered.check(|_, _| describe_cluster::DescribeClusterRequest::default());
    offered.check(|version, _| list_config_resources::ListConfigResourcesRequest {
        resource_types: if version >= 1 { vec![2] } else { Vec::new() },
    });
    offered.check(|_, _| describe::DescribeTopicPartitionsRequest {
        topics: vec![describe::TopicRequest { name: TOPIC.into() }],
        response_partition_limit: 10,
        cursor: None,
    });
}

/// The tests above name every API that is offered: a new one has to be added to them.
#[test]
fn no_offered_api_is_left_out() {
    let source = include_str!("every_version.rs");
    for api_key in start().versions.into_keys() {
        let name = ApiKey::from_i16(api_key).unwrap().name();
        let request = format!("{name}Request");
        assert!(source.contains(&request), "{request} is not tried");
    }
}
