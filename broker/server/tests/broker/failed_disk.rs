//! One disk of several that fails, is missing, or has lost a log: its partitions are offline, and nothing else is.

use forebay_broker_wire::types::ErrorCode;

use crate::create_topics::{create, topic};
use crate::harness::{BrokerProcess, Client, batch};
use crate::mounts::Mount;

/// Which of the directories has a partition's log.
fn dir_of(root: &std::path::Path, log: &str) -> &'static str {
    ["data", "second"].iter().find(|dir| root.join(dir).join(log).exists()).unwrap()
}

fn partitions_on(root: &std::path::Path, dir: &str, partitions: i32) -> Vec<i32> {
    (0..partitions).filter(|partition| dir_of(root, &format!("orders-{partition}")) == dir).collect()
}

fn settings(root: &std::path::Path) -> [String; 1] {
    [format!("log.dirs={},{}", root.join("data").display(), root.join("second").display())]
}

fn start(root: &std::path::Path) -> BrokerProcess {
    BrokerProcess::start_with(root, &settings(root).each_ref().map(String::as_str))
}

fn code(client: &mut Client, partition: i32, value: &str) -> ErrorCode {
    ErrorCode::from_code(client.produce("orders", partition, batch(&[value]), -1).error_code)
}

#[test]
fn a_disk_that_fails_takes_only_its_own_partitions_offline() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let Some(disk) = Mount::ext4(&root.join("second"), 64) else { return };
    let broker = start(root);
    let client = &mut broker.client();
    create(client, topic("orders", 4, &[("flush.messages", Some("1"))]));
    let (good, bad) = (partitions_on(root, "data", 4), partitions_on(root, "second", 4));
    assert_eq!((good.len(), bad.len()), (2, 2), "partitions are spread over the disks");
    for partition in 0..4 {
        assert_eq!(code(client, partition, "before"), ErrorCode::None);
    }
    disk.fail();
    for partition in &bad {
        let answer = client.produce("orders", *partition, batch(&["lost"]), -1);
        assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::KafkaStorageError);
        let words = answer.error_message.unwrap();
        assert!(words.contains("takes no more writes since it failed"), "{words}");
    }
    for partition in &good {
        assert_eq!(code(client, *partition, "after"), ErrorCode::None);
        assert_eq!(client.read_all("orders", *partition).len(), 2);
    }
    let made = create(client, topic("new", 4, &[]));
    assert_eq!(made.error_code, 0);
    for partition in 0..4 {
        assert_eq!(dir_of(root, &format!("new-{partition}")), "data", "new partitions avoid the failed disk");
        assert_eq!(client.produce("new", partition, batch(&["x"]), -1).error_code, 0);
    }
    let second = root.join("second").display().to_string();
    let metrics = broker.http_get("/metrics");
    assert!(metrics.contains(&format!("forebay_log_dir_poisoned{{dir=\"{second}\"}} 1")), "{metrics}");
    let ready = broker.http_get("/readyz");
    assert!(
        ready.starts_with("HTTP/1.1 200") && ready.contains(&format!("log dir {second} takes no writes")),
        "{ready}"
    );
    assert!(broker.http_get("/status").contains("\"failure\":"));
    assert!(broker.said("log directory takes no more writes").is_some());
    broker.terminate();
}

#[test]
fn without_the_disk_that_has_the_metadata_there_is_no_start() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let broker = start(root);
    create(&mut broker.client(), topic("orders", 4, &[]));
    assert!(broker.terminate());
    std::fs::remove_dir_all(root.join("data")).unwrap();
    let said = match BrokerProcess::try_start(root, &settings(root).each_ref().map(String::as_str)) {
        Ok(_) => panic!("it started"),
        Err(said) => said.join("\n"),
    };
    assert!(said.contains("the cluster's metadata must be on a disk that is missing"), "{said}");
    assert!(!root.join("data").exists(), "nothing is begun anew");
}

#[test]
fn a_log_that_has_vanished_is_told_loudly() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let broker = BrokerProcess::start(root);
    let client = &mut broker.client();
    create(client, topic("orders", 2, &[]));
    assert_eq!(code(client, 0, "gone"), ErrorCode::None);
    assert!(broker.terminate());
    std::fs::remove_dir_all(root.join("data/orders-0")).unwrap();
    let broker = BrokerProcess::start(root);
    let said = broker.said("the log of a partition has vanished from its log dir").unwrap();
    assert!(said.contains("log=orders-0"), "{said}");
    let data = root.join("data").display().to_string();
    assert!(broker.http_get("/metrics").contains(&format!("forebay_log_dir_missing_logs{{dir=\"{data}\"}} 1")));
}
#[test]
fn a_start_without_one_disk_serves_the_rest_and_the_disk_comes_back_with_all_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let broker = start(root);
    let client = &mut broker.client();
    create(client, topic("orders", 4, &[]));
    for partition in 0..4 {
        assert_eq!(code(client, partition, "before"), ErrorCode::None);
    }
    let (good, bad) = (partitions_on(root, "data", 4), partitions_on(root, "second", 4));
    assert!(broker.terminate());

    // Its mount point is there, its disk is not.
    std::fs::rename(root.join("second"), root.join("unmounted")).unwrap();
    std::fs::create_dir(root.join("second")).unwrap();
    let broker = start(root);
    let client = &mut broker.client();
    for partition in &good {
        assert_eq!(code(client, *partition, "after"), ErrorCode::None);
    }
    for partition in &bad {
        assert_eq!(code(client, *partition, "after"), ErrorCode::KafkaStorageError);
        assert_eq!(client.fetch("orders", *partition, 0).error_code, ErrorCode::KafkaStorageError.code());
    }
    assert_eq!(create(client, topic("new", 2, &[])).error_code, 0);
    assert_eq!(client.produce("new", 1, batch(&["x"]), -1).error_code, 0);
    let said = broker.said("starting without a log dir").unwrap();
    assert!(said.contains("is its disk mounted?"), "{said}");
    assert!(broker.http_get("/readyz").contains("takes no writes: it held directory"));
    assert!(broker.terminate());

    std::fs::remove_dir(root.join("second")).unwrap();
    std::fs::rename(root.join("unmounted"), root.join("second")).unwrap();
    let broker = start(root);
    let client = &mut broker.client();
    for partition in 0..4 {
        let expected = if good.contains(&partition) { 2 } else { 1 };
        assert_eq!(client.read_all("orders", partition).len(), expected);
        assert_eq!(code(client, partition, "again"), ErrorCode::None);
    }
}
