//! The client library against a real broker in this process: what the operator, the command line and the bench ask of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_broker_client::admin::{ConfigChange, ConfigResource, ConfigSource, NewTopic, OffsetSpec};
use forebay_broker_client::types::{BrokerId, ErrorCode, Offset, PartitionIndex};
use forebay_broker_client::{
    Acks, Admin, Client, ClientConfig, Compression, Consumed, Consumer, FetchConfig, GroupConfig, GroupConsumer,
    NewRecord, Producer, ProducerConfig, TopicPartition,
};
use forebay_broker_config::BrokerConfig;
use tempfile::TempDir;
use tokio::io::AsyncBufReadExt;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A broker with its data in a temporary folder.
struct Broker {
    client: Client,
    admin: Admin,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    _folder: TempDir,
}

impl Broker {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "node.id=0\nlisteners=PLAINTEXT://127.0.0.1:0\nadvertised.listeners=PLAINTEXT://127.0.0.1:0\n\
             forebay.http.listener=127.0.0.1:0\nlog.dirs={}\ngroup.initial.rebalance.delay.ms=100\n",
            folder.path().display()
        );
        let config = BrokerConfig::parse(&text, &[]).unwrap();
        let (stop, (started, address)) = (CancellationToken::new(), oneshot::channel());
        let run = forebay_broker_server::run(config, stop.clone(), |s| started.send(s.kafka_address).unwrap());
        let task = tokio::spawn(run);
        let client = Client::connect(&address.await.unwrap().to_string(), ClientConfig::default()).await.unwrap();
        Self { admin: Admin::new(client.clone()), client, stop, task, _folder: folder }
    }

    async fn topic(&self, name: &str, partitions: i32) {
        let new = NewTopic { name: name.to_owned(), partitions, replication_factor: 1, ..NewTopic::default() };
        self.admin.create_topics(&[new], false).await.unwrap().remove(name).unwrap().unwrap();
    }

    /// Writes numbered records, ten a batch.
    async fn fill(&self, topic: &str, partition: i32, count: i64, config: ProducerConfig) {
        let mut producer = Producer::new(self.client.clone(), topic, config).await.unwrap();
        let values: Vec<String> = (0..count).map(|n| format!("record {n}")).collect();
        for (batch, chunk) in values.chunks(10).enumerate() {
            let timestamp = |n: usize| i64::try_from(batch * 10 + n).unwrap() * 1000;
            let records: Vec<_> = chunk
                .iter()
                .enumerate()
                .map(|(n, v)| NewRecord {
                    timestamp_ms: timestamp(n),
                    key: None,
                    value: Some(v.as_bytes()),
                    headers: &[],
                })
                .collect();
            producer.send(PartitionIndex(partition), &records).await.unwrap();
        }
    }

    async fn stop(self) {
        drop((self.client, self.admin));
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn read_all(consumer: &mut Consumer, count: usize) -> Vec<Consumed> {
    let mut records = Vec::new();
    while records.len() < count {
        let more = consumer.poll().await.unwrap();
        assert!(!more.is_empty(), "{} of {count} records, then none", records.len());
        records.extend(more);
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn many_topics_are_made_described_changed_and_deleted_in_a_few_requests() {
    let broker = Broker::start().await;
    let names: Vec<String> = (0..30).map(|n| format!("t{n}")).collect();
    let new = |name: &String| NewTopic {
        name: name.clone(),
        partitions: 2,
        replication_factor: 1,
        configs: BTreeMap::from([("retention.ms".to_owned(), "5000".to_owned())]),
        ..NewTopic::default()
    };
    let topics: Vec<_> = names.iter().map(new).collect();
    let made = broker.admin.create_topics(&topics, false).await.unwrap();
    assert!(made.values().all(Result::is_ok), "{made:?}");
    let again = broker.admin.create_topics(&topics[..1], false).await.unwrap();
    assert_eq!(again["t0"].as_ref().unwrap_err().code, ErrorCode::TopicAlreadyExists);

    let asked: Vec<&str> = names.iter().map(String::as_str).chain(["absent"]).collect();
    let described = broker.admin.describe_topics(&asked).await.unwrap();
    assert_eq!(described["absent"].as_ref().unwrap_err().code, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(described["t7"].as_ref().unwrap().partitions.len(), 2);
    assert_eq!(broker.admin.create_partitions(&[("t7", 5)], false).await.unwrap()["t7"], Ok(()));
    let shrunk = broker.admin.create_partitions(&[("t7", 1)], false).await.unwrap();
    assert_eq!(shrunk["t7"].as_ref().unwrap_err().code, ErrorCode::InvalidPartitions);

    let resources: Vec<_> = names.iter().map(|name| ConfigResource::Topic(name.clone())).collect();
    let set = ConfigChange::Set { name: "retention.ms".to_owned(), value: "6000".to_owned() };
    let changes = [
        (resources[0].clone(), vec![set]),
        (resources[1].clone(), vec![ConfigChange::Delete { name: "retention.ms".to_owned() }]),
    ];
    let changed = broker.admin.incremental_alter_configs(&changes, false).await.unwrap();
    assert!(changed.values().all(Result::is_ok), "{changed:?}");
    let configs = broker.admin.describe_configs(&resources).await.unwrap();
    let retention =
        |n: usize| configs[&resources[n]].as_ref().unwrap().iter().find(|e| e.name == "retention.ms").unwrap();
    assert_eq!(retention(0).value.as_deref(), Some("6000"));
    assert_eq!(retention(1).source, ConfigSource::DefaultConfig);
    assert_eq!((retention(2).value.as_deref(), retention(2).source), (Some("5000"), ConfigSource::TopicConfig));

    let deleted = broker.admin.delete_topics(&asked).await.unwrap();
    assert_eq!(deleted["absent"].as_ref().unwrap_err().code, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(deleted.values().filter(|d| d.is_ok()).count(), 30);
    assert!(broker.admin.list_topics().await.unwrap().is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_and_its_disks_are_described() {
    let broker = Broker::start().await;
    broker.topic("orders", 1).await;
    broker.fill("orders", 0, 50, ProducerConfig::default()).await;
    let cluster = broker.admin.describe_cluster().await.unwrap();
    assert_eq!((cluster.brokers.len(), cluster.controller), (1, Some(BrokerId(0))));
    assert!(!cluster.cluster_id.is_empty());
    let dirs = broker.admin.describe_log_dirs(BrokerId(0)).await.unwrap();
    let dir = dirs[0].as_ref().unwrap();
    let orders = dir.replicas.iter().find(|r| r.partition == TopicPartition::new("orders", 0)).unwrap();
    assert!(orders.bytes > 500, "{orders:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_back_in_order_under_every_compression() {
    let broker = Broker::start().await;
    for compression in Compression::ALL {
        let topic = compression.name();
        broker.topic(topic, 1).await;
        broker.fill(topic, 0, 95, ProducerConfig { compression, ..ProducerConfig::default() }).await;
        let mut consumer = Consumer::new(&broker.client, FetchConfig::default());
        // From the middle of a batch: what is before the position is not given.
        consumer.assign(BTreeMap::from([(TopicPartition::new(topic, 0), Offset(5))]));
        let records = read_all(&mut consumer, 90).await;
        let offsets: Vec<i64> = records.iter().map(|r| r.offset.0).collect();
        assert_eq!(offsets, (5..95).collect::<Vec<_>>(), "{topic}");
        assert_eq!(records[89].value.as_deref(), Some(b"record 94".as_slice()));
        assert_eq!(consumer.positions()[&TopicPartition::new(topic, 0)], Offset(95));
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_found_by_place_and_time_and_records_are_deleted() {
    let broker = Broker::start().await;
    broker.topic("orders", 1).await;
    broker
        .fill("orders", 0, 50, ProducerConfig { acks: Acks::Leader, idempotent: true, ..ProducerConfig::default() })
        .await;
    let tp = TopicPartition::new("orders", 0);
    let find =
        async |spec| broker.admin.list_offsets(&[(tp.clone(), spec)]).await.unwrap()[&tp].clone().unwrap().offset.0;
    assert_eq!(find(OffsetSpec::Earliest).await, 0);
    assert_eq!(find(OffsetSpec::Latest).await, 50);
    assert_eq!(find(OffsetSpec::Timestamp(20_500)).await, 21);
    assert_eq!(find(OffsetSpec::Timestamp(999_000)).await, -1);
    let left = broker.admin.delete_records(&[(tp.clone(), Offset(30))]).await.unwrap();
    assert_eq!(left[&tp], Ok(Offset(30)));
    assert_eq!(find(OffsetSpec::Earliest).await, 30);
    let absent = TopicPartition::new("orders", 9);
    let none = broker.admin.list_offsets(&[(absent.clone(), OffsetSpec::Latest)]).await.unwrap();
    assert_eq!(none[&absent].as_ref().unwrap_err().code, ErrorCode::UnknownTopicOrPartition);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_share_partitions_and_the_one_that_stays_gets_all() {
    let broker = Broker::start().await;
    broker.topic("orders", 4).await;
    let join = || {
        let mut config = GroupConfig::new("readers", &["orders"]);
        config.heartbeat_interval = Duration::from_millis(100);
        GroupConsumer::new(&broker.client, config)
    };
    // Each in a task of its own: a member that joins waits for the others to join again.
    let settled = Arc::new(Mutex::new(BTreeMap::new()));
    let until_two_each = |n: usize, mut member: GroupConsumer| {
        let settled = Arc::clone(&settled);
        tokio::spawn(async move {
            loop {
                member.poll().await.unwrap();
                let mut settled = settled.lock().unwrap();
                settled.insert(n, member.positions().len());
                if settled.get(&0) == Some(&2) && settled.get(&1) == Some(&2) {
                    return member;
                }
            }
        })
    };
    let within = Duration::from_secs(60);
    let both = futures::future::join(until_two_each(0, join()), until_two_each(1, join()));
    let (first, second) = tokio::time::timeout(within, both).await.unwrap();
    let (mut first, second) = (first.unwrap(), second.unwrap());
    let shares: BTreeSet<_> = first.positions().keys().chain(second.positions().keys()).collect();
    assert_eq!(shares.len(), 4, "every partition has one member");
    let groups = broker.admin.describe_groups(&["readers"]).await.unwrap();
    assert_eq!(groups["readers"].as_ref().unwrap().members.len(), 2);
    let busy = broker.admin.delete_groups(&["readers"]).await.unwrap();
    assert_eq!(busy["readers"].as_ref().unwrap_err().code, ErrorCode::NonEmptyGroup);

    second.leave().await.unwrap();
    for partition in 0..4 {
        broker.fill("orders", partition, 20, ProducerConfig::default()).await;
    }
    let mut read = 0;
    let all = async {
        while read < 80 {
            read += first.poll().await.unwrap().len();
        }
    };
    tokio::time::timeout(within, all).await.unwrap();
    first.commit().await.unwrap();
    first.leave().await.unwrap();
    let committed = broker.admin.committed_offsets("readers").await.unwrap();
    assert!(
        committed.len() == 4 && committed.values().all(|c| c.as_ref().unwrap().offset == Offset(20)),
        "{committed:?}"
    );
    assert_eq!(broker.admin.delete_groups(&["readers"]).await.unwrap()["readers"], Ok(()));
    assert!(broker.admin.list_groups().await.unwrap().is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_interrupted_has_committed_what_it_printed_and_left_its_group() {
    let broker = Broker::start().await;
    broker.topic("orders", 1).await;
    broker.fill("orders", 0, 25, ProducerConfig::default()).await;
    let bootstrap = broker.admin.describe_cluster().await.unwrap().brokers[0].clone();
    let bootstrap = format!("{}:{}", bootstrap.host, bootstrap.port);
    let mut consume = tokio::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["consume", "orders", "--group", "readers", "--follow", "--bootstrap", &bootstrap])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut printed = tokio::io::BufReader::new(consume.stdout.take().unwrap()).lines();
    for _ in 0..25 {
        printed.next_line().await.unwrap().unwrap();
    }
    let id = i32::try_from(consume.id().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), rustix::process::Signal::INT).unwrap();
    assert!(consume.wait().await.unwrap().success());
    let groups = broker.admin.describe_groups(&["readers"]).await.unwrap();
    let group = groups["readers"].as_ref().unwrap();
    assert!(group.members.is_empty(), "{group:?}");
    let committed = broker.admin.committed_offsets("readers").await.unwrap();
    assert_eq!(committed[&TopicPartition::new("orders", 0)].as_ref().unwrap().offset, Offset(25));
    broker.stop().await;
}
