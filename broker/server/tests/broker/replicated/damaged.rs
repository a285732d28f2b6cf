//! A follower's log is damaged, or lacks records, while it is down: it is copied again, once; a person looks at damage that happens twice.

use super::SETTINGS;
use super::cluster::Cluster;
use crate::harness::eventually;

fn lose_records(cluster: &Cluster, id: usize) {
    std::fs::write(cluster.data(id).join("orders-0/00000000000000000000.log"), "").unwrap();
}

fn offline_replicas(cluster: &Cluster, id: usize, count: usize) {
    let line = format!("forebay_offline_replicas {count}");
    eventually("so many replicas are offline", || {
        let metrics = cluster.brokers[id].as_ref().unwrap().http_get("/metrics");
        metrics.lines().any(|found| found == line).then_some(())
    });
}

#[test]
fn a_damaged_log_of_a_follower_is_set_aside_and_copied_again() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    for number in 0..50 {
        cluster.produce("orders", &number.to_string());
    }
    let follower = (cluster.leader("orders") + 1) % 3;
    cluster.stop(follower);
    lose_records(&cluster, follower);
    cluster.start_again(follower);
    cluster.await_in_sync("orders", 3);
    eventually("it has all of it again", || {
        (cluster.client(follower).read_all("orders", 0) == cluster.read_all("orders")).then_some(())
    });
    cluster.await_records("orders", 50);
    let aside = cluster.data(follower).join("orders-0.damaged");
    assert!(aside.join("00000000000000000000.index").exists(), "what was found is kept");
    offline_replicas(&cluster, follower, 0);

    cluster.stop(follower);
    lose_records(&cluster, follower);
    cluster.start_again(follower);
    offline_replicas(&cluster, follower, 1);
    cluster.await_in_sync("orders", 2);
    cluster.produce("orders", "the others go on");
    offline_replicas(&cluster, follower, 1);

    cluster.stop(follower);
    std::fs::remove_dir_all(aside).unwrap();
    cluster.start_again(follower);
    cluster.await_in_sync("orders", 3);
    cluster.await_records("orders", 51);
}

#[test]
fn a_followers_log_whose_beginning_is_missing_after_a_kill_is_copied_again() {
    let mut cluster = Cluster::start(&["replica.lag.time.max.ms=2000", "log.segment.bytes=1048576"]);
    cluster.create_replicated("orders", 3, "2");
    let value = "x".repeat(300_000);
    for _ in 0..8 {
        cluster.produce("orders", &value);
    }
    let follower = (cluster.leader("orders") + 1) % 3;
    let log = cluster.data(follower).join("orders-0");
    let first = log.join("00000000000000000000.log");
    eventually("it has several segments", || {
        let files = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
        (files.filter(|path| path.extension().is_some_and(|suffix| suffix == "log")).count() > 1).then_some(())
    });
    cluster.kill(follower);
    std::fs::remove_file(&first).unwrap();
    cluster.start_again(follower);
    cluster.await_in_sync("orders", 3);
    eventually("it has all of it again", || {
        (cluster.client(follower).read_all("orders", 0) == cluster.read_all("orders")).then_some(())
    });
    assert!(first.exists() && cluster.data(follower).join("orders-0.damaged").exists());
    offline_replicas(&cluster, follower, 0);
}
