//! What a properties file may say, and what is said about one that may not.

use super::*;

const LEAST: &str =
    "node.id=1\nlisteners=PLAINTEXT://0.0.0.0:9092\nadvertised.listeners=PLAINTEXT://b1:9092\nlog.dirs=/a,/b\n";

fn check_refused(extra: &str, expected: &str) {
    let error = BrokerConfig::parse(&format!("{LEAST}{extra}"), &[]).unwrap_err().to_string();
    assert_eq!(error, expected);
}

#[test]
fn a_short_file_is_enough_and_the_rest_has_defaults() {
    let config = BrokerConfig::parse(LEAST, &[]).unwrap();
    assert_eq!(config.broker_id, 1);
    assert_eq!(config.log_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(config.advertised_listeners[0].host, "b1");
    assert_eq!(config.network.fetch_max_bytes, 57_671_680);
    assert_eq!(config.network.socket_send_buffer_bytes, None);
    assert_eq!(config.offsets.topic_num_partitions, 50);
    assert!(config.auto_create_topics_enable);
}

#[test]
fn an_override_wins_over_the_file() {
    let config = BrokerConfig::parse(LEAST, &["node.id=7".to_owned(), "num.partitions=4".to_owned()]).unwrap();
    assert_eq!((config.broker_id, config.num_partitions), (7, 4));
    assert_eq!(config.file.get("num.partitions").map(String::as_str), Some("4"));
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_one() {
    check_refused("num.partition=4", "unknown broker setting 'num.partition'; did you mean 'num.partitions'?");
}

#[test]
fn a_wrong_value_is_refused_with_what_would_be_right() {
    check_refused("num.partitions=none", "num.partitions=none: must be a 32-bit integer of at least 1");
    check_refused(
        "log.cleanup.policy=drop",
        "log.cleanup.policy=drop: must be a comma-separated list of compact, delete",
    );
}

#[test]
fn everything_wrong_is_said_at_once() {
    check_refused(
        "num.partitions=0\nnum.io.threads=0",
        "num.io.threads=0: must be a 32-bit integer of at least 1; num.partitions=0: must be a 32-bit integer of at least 1",
    );
}

#[test]
fn node_and_broker_id_must_agree() {
    check_refused("broker.id=2", "broker.id=2: must be the same as node.id=1, or left out");
}

#[test]
fn what_a_broker_cannot_run_without_is_asked_for() {
    let error = BrokerConfig::parse("listeners=PLAINTEXT://h:1", &[]).unwrap_err().to_string();
    assert_eq!(
        error,
        "node.id is missing: a number that is this broker's own and stays the same; log.dirs is missing: one directory for each disk, between commas"
    );
}

#[test]
fn an_address_of_all_interfaces_is_not_advertised() {
    let error = BrokerConfig::parse("node.id=1\nlog.dirs=/a\nlisteners=PLAINTEXT://0.0.0.0:9092", &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "advertised.listeners=PLAINTEXT://0.0.0.0:9092: must be an address that clients can connect to, not all interfaces"
    );
}

#[test]
fn a_protocol_that_is_not_served_is_refused() {
    check_refused(
        "listener.security.protocol.map=PLAINTEXT:SSL",
        "listener.security.protocol.map=SSL: must be PLAINTEXT for listener PLAINTEXT",
    );
}

#[test]
fn several_listeners_keep_their_order_and_names() {
    let text = "node.id=1\nlog.dirs=/a\nlisteners=IN://a:1,OUT://b:2\nadvertised.listeners=OUT://c:3\nlistener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\ninter.broker.listener.name=out";
    let config = BrokerConfig::parse(text, &[]).unwrap();
    let ports: Vec<u16> = config.advertised_listeners.iter().map(|listener| listener.port).collect();
    assert_eq!(ports, [1, 3]);
    assert_eq!(config.inter_broker_listener_name, "OUT");
}

#[test]
fn a_pod_name_gives_the_broker_id() {
    assert_eq!(broker_id_from_name("demo-broker-12").unwrap(), 12);
    assert!(broker_id_from_name("demo").is_err());
}

#[test]
fn threads_follow_the_cores_unless_they_are_given() {
    let config = BrokerConfig::parse(LEAST, &[]).unwrap();
    assert_eq!(config.threads.in_force(1), ThreadsInForce { network: 1, io: 2 });
    assert_eq!(config.threads.in_force(32), ThreadsInForce { network: 6, io: 16 });
    let config = BrokerConfig::parse(LEAST, &["num.io.threads=3".to_owned()]).unwrap();
    assert_eq!(config.threads.in_force(32).io, 3);
}

#[test]
fn topics_defaults_that_contradict_each_other_are_refused() {
    check_refused(
        "log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=5",
        "min.compaction.lag.ms=9: must be at most max.compaction.lag.ms=5",
    );
}
