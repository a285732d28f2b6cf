//! A clean stop and a new start: same data, same identity, nothing to recover.

use forebay_broker_wire::messages::metadata::MetadataRequest;

use crate::harness::{TestBroker, batch};

#[test]
fn data_topics_and_identity_survive() {
    let broker = TestBroker::start();
    let mut client = broker.client();
    client.create_topic("orders");
    for number in 0..50 {
        client.produce("orders", 0, batch(&[&number.to_string()]), 1);
    }
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let before = client.call(&all, 12);
    let broker = TestBroker::start_in(broker.stop(), &[]);
    let mut client = broker.client();
    let after = client.call(&all, 12);
    assert_eq!((&before.cluster_id, &before.topics), (&after.cluster_id, &after.topics));
    assert_eq!(client.read_all("orders", 0).len(), 50);
    assert_eq!(client.produce("orders", 0, batch(&["next"]), 1).base_offset, 50);
}

#[test]
fn a_second_broker_in_the_same_directory_is_refused() {
    use forebay_broker_config::BrokerConfig;
    let broker = TestBroker::start();
    let config = format!(
        "node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nforebay.http.listener=127.0.0.1:0\nlog.dirs={}\n",
        broker.path().join("data").display()
    );
    let config = BrokerConfig::parse(&config, &[]).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(forebay_broker_server::run(config, Default::default(), |_| {})).unwrap_err();
    assert!(format!("{error:#}").contains("locked"), "{error:#}");
}
