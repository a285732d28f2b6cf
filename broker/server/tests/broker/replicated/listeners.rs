//! Clients that come in from outside are told of outside addresses only, which change while brokers run; brokers use their own listener.

use std::net::{IpAddr, SocketAddr};

use forebay_broker_wire::messages::create_topics::CreatableTopic;
use forebay_broker_wire::messages::describe_cluster::DescribeClusterRequest;
use forebay_broker_wire::messages::fetch::FetchRequest;
use forebay_broker_wire::messages::find_coordinator::FindCoordinatorRequest;
use forebay_broker_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use forebay_broker_wire::types::ErrorCode;

use super::cluster::Cluster;
use crate::create_topics;
use crate::harness::{Client, FETCH, batch, eventually, fetch, produce};

const SETTINGS: &[&str] = &["log.retention.ms=-1"];
/// Where nobody listens but EXTERNAL.
const OUTSIDE: &str = "127.0.0.2";

/// What a broker's clients are told of it from now on.
fn tell(cluster: &Cluster, id: usize, address: &str) {
    let config = AlterableConfig {
        name: "advertised.listeners".into(),
        value: Some(format!("EXTERNAL://{address}").into()),
        ..AlterableConfig::default()
    };
    let resource =
        AlterConfigsResource { resource_type: 4, resource_name: id.to_string().into(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let answer = cluster.any().call(&request, 1).responses.remove(0);
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
}

fn metadata(client: &mut Client, topic: &str) -> MetadataResponse {
    let topics = vec![MetadataRequestTopic { name: Some(topic.into()), ..MetadataRequestTopic::default() }];
    client.call(&MetadataRequest { topics: Some(topics), ..MetadataRequest::default() }, 9)
}

fn nodes(response: &MetadataResponse) -> Vec<(i32, String)> {
    let mut nodes: Vec<_> =
        response.brokers.iter().map(|broker| (broker.node_id, format!("{}:{}", broker.host, broker.port))).collect();
    nodes.sort();
    nodes
}

/// From outside.
fn outside(cluster: &Cluster, id: usize) -> Client {
    let ip: IpAddr = OUTSIDE.parse().unwrap();
    Client::connect(SocketAddr::from((ip, cluster.external_port(id))))
}

fn addresses(cluster: &Cluster, host: &str, port: impl Fn(&Cluster, usize) -> u16) -> Vec<(i32, String)> {
    (0..3).map(|id| (i32::try_from(id).unwrap(), format!("{host}:{}", port(cluster, id)))).collect()
}

/// Gives every broker its address outside.
fn told_outside(cluster: &Cluster) -> Vec<(i32, String)> {
    let wanted = addresses(cluster, OUTSIDE, Cluster::external_port);
    for (id, (_, address)) in wanted.iter().enumerate() {
        tell(cluster, id, address);
    }
    for id in 0..3 {
        eventually("clients from outside are told of all brokers", || {
            (nodes(&metadata(&mut outside(cluster, id), "orders")) == wanted).then_some(())
        });
    }
    wanted
}

#[test]
fn nobody_is_named_outside_before_there_is_an_address_and_then_by_no_other() {
    let cluster = Cluster::start_with_external(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let mut client = outside(&cluster, 0);
    let early = metadata(&mut client, "orders");
    assert_eq!((nodes(&early), early.topics[0].error_code), (Vec::new(), 0));
    let find = FindCoordinatorRequest { key: "readers".into(), ..FindCoordinatorRequest::default() };
    let code = ErrorCode::from_code(client.call(&find, 3).error_code);
    assert_eq!(code, ErrorCode::CoordinatorNotAvailable);

    let wanted = told_outside(&cluster);
    let inside = addresses(&cluster, "127.0.0.1", Cluster::port);
    assert_eq!(nodes(&metadata(&mut cluster.any(), "orders")), inside, "inside nothing has changed");
    let described = client.call(&DescribeClusterRequest { endpoint_type: 1, ..Default::default() }, 1);
    let described = described.brokers.iter().map(|broker| format!("{}:{}", broker.host, broker.port));
    assert_eq!(described.collect::<Vec<_>>(), wanted.iter().map(|(_, to)| to.clone()).collect::<Vec<_>>());
    let coordinator = eventually("there is a coordinator", || {
        let found = client.call(&find, 3);
        (found.error_code == 0).then_some(found)
    });
    let told = format!("{}:{}", coordinator.host, coordinator.port);
    assert!(wanted.contains(&(coordinator.node_id, told)), "{coordinator:?}");
    let leader = cluster.leader("orders");
    let mut response = outside(&cluster, (leader + 1) % 3).call(&produce("orders", 0, batch(&["x"]), 1), 12);
    assert_ne!(response.responses.remove(0).partition_responses.remove(0).error_code, 0);
    let hint = response.node_endpoints.remove(0);
    assert!(wanted.contains(&(hint.node_id, format!("{}:{}", hint.host, hint.port))), "{hint:?}");
}

#[test]
fn records_go_in_and_out_over_the_addresses_that_clients_outside_are_told() {
    let mut cluster = Cluster::start_with_external(SETTINGS);
    let topic = create_topics::topic("orders", 3, &[("min.insync.replicas", Some("2"))]);
    cluster.create(&CreatableTopic { replication_factor: 3, ..topic });
    told_outside(&cluster);
    let write_and_read = |cluster: &Cluster, value: &str| {
        for partition in 0..3 {
            eventually("a record goes in and out", || {
                let told = metadata(&mut outside(cluster, 1), "orders");
                let leader = told.topics[0].partitions.iter().find(|p| p.partition_index == partition)?.leader_id;
                let address: SocketAddr = nodes(&told).into_iter().find(|(id, _)| *id == leader)?.1.parse().unwrap();
                let mut client = Client::connect(address);
                let written = client.produce("orders", partition, batch(&[value]), -1);
                let read = client.read_all("orders", partition);
                (written.error_code == 0 && read.values().any(|read| read == value)).then_some(())
            });
        }
    };
    write_and_read(&cluster, "before");
    cluster.kill(0);
    cluster.start_again(0);
    let wanted = addresses(&cluster, OUTSIDE, Cluster::external_port);
    eventually("the broker that came again has its address", || {
        (nodes(&metadata(&mut outside(&cluster, 0), "orders")) == wanted).then_some(())
    });
    let moved = format!("127.0.0.3:{}", cluster.external_port(0));
    tell(&cluster, 0, &moved);
    for id in 0..3 {
        eventually("its other address is told everywhere", || {
            let told = nodes(&metadata(&mut outside(&cluster, id), "orders"));
            told.contains(&(0, moved.clone())).then_some(())
        });
    }
    write_and_read(&cluster, "after");
}

#[test]
fn nobody_outside_is_taken_for_a_replica() {
    let cluster = Cluster::start_with_external(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let leader = cluster.leader("orders");
    let as_replica = || FetchRequest { replica_id: 2, ..fetch(&[("orders", 0, 0)], 0, 0) };
    let code = outside(&cluster, leader).call(&as_replica(), FETCH).error_code;
    assert_eq!(ErrorCode::from_code(code), ErrorCode::ClusterAuthorizationFailed);
    assert_eq!(cluster.client(leader).call(&as_replica(), FETCH).error_code, 0);
}
