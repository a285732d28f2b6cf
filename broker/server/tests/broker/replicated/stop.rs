//! A leader that stops in order: its producers go on without an error.

use std::collections::BTreeMap;

use crate::harness::produce;
use crate::idempotence::{numbered, producer_id};

use super::SETTINGS;
use super::cluster::Cluster;

#[test]
fn a_leader_that_stops_passes_on_what_comes_and_says_who_leads_now() {
    let cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let old = cluster.leader("orders");
    let mut client = cluster.client(old);
    let id = producer_id(&mut client);
    cluster.signal(old, "-TERM");
    let mut acknowledged = BTreeMap::new();
    let new = loop {
        let sequence = i32::try_from(acknowledged.len()).unwrap();
        let value = sequence.to_string();
        let mut response = client.call(&produce("orders", 0, numbered(id, sequence, &[&value]), -1), 12);
        let partition = response.responses.remove(0).partition_responses.remove(0);
        assert_eq!(partition.error_code, 0, "after {sequence} batches: {:?}", partition.error_message);
        acknowledged.insert(partition.base_offset, value);
        if partition.current_leader.leader_id >= 0 {
            assert_eq!(response.node_endpoints.len(), 1, "with its address");
            break usize::try_from(partition.current_leader.leader_id).unwrap();
        }
    };
    assert_ne!(new, old);
    assert_eq!(cluster.client(new).read_all("orders", 0), acknowledged, "each of them once");
}
