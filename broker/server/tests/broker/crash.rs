//! SIGKILL and SIGTERM to a real process.

use std::process::Command;

use crate::harness::{BrokerProcess, Client, batch};

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
