//! Many Topics against a service in place of the Kubernetes API and a real broker in this process: how many writes and how many
//! changes on the broker it takes to make them, to leave them alone, and to put one back.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use forebay_broker_client::Admin;
use forebay_broker_client::admin::{ConfigChange, ConfigResource, NewTopic};
use forebay_broker_config::BrokerConfig;
use forebay_broker_server::{Started, run};
use forebay_crds::{Cluster, Topic};
use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::reflector;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::sweep::{Found, sweep};
use super::{observe, reconcile};
use crate::api_tests::{Api, CLUSTER_PATH, cluster_object, context_of};
use crate::context::Context;
use crate::stores::{ClusterKey, Guarded, Stores};

const TOPICS: usize = 500;
const AT_ONCE: usize = 200;

struct World {
    api: Arc<Api>,
    context: Arc<Context>,
    topics: Writer<Guarded<Topic>>,
    key: ClusterKey,
    broker: Started,
    stop: CancellationToken,
    _data: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let properties = format!(
            "node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={}\nforebay.http.listener=127.0.0.1:0\nforebay.log.dir.reserve.bytes=0\n",
            data.path().join("data").display()
        );
        let config = BrokerConfig::parse(&properties, &[]).unwrap();
        let (stop, (sender, receiver)) = (CancellationToken::new(), tokio::sync::oneshot::channel());
        tokio::spawn(run(config, stop.clone(), |started| sender.send(started).unwrap()));
        let broker = receiver.await.unwrap();
        let api = Arc::new(Api::default());
        let ((clusters, mut cluster_writer), (store, topics)) = (reflector::store(), reflector::store());
        let cluster: Cluster = serde_json::from_value(cluster_object()).unwrap();
        cluster_writer.apply_watcher_event(&Event::Apply(DeserializeGuard(Ok(cluster))));
        let stores = Stores { clusters: vec![clusters], topics: vec![store], profiles: Vec::new() };
        let context = context_of(&api, &broker.kafka_address.to_string(), stores);
        let key = ClusterKey { namespace: "n".to_owned(), name: "c".to_owned() };
        api.objects.lock().insert(CLUSTER_PATH.to_owned(), cluster_object());
        Self { api, context, topics, key, broker, stop, _data: data }
    }

    /// The Topic as the watch would bring it: with what was written to it.
    fn topic(&self, number: usize) -> Topic {
        let name = format!("t{number:04}");
        let written =
            self.api.objects.lock().get(&format!("/apis/forebay.dev/v1alpha1/namespaces/n/topics/{name}")).cloned();
        let written = written.unwrap_or_default();
        let object = json!({
            "apiVersion": "forebay.dev/v1alpha1", "kind": "Topic",
            "metadata": {
                "name": name, "namespace": "n", "uid": name, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": written["metadata"].get("finalizers").cloned().unwrap_or_else(|| json!(["forebay.dev/topic"])),
            },
            "spec": {"clusterRef": {"name": "c"}, "partitions": 1, "config": {"retention.ms": 3_600_000}},
            "status": written["status"],
        });
        serde_json::from_value(object).unwrap()
    }

    /// Reconciles all Topics, as many at a time as the controller does.
    async fn round(&mut self) {
        let all: Vec<_> = (0..TOPICS).map(|number| DeserializeGuard(Ok(self.topic(number)))).collect();
        for topic in &all {
            self.topics.apply_watcher_event(&Event::Apply(topic.clone()));
        }
        futures::stream::iter(all)
            .for_each_concurrent(AT_ONCE, async |topic| {
                reconcile(Arc::new(topic), Arc::clone(&self.context)).await.unwrap();
            })
            .await;
    }

    async fn swept(&self) -> Vec<String> {
        let index = self.context.owners.index(&self.context.stores, None);
        let Found { wake, failed } = sweep(&self.context, &self.key, &index, 0).await.unwrap();
        assert!(!failed);
        wake
    }

    fn admin(&self) -> Admin {
        let address = self.broker.kafka_address.to_string();
        self.context.kafka.get(&self.key, &address).admin.clone()
    }

    /// Requests that the broker has answered, by API.
    fn requests(&self) -> BTreeMap<String, u64> {
        let metrics = get(self.broker.http_address, "/metrics");
        let lines = metrics.lines().filter_map(|line| line.strip_prefix("forebay_requests_total{api=\""));
        let count = |line: &str| Some((line.split_once('"')?.0.to_owned(), line.rsplit_once(' ')?.1.parse().ok()?));
        lines.filter_map(count).collect()
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn of(requests: &BTreeMap<String, u64>, api: &str) -> u64 {
    requests.get(api).copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_topics_are_made_in_few_requests_then_left_alone_and_only_the_one_that_was_changed_is_put_back() {
    let mut world = World::new().await;
    world.round().await;
    let made = world.requests();
    let most = u64::try_from((TOPICS / AT_ONCE + 1) * 4).unwrap();
    assert!(of(&made, "CreateTopics") <= most, "{made:?}");
    let writes = world.api.written();
    assert_eq!(writes.len(), TOPICS, "one status each: {:?}", writes.first());

    world.round().await;
    assert_eq!(world.api.told().len(), TOPICS * 2, "made, and Ready");
    let before = world.requests();
    for _ in 0..2 {
        world.round().await;
        assert_eq!(world.swept().await, Vec::<String>::new());
    }
    assert_eq!((world.api.written().len(), world.api.told().len()), (0, 0), "nothing is written");
    let after = world.requests();
    for api in
        ["CreateTopics", "CreatePartitions", "IncrementalAlterConfigs", "DeleteTopics", "AlterPartitionReassignments"]
    {
        assert_eq!(of(&before, api), of(&after, api), "{api}");
    }
    let asked = |requests: &BTreeMap<String, u64>| of(requests, "Metadata") + of(requests, "DescribeConfigs");
    assert!(asked(&after) - asked(&before) <= u64::try_from(TOPICS / 10).unwrap(), "{before:?} {after:?}");

    let by_hand = vec![ConfigChange::Set { name: "retention.ms".to_owned(), value: "1000".to_owned() }];
    let change = (ConfigResource::Topic("t0007".to_owned()), by_hand);
    world.admin().incremental_alter_configs(&[change], false).await.unwrap();
    assert_eq!(world.swept().await, ["t0007"]);
    let topic = Arc::new(DeserializeGuard(Ok(world.topic(7))));
    reconcile(topic, Arc::clone(&world.context)).await.unwrap();
    assert_eq!(of(&world.requests(), "IncrementalAlterConfigs"), of(&after, "IncrementalAlterConfigs") + 2);
    assert_eq!(world.swept().await, Vec::<String>::new(), "it is as declared again");
    assert!(world.api.told().iter().any(|event| event.contains("retention.ms from 1000 to 3600000")));

    world.admin().delete_topics(&["t0009"]).await.unwrap();
    assert_eq!(world.swept().await, ["t0009"]);
    world.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_an_older_topic_owns_is_not_touched_and_one_that_was_there_is_taken_over() {
    let mut world = World::new().await;
    let there = NewTopic { name: "t0001".to_owned(), partitions: 1, replication_factor: 1, ..NewTopic::default() };
    world.admin().create_topics(&[there], false).await.unwrap();
    let (mut older, mut younger) = (world.topic(1), world.topic(2));
    older.metadata.creation_timestamp = younger.metadata.creation_timestamp.clone();
    younger.spec.topic_name = Some("t0001".to_owned());
    younger.spec.config.clear();
    younger.metadata.uid = Some("z".to_owned());
    for topic in [&older, &younger] {
        world.topics.apply_watcher_event(&Event::Apply(DeserializeGuard(Ok(topic.clone()))));
    }
    for topic in [&younger, &older] {
        reconcile(Arc::new(DeserializeGuard(Ok(topic.clone()))), Arc::clone(&world.context)).await.unwrap();
    }
    let objects = world.api.objects.lock().clone();
    let status = |name: &str| -> Value {
        objects[&format!("/apis/forebay.dev/v1alpha1/namespaces/n/topics/{name}")]["status"].clone()
    };
    assert_eq!(status("t0002")["conditions"][0]["reason"], "ResourceConflict");
    assert_eq!(status("t0001")["conditions"][0]["reason"], "AsSpecified");
    let told = world.api.told();
    assert!(told.iter().any(|event| event.contains("TopicAdopted")), "{told:?}");
    assert_eq!(of(&world.requests(), "IncrementalAlterConfigs"), 1, "the older one's retention.ms, once");
    let observed = observe::observe(&world.context, &younger).await.unwrap();
    assert_eq!(observed.owner.as_deref(), Some("n/t0001"));
    world.stop.cancel();
}
