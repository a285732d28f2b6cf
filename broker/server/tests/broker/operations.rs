//! What people who run a broker see: metrics, readiness, status.

use forebay_broker_config::status::{BrokerState, BrokerStatus};
use forebay_broker_server::metrics::catalog;

use crate::harness::{TestBroker, batch};

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn metrics_count_what_was_produced_and_consumed() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a", "b"]), 1);
    client.read_all("orders", 0);
    let metrics = broker.http_get("/metrics");
    for line in [
        "forebay_topic_messages_in_total{topic=\"orders\"} 2",
        "kafka_topic_partition_current_offset{partition=\"0\",topic=\"orders\"} 2",
        "kafka_topic_partition_oldest_offset{partition=\"0\",topic=\"orders\"} 0",
        "forebay_requests_total{api=\"Produce\"} 1",
        "forebay_partitions 2",
        "forebay_connections 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    for name in ["forebay_topic_bytes_out_total", "forebay_in_force", "process_resident_memory_bytes"] {
        assert!(metrics.contains(name), "{name}");
    }
}

#[test]
fn every_metric_that_is_served_is_in_the_catalogue() {
    let broker = TestBroker::start();
    let metrics = broker.http_get("/metrics");
    for line in body(&metrics).lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(catalog::ALL.iter().any(|metric| metric.name == name), "{name}");
    }
}

#[test]
fn probes_and_status_answer() {
    let broker = TestBroker::start();
    assert!(broker.http_get("/livez").starts_with("HTTP/1.1 200"));
    assert!(broker.http_get("/readyz").starts_with("HTTP/1.1 200"));
    let answer = broker.http_get("/status");
    let status: BrokerStatus = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!((status.broker_id, status.state), (1, BrokerState::Running));
    assert_eq!((status.threads.network, status.threads.io), (2, 2));
    assert!(status.nofile.soft > 0 && status.cores > 0.0);
    let dir = &status.log_dirs[0];
    assert!(dir.mount_point.is_some() && dir.total_bytes > 0 && !dir.poisoned);
}
