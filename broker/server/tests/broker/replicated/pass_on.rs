//! A leader that dies under an idempotent producer that keeps five batches on the way to who is to lead next: what is passed on and what is
//! appended at once stay in order, and no answer says that a sequence is broken, which would end such a producer.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use forebay_broker_wire::messages::produce::{PartitionProduceResponse, ProduceRequest};
use forebay_broker_wire::types::{ErrorCode, ProducerId};

use crate::harness::{Client, produce};
use crate::idempotence::{numbered, producer_id};

use super::SETTINGS;
use super::cluster::Cluster;

const VERSION: i16 = 12;
const IN_FLIGHT: usize = 5;
const RETRIED_FOR: Duration = Duration::from_secs(30);

/// What it was answered while the leader changed.
#[derive(Default)]
struct Producer {
    acknowledged: BTreeMap<i64, String>,
    /// Sent and not answered, by sequence number.
    in_flight: VecDeque<i32>,
    errors: usize,
}

impl Producer {
    /// Keeps as many on the way as it may until so many are acknowledged, or one fails. Then those behind it must fail, too.
    fn run(&mut self, client: &mut Client, id: ProducerId, until: usize) {
        let mut next = i32::try_from(self.acknowledged.len()).unwrap();
        let mut failed = false;
        while self.acknowledged.len() < until {
            while !failed && self.in_flight.len() < IN_FLIGHT {
                let value = next.to_string();
                client.send(&produce("orders", 0, numbered(id, next, &[&value]), -1), VERSION);
                self.in_flight.push_back(next);
                next += 1;
            }
            let Some(sequence) = self.in_flight.pop_front() else { return };
            let answer = receive(client);
            match ErrorCode::from_code(answer.error_code) {
                ErrorCode::None => {
                    assert!(!failed, "batch {sequence} is acknowledged behind one that failed");
                    self.acknowledged.insert(answer.base_offset, sequence.to_string());
                }
                ErrorCode::NotLeaderOrFollower | ErrorCode::NotEnoughReplicasAfterAppend => {
                    failed = true;
                    self.errors += 1;
                }
                other => panic!("batch {sequence}: {other:?}, {:?}", answer.error_message),
            }
        }
        while self.in_flight.pop_front().is_some() {
            let answer = receive(client);
            self.acknowledged.insert(answer.base_offset, self.acknowledged.len().to_string());
        }
    }
}

fn receive(client: &mut Client) -> PartitionProduceResponse {
    client.receive::<ProduceRequest>(VERSION).1.responses.remove(0).partition_responses.remove(0)
}

#[test]
fn batches_on_their_way_to_the_next_leader_keep_their_order_when_the_leader_dies() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let old = cluster.leader("orders");
    let replicas = cluster.partition(&mut cluster.any(), "orders").unwrap().replica_nodes;
    let next = replicas.iter().map(|id| usize::try_from(*id).unwrap()).find(|id| *id != old).unwrap();
    let id = producer_id(&mut cluster.client(next));
    cluster.kill(old);
    let (mut producer, begin) = (Producer::default(), Instant::now());
    while producer.acknowledged.len() < 200 {
        assert!(begin.elapsed() < RETRIED_FOR, "{} errors", producer.errors);
        producer.run(&mut cluster.client(next), id, 200);
    }
    let in_order = |(at, (_, value)): (usize, (&i64, &String))| assert_eq!(at.to_string(), *value);
    producer.acknowledged.iter().enumerate().for_each(in_order);
    assert_eq!(cluster.read_all("orders"), producer.acknowledged, "each of them once");
}
