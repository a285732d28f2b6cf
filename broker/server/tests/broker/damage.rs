//! Files that a broker wrote and finds otherwise at its next start: told, refused where nothing else is right, and nobody else is kept from anything.

use std::path::Path;

use crate::create_topics::{create, topic};
use crate::harness::{BrokerProcess, batch};

type Lose = fn(&Path);

/// A broker that had records and was stopped.
fn stopped(dir: &Path) {
    let broker = BrokerProcess::start(dir);
    let client = &mut broker.client();
    create(client, topic("orders", 2, &[]));
    for partition in 0..2 {
        assert_eq!(client.produce("orders", partition, batch(&["a", "b"]), -1).error_code, 0);
    }
    assert!(broker.terminate());
}

#[test]
fn a_partition_that_lost_its_records_is_refused_and_told_and_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    stopped(dir.path());
    std::fs::write(dir.path().join("data/orders-0/00000000000000000000.log"), "").unwrap();
    let broker = BrokerProcess::start(dir.path());
    let client = &mut broker.client();
    assert_ne!(client.produce("orders", 0, batch(&["c"]), -1).error_code, 0);
    assert_eq!(client.produce("orders", 1, batch(&["c"]), -1).base_offset, 2);
    assert!(broker.said("all below offset 2 had been on disk").is_some());
    let data = dir.path().join("data").display().to_string();
    let metrics = broker.http_get("/metrics");
    assert!(metrics.contains(&format!("forebay_log_dir_inconsistent_logs{{dir=\"{data}\"}} 1")), "{metrics}");
    let ready = broker.http_get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("log orders-0 lacks records"), "{ready}");
    assert!(broker.terminate());
}

#[test]
fn a_broker_whose_metadata_is_lost_does_not_start() {
    let losses: [(Lose, &str); 3] = [
        (|log| std::fs::write(log.join("00000000000000000000.log"), "").unwrap(), "restore the log from a copy"),
        (|log| std::fs::remove_file(log.join("00000000000000000000.log")).unwrap(), "restore the log from a copy"),
        (
            |log| {
                std::fs::remove_dir_all(log).unwrap();
                std::fs::create_dir(log).unwrap();
                std::fs::remove_file(log.parent().unwrap().join("recovery-point-offset-checkpoint")).unwrap();
            },
            "is empty, but there are partitions such as orders-0",
        ),
    ];
    for (lose, words) in losses {
        let dir = tempfile::tempdir().unwrap();
        stopped(dir.path());
        lose(&dir.path().join("data/__cluster_metadata-0"));
        let said = BrokerProcess::try_start(dir.path(), &[]).err().unwrap().join("\n");
        assert!(said.contains(words), "{said}");
    }
}
