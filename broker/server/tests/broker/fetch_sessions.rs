//! Fetch sessions (KIP-227): named once, told what changed.

use std::time::{Duration, Instant};

use forebay_broker_wire::messages::fetch::{FetchRequest, FetchResponse, ForgottenTopic};
use forebay_broker_wire::types::ErrorCode;

use crate::harness::{Client, FETCH, TestBroker, batch, fetch, values};

fn in_session(id: i32, epoch: i32, partitions: &[(&str, i32, i64)]) -> FetchRequest {
    FetchRequest { session_id: id, session_epoch: epoch, ..fetch(partitions, 1, 0) }
}

/// Which partitions an answer tells of, with their values.
fn told(response: &FetchResponse) -> Vec<(i32, Vec<String>)> {
    assert_eq!(response.error_code, 0);
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|data| {
            assert_eq!(data.error_code, 0);
            (data.partition_index, values(data).into_iter().map(|(_, value)| value).collect())
        })
        .collect()
}

fn error(client: &mut Client, request: &FetchRequest) -> ErrorCode {
    ErrorCode::from_code(client.call(request, FETCH).error_code)
}

#[test]
fn a_session_tells_what_changed_and_nothing_else() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    client.create_topic("orders");
    client.produce("orders", 0, batch(&["a"]), 1);
    let first = client.call(&in_session(0, 0, &[("orders", 0, 0), ("orders", 1, 0)]), FETCH);
    let id = first.session_id;
    assert!(id > 0);
    assert_eq!(told(&first), [(0, vec!["a".to_owned()]), (1, vec![])], "the first answer is whole");

    let second = client.call(&in_session(id, 1, &[("orders", 0, 1)]), FETCH);
    assert_eq!((second.session_id, told(&second)), (id, vec![]), "nothing has changed");
    client.produce("orders", 1, batch(&["b"]), 1);
    let third = client.call(&in_session(id, 2, &[]), FETCH);
    assert_eq!(told(&third), [(1, vec!["b".to_owned()])]);

    let forget = ForgottenTopic { topic: "orders".into(), partitions: vec![0], ..ForgottenTopic::default() };
    let request = FetchRequest { forgotten_topics_data: vec![forget], ..in_session(id, 3, &[("orders", 1, 1)]) };
    assert_eq!(told(&client.call(&request, FETCH)), []);
    client.produce("orders", 0, batch(&["nobody asks"]), 1);
    assert_eq!(told(&client.call(&in_session(id, 4, &[]), FETCH)), []);
    assert!(broker.http_get("/metrics").contains("\nforebay_fetch_sessions 1\n"));

    assert_eq!(error(client, &in_session(id, 4, &[])), ErrorCode::InvalidFetchSessionEpoch, "a repetition");
    assert_eq!(error(client, &in_session(id ^ 1, 5, &[])), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(told(&client.call(&in_session(id, -1, &[("orders", 0, 0)]), FETCH)).len(), 1, "outside and the end");
    assert_eq!(error(client, &in_session(id, 5, &[])), ErrorCode::FetchSessionIdNotFound);
    assert!(broker.http_get("/metrics").contains("\nforebay_fetch_sessions 0\n"));
}

#[test]
fn a_fetch_of_a_session_waits_for_all_its_partitions() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    client.create_topic("orders");
    let id = client.call(&in_session(0, 0, &[("orders", 0, 0), ("orders", 1, 0)]), FETCH).session_id;
    let began = Instant::now();
    let sent = client.send(&FetchRequest { max_wait_ms: 60_000, ..in_session(id, 1, &[]) }, FETCH);
    std::thread::sleep(Duration::from_millis(100));
    broker.client().produce("orders", 1, batch(&["b"]), 1);
    let (received, response) = client.receive::<FetchRequest>(FETCH);
    assert_eq!((sent, told(&response)), (received, vec![(1, vec!["b".to_owned()])]));
    assert!(began.elapsed() < Duration::from_secs(30), "the record ended the wait");
}

#[test]
fn a_partition_with_an_error_is_told_until_it_has_none() {
    let broker = TestBroker::start_with(&["auto.create.topics.enable=false"]);
    let client = &mut broker.client();
    let unknown = client.call(&in_session(0, 0, &[("orders", 0, 0)]), FETCH);
    let code = |response: &FetchResponse| ErrorCode::from_code(response.responses[0].partitions[0].error_code);
    assert_eq!(code(&unknown), ErrorCode::UnknownTopicOrPartition);
    let id = unknown.session_id;
    assert_eq!(code(&client.call(&in_session(id, 1, &[]), FETCH)), ErrorCode::UnknownTopicOrPartition);
    crate::create_topics::create(client, crate::create_topics::topic("orders", 1, &[]));
    assert_eq!(told(&client.call(&in_session(id, 2, &[]), FETCH)), [(0, vec![])], "mended");
    assert_eq!(told(&client.call(&in_session(id, 3, &[]), FETCH)), []);
}

#[test]
fn without_slots_every_answer_is_whole() {
    let broker = TestBroker::start_with(&["max.incremental.fetch.session.cache.slots=0"]);
    let client = &mut broker.client();
    client.create_topic("orders");
    for _ in 0..2 {
        let answer = client.call(&in_session(0, 0, &[("orders", 0, 0)]), FETCH);
        assert_eq!((answer.session_id, told(&answer)), (0, vec![(0, vec![])]));
    }
}
