//! SIGKILL and SIGTERM to a real process.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use forebay_broker_wire::messages::init_producer_id::InitProducerIdRequest;
use forebay_broker_wire::messages::produce::ProduceRequest;
use forebay_broker_wire::records::BatchBuilder;
use forebay_broker_wire::types::{ProducerEpoch, ProducerId};

use crate::harness::{BrokerProcess, Client, PRODUCE, batch, fill, produce};

#[test]
fn what_was_acknowledged_is_there_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..5 {
        let broker = BrokerProcess::start(dir.path());
        let mut client = Client::connect(broker.kafka_address);
        client.create_topic("orders");
        let found = client.read_all("orders", 0);
        assert!(found.len() >= acknowledged, "round {round}: {} of {acknowledged} are there", found.len());
        assert!(
            found.values().enumerate().all(|(number, value)| *value == number.to_string()),
            "round {round}: in order"
        );
        acknowledged = found.len();
        for _ in 0..40 {
            let answer =
                client.produce("orders", 0, batch(&[&acknowledged.to_string()]), if round % 2 == 0 { 1 } else { -1 });
            assert_eq!(answer.error_code, 0);
            acknowledged += 1;
        }
        broker.kill();
    }
}

/// Sends numbered batches as an idempotent producer does, a few at a time, and resends from the first that was not
/// acknowledged. Ends with its connection; gives how many are acknowledged.
fn produce_until_cut(address: SocketAddr, id: ProducerId, first: i32) -> i32 {
    let mut client = Client::connect(address);
    let (mut sent, mut acknowledged) = (first, first);
    loop {
        while sent < acknowledged + 5 {
            let records = fill(BatchBuilder::default().producer(id, ProducerEpoch(0), sent), &[&sent.to_string()]);
            if client.try_send(&produce("orders", 0, records, -1), PRODUCE).is_err() {
                return acknowledged;
            }
            sent += 1;
        }
        let Ok(response) = client.try_receive::<ProduceRequest>(PRODUCE) else { return acknowledged };
        assert_eq!(response.responses[0].partition_responses[0].error_code, 0, "{response:?}");
        acknowledged += 1;
    }
}

#[test]
fn an_idempotent_producer_leaves_neither_gaps_nor_duplicates_over_20_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    let mut id = None;
    for round in 0..20_u64 {
        let broker = BrokerProcess::start(dir.path());
        let mut client = Client::connect(broker.kafka_address);
        let id = *id.get_or_insert_with(|| {
            client.create_topic("orders");
            let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
            ProducerId(client.call(&request, 4).producer_id)
        });
        let address = broker.kafka_address;
        let producer = std::thread::spawn(move || produce_until_cut(address, id, acknowledged));
        // At another moment of the work in each round.
        std::thread::sleep(Duration::from_millis(20 + 7 * (round * 13 % 20)));
        broker.kill();
        acknowledged = producer.join().unwrap();
    }
    let broker = BrokerProcess::start(dir.path());
    let found: Vec<_> = Client::connect(broker.kafka_address).read_all("orders", 0).into_values().collect();
    assert!(found.len() >= usize::try_from(acknowledged).unwrap(), "{} of {acknowledged}", found.len());
    assert!(acknowledged > 100, "{acknowledged} are too few to show anything");
    let expected: Vec<_> = (0..found.len()).map(|number| number.to_string()).collect();
    assert_eq!(found, expected);
}

#[test]
fn sigterm_ends_the_process_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let broker = BrokerProcess::start(dir.path());
    let mut client = Client::connect(broker.kafka_address);
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a"]), 1);
    assert!(Command::new("kill").args(["-TERM", &broker.id().to_string()]).status().unwrap().success());
    assert!(broker.wait(), "exit status 0");
    assert!(dir.path().join("data/.kafka_cleanshutdown").exists());
}
