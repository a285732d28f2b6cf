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
        "num.io.threads=0: must be a 32-bit integer from 1 to 1024; num.partitions=0: must be a 32-bit integer of at least 1",
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

const TWO: &str = "node.id=1\nlog.dirs=/a\nlisteners=IN://a:1,OUT://0.0.0.0:2\n\
    listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\n";

#[test]
fn a_listener_for_clients_may_get_its_address_later() {
    let told = |extra: &str| {
        let config = BrokerConfig::parse(&format!("{TWO}forebay.listeners.without.address=out\n{extra}"), &[]).unwrap();
        config.advertised_listeners.iter().map(|told| (told.host.clone(), told.port)).collect::<Vec<_>>()
    };
    assert_eq!(told(""), [("a".to_owned(), 1), (String::new(), 0)]);
    assert_eq!(told("advertised.listeners=OUT://b:3"), [("a".to_owned(), 1), ("b".to_owned(), 3)], "or now");
}

#[test]
fn only_a_listener_that_brokers_do_not_use_gets_its_address_later() {
    let refused = |extra: &str| BrokerConfig::parse(&format!("{TWO}{extra}"), &[]).unwrap_err().to_string();
    let error = refused("advertised.listeners=OUT://b:3\nforebay.listeners.without.address=in");
    assert_eq!(
        error,
        "forebay.listeners.without.address=IN: must be a listener other than the one that brokers use (inter.broker.listener.name)"
    );
    let error = refused("advertised.listeners=OUT://b:3\nforebay.listeners.without.address=other");
    assert_eq!(error, "forebay.listeners.without.address=OTHER: must be one of the listeners IN, OUT");
    assert!(refused("").contains("not all interfaces"), "without saying so it is a mistake");
}

#[test]
fn an_address_that_is_told_later_is_whole() {
    let told = parse_advertised("out://[fe80::1]:3, b://h:4").unwrap();
    let told: Vec<_> = told.iter().map(|told| (told.name.as_str(), told.host.as_str(), told.port)).collect();
    assert_eq!(told, [("OUT", "fe80::1", 3), ("B", "h", 4)]);
    assert_eq!(parse_advertised(""), Ok(Vec::new()));
    for wrong in ["OUT://0.0.0.0:3", "OUT://h:0", "h:3", "OUT://h:3,out://h:4"] {
        assert!(parse_advertised(wrong).is_err(), "{wrong}");
    }
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

const MANY: &str = "node.id=1\nlog.dirs=/a\nforebay.cluster.id=AAAAAAAAAAAAAAAAAAAAAA\n\
    listeners=PLAINTEXT://h:9092,CONTROLLER://0.0.0.0:9093\ncontroller.quorum.voters=2@c:9093, 0@a:9093,1@b:9095\n";

fn check_quorum_refused(from: &str, to: &str, expected: &str) {
    assert!(MANY.contains(from), "{from}");
    assert_eq!(BrokerConfig::parse(&MANY.replace(from, to), &[]).unwrap_err().to_string(), expected);
}

#[test]
fn the_controller_listener_is_not_one_of_the_clients() {
    let config = BrokerConfig::parse(MANY, &[]).unwrap();
    let names: Vec<&str> = config.listeners.iter().map(|listener| listener.name.as_str()).collect();
    assert_eq!(names, ["PLAINTEXT"]);
    assert_eq!(config.advertised_listeners.len(), 1);
    assert_eq!(config.inter_broker_listener_name, "PLAINTEXT");
    let quorum = config.quorum.unwrap();
    assert_eq!(quorum.listener.port, 9093);
    assert_eq!((quorum.advertised.host.as_str(), quorum.advertised.port), ("b", 9095), "as the voters' list has it");
    assert_eq!(quorum.voters.iter().map(|voter| voter.broker_id).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_broker_without_voters_is_a_cluster_of_its_own() {
    assert_eq!(BrokerConfig::parse(LEAST, &[]).unwrap().quorum, None);
}

#[test]
fn a_broker_that_does_not_vote_says_where_it_is() {
    let from = MANY.replace("node.id=1", "node.id=7");
    let error = BrokerConfig::parse(&from, &[]).unwrap_err().to_string();
    assert_eq!(
        error,
        "advertised.listeners=CONTROLLER://0.0.0.0:9093: must be an address that the other brokers can connect to, not all interfaces"
    );
    let told = format!("{from}advertised.listeners=CONTROLLER://d:9093");
    assert_eq!(BrokerConfig::parse(&told, &[]).unwrap().quorum.unwrap().advertised.host, "d");
}

#[test]
fn a_quorum_that_cannot_be_is_refused_with_what_would_be_right() {
    check_quorum_refused(
        ",1@b:9095",
        "",
        "controller.quorum.voters=2@c:9093, 0@a:9093: must be 1, 3 or 5 voters as id@host:port between commas",
    );
    check_quorum_refused(
        "1@b:9095",
        "0@b:9095",
        "controller.quorum.voters=0@b:9095: must be a voter of an id that is not used twice",
    );
    check_quorum_refused(
        "1@b:9095",
        "b:9095",
        "controller.quorum.voters=b:9095: must be id@host:port, such as 0@broker-0:9093",
    );
    check_quorum_refused(
        "forebay.cluster.id=AAAAAAAAAAAAAAAAAAAAAA\n",
        "",
        "forebay.cluster.id is missing: the same on every broker of controller.quorum.voters, which else can't know each other",
    );
    check_quorum_refused(
        ",CONTROLLER://0.0.0.0:9093",
        "",
        "listeners=PLAINTEXT://h:9092: must be also a listener CONTROLLER, such as CONTROLLER://0.0.0.0:9093 (controller.listener.names)",
    );
    check_quorum_refused(
        "PLAINTEXT://h:9092,",
        "",
        "listeners=CONTROLLER: must be also a listener for clients, such as PLAINTEXT://0.0.0.0:9092",
    );
}

#[test]
fn a_session_outlives_a_lost_heartbeat() {
    check_refused(
        "broker.heartbeat.interval.ms=501\nbroker.session.timeout.ms=1000",
        "broker.heartbeat.interval.ms=501: must be at most half of broker.session.timeout.ms=1000, so that one may be lost",
    );
}
