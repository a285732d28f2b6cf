//! Removal of a disk, from the edit to the end, against a service in place of the Kubernetes API and a real broker with two log dirs in
//! this process.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use forebay_broker_client::admin::NewTopic;
use forebay_broker_client::types::{BrokerId, PartitionIndex};
use forebay_broker_client::{Admin, Client, ClientConfig, NewRecord, Producer, ProducerConfig};
use forebay_broker_config::BrokerConfig;
use forebay_broker_server::{Started, run};
use forebay_crds::{Cluster, ReclaimPolicy};
use kube::core::DeserializeGuard;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api_tests::{Api, CLUSTER_PATH, cluster_object, context_of};
use crate::cluster;
use crate::context::Context;
use crate::kafka::status::HTTP_PORT;
use crate::stores::Stores;

const SET: &str = "/apis/apps/v1/namespaces/n/statefulsets/c-broker";
const CLAIM: &str = "/api/v1/namespaces/n/persistentvolumeclaims/more-c-broker-0";
const CONFIG: &str = "/api/v1/namespaces/n/configmaps/c-broker-config";
const STATUS: &str = "/apis/forebay.dev/v1alpha1/namespaces/n/clusters/c/status";
const POD: &str = "/api/v1/namespaces/n/pods/c-broker-0";
const PARTITIONS: i32 = 6;
static WORLDS: AtomicU8 = AtomicU8::new(77);

struct World {
    api: Arc<Api>,
    context: Arc<Context>,
    broker: Started,
    stop: CancellationToken,
    task: JoinHandle<()>,
    ip: IpAddr,
    data: tempfile::TempDir,
}

/// A broker with these log dirs.
async fn start(data: &Path, ip: IpAddr, disks: &[&str]) -> (Started, CancellationToken, JoinHandle<()>) {
    let dirs: Vec<String> = disks.iter().map(|disk| data.join(disk).display().to_string()).collect();
    let properties = format!(
        "node.id=0\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={}\nforebay.http.listener={ip}:{HTTP_PORT}\nforebay.log.dir.reserve.bytes=0\n",
        dirs.join(",")
    );
    let config = BrokerConfig::parse(&properties, &[]).unwrap();
    let (stop, (sender, receiver)) = (CancellationToken::new(), tokio::sync::oneshot::channel());
    let stopped = stop.clone();
    let task =
        tokio::spawn(async move { run(config, stopped, |started| sender.send(started).unwrap()).await.unwrap() });
    (receiver.await.unwrap(), stop, task)
}

/// A record for each partition; its offset.
async fn produce(address: SocketAddr) -> Vec<i64> {
    let client = Client::new(&address.to_string(), ClientConfig::default());
    let mut producer = Producer::new(client, "t", ProducerConfig::default()).await.unwrap();
    one_each(&mut producer).await
}

async fn one_each(producer: &mut Producer) -> Vec<i64> {
    let mut offsets = Vec::new();
    for index in 0..PARTITIONS {
        let record = NewRecord { value: Some(b"record"), ..NewRecord::default() };
        offsets.push(producer.send(PartitionIndex(index), &[record]).await.unwrap().0);
    }
    offsets
}

/// Produces until it is told to stop; the last offsets.
fn load(address: SocketAddr, stop: CancellationToken) -> JoinHandle<Vec<i64>> {
    tokio::spawn(async move {
        let client = Client::new(&address.to_string(), ClientConfig::default());
        let mut producer = Producer::new(client, "t", ProducerConfig::default()).await.unwrap();
        let mut last = one_each(&mut producer).await;
        while !stop.is_cancelled() {
            let next = one_each(&mut producer).await;
            assert_eq!(next, last.iter().map(|offset| offset + 1).collect::<Vec<_>>());
            last = next;
        }
        last
    })
}

impl World {
    async fn new() -> Self {
        // How full the disk is that tests run on must not decide.
        let memory = Path::new("/dev/shm");
        let data = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        // The port of `/status` is given, so each broker of each process has an address of its own.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let ip = IpAddr::V4(Ipv4Addr::new(127, number, high, low.max(1)));
        let (broker, stop, task) = start(data.path(), ip, &["data", "more"]).await;
        let api = Arc::new(Api::default());
        let context = context_of(&api, &broker.kafka_address.to_string(), Stores::default());
        let world = Self { api, context, broker, stop, task, ip, data };
        world.pod("r", &["data", "more"]);
        for disk in ["data", "more"] {
            let size = json!({"storage": "1Gi"});
            world.api.claims.lock().push(json!({
                "metadata": {"name": format!("{disk}-c-broker-0"), "uid": format!("uid-of-{disk}")},
                "spec": {"resources": {"requests": size}},
                "status": {"capacity": size},
            }));
        }
        world
    }

    /// The broker's pod, as if it had been made with these disks.
    fn pod(&self, revision: &str, disks: &[&str]) {
        let claim = |disk: &&str| json!({"claimName": format!("{disk}-c-broker-0")});
        let volume = |disk: &&str| json!({"name": disk, "persistentVolumeClaim": claim(disk)});
        *self.api.pods.lock() = vec![json!({
            "metadata": {"name": "c-broker-0", "uid": "pod-uid", "labels": {"controller-revision-hash": revision}},
            "spec": {"containers": [], "volumes": disks.iter().map(volume).collect::<Vec<_>>()},
            "status": {"podIP": self.ip.to_string(), "conditions": [{"type": "Ready", "status": "True"}]},
        })];
    }

    /// Where a disk is.
    fn path(&self, disk: &str) -> String {
        self.data.path().join(disk).display().to_string()
    }

    /// What is written when the spec has these disks.
    async fn reconcile(&self, disks: &[&str], policy: ReclaimPolicy) -> Vec<String> {
        let mut object = cluster_object();
        let disk = |name: &&str| json!({"name": name, "size": "1Gi", "mountPath": self.path(name)});
        object["spec"]["disks"] = disks.iter().map(disk).collect();
        if let Some(stored) = self.api.objects.lock().get(CLUSTER_PATH) {
            object["status"] = stored["status"].clone();
        }
        let mut cluster: Cluster = serde_json::from_value(object).unwrap();
        cluster.spec.reclaim_policy = Some(policy);
        cluster::reconcile(Arc::new(DeserializeGuard(Ok(cluster))), Arc::clone(&self.context)).await.unwrap();
        // The claims are a list of their own.
        for claim in self.api.claims.lock().iter_mut() {
            let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
            let path = format!("/api/v1/namespaces/n/persistentvolumeclaims/{name}");
            if let Some(patched) = self.api.objects.lock().get(&path) {
                claim["metadata"]["annotations"] = patched["metadata"]["annotations"].clone();
            }
        }
        self.api.written()
    }

    /// Reconciles until something other than the status is written.
    async fn next_writes(&self, disks: &[&str], policy: ReclaimPolicy) -> Vec<String> {
        for _ in 0..200 {
            let mut writes = self.reconcile(disks, policy).await;
            writes.retain(|write| !write.ends_with(STATUS));
            if !writes.is_empty() {
                return writes;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nothing is written: {}", self.api.objects.lock()[CLUSTER_PATH]["status"]);
    }

    /// Reconciles until `Progressing` says so, and claims are not touched.
    async fn says(&self, disks: &[&str], policy: ReclaimPolicy, words: &str) {
        for _ in 0..200 {
            let writes = self.reconcile(disks, policy).await;
            assert!(!writes.iter().any(|write| write.contains("persistentvolumeclaims")), "{writes:?}");
            if self.condition("Progressing")["message"].as_str().unwrap().starts_with(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} does not say {words}", self.condition("Progressing"));
    }

    fn admin(&self) -> Admin {
        Admin::new(Client::new(&self.broker.kafka_address.to_string(), ClientConfig::default()))
    }

    /// Replicas and copies by log dir.
    async fn replicas(&self) -> BTreeMap<String, usize> {
        let dirs = self.admin().describe_log_dirs(BrokerId(0)).await.unwrap();
        let name = |path: &str| Path::new(path).file_name().unwrap().to_str().unwrap().to_owned();
        dirs.into_iter().map(|dir| dir.unwrap()).map(|dir| (name(&dir.path), dir.replicas.len())).collect()
    }

    async fn topic(&self) {
        let topic =
            NewTopic { name: "t".to_owned(), partitions: PARTITIONS, replication_factor: 1, ..NewTopic::default() };
        self.admin().create_topics(&[topic], false).await.unwrap();
    }

    fn condition(&self, name: &str) -> Value {
        let conditions = self.api.objects.lock()[CLUSTER_PATH]["status"]["conditions"].clone();
        conditions.as_array().unwrap().iter().find(|condition| condition["type"] == name).unwrap().clone()
    }

    async fn at_rest(&self, disks: &[&str], policy: ReclaimPolicy) {
        for _ in 0..4 {
            self.reconcile(disks, policy).await;
        }
        assert_eq!(self.reconcile(disks, policy).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_is_emptied_before_its_claim_is_let_go_and_every_record_stays() {
    let (both, one, policy) = (["data", "more"], ["data"], ReclaimPolicy::Delete);
    let world = World::new().await;
    world.topic().await;
    let (stop, address) = (CancellationToken::new(), world.broker.kafka_address);
    let load = load(address, stop.clone());
    world.at_rest(&both, policy).await;
    let spread = world.replicas().await;
    assert!(spread["more"] > 0 && spread["data"] > 0, "{spread:?}");

    let left = world.data.path().join("more/left-0");
    std::fs::create_dir(&left).unwrap();
    assert_eq!(world.next_writes(&one, policy).await, [format!("PATCH {CONFIG}")], "brokers keep the disk");
    world.says(&one, policy, "disk more of broker 0 has 1 logs that it does not serve").await;
    std::fs::remove_dir(&left).unwrap();
    assert_eq!(world.api.objects.lock()[CLUSTER_PATH]["status"]["removingDisks"], json!(["more"]));
    assert_eq!(world.next_writes(&one, policy).await, [format!("PATCH {CLAIM}")], "the claim's mark, when it is empty");
    assert_eq!(
        world.replicas().await,
        [("data".to_owned(), spread["data"] + spread["more"]), ("more".to_owned(), 0)].into()
    );
    assert_eq!(world.condition("Ready")["status"], "True", "all the time");

    let again = world.next_writes(&one, policy).await;
    assert_eq!(again, [format!("PATCH {CONFIG}"), format!("PATCH {POD}"), format!("DELETE {SET}")]);
    assert_eq!(world.next_writes(&one, policy).await, [format!("PATCH {SET}")]);
    let templates = world.api.objects.lock()[SET]["spec"]["volumeClaimTemplates"].clone();
    assert_eq!(templates.as_array().unwrap().len(), 1, "{templates}");
    world.pod("old", &both);
    assert_eq!(world.next_writes(&one, policy).await, [format!("DELETE {POD}")]);
    world.pod("r", &one);
    assert_eq!(world.next_writes(&one, policy).await, [format!("PATCH {CONFIG}"), format!("DELETE {CLAIM}")]);
    world.api.claims.lock().retain(|claim| claim["metadata"]["name"] != "more-c-broker-0");
    world.at_rest(&one, policy).await;
    let stored = world.api.objects.lock()[CLUSTER_PATH]["status"].clone();
    assert_eq!((&stored["removingDisks"], &world.condition("Progressing")["status"]), (&Value::Null, &json!("False")));
    stop.cancel();
    let next: Vec<i64> = load.await.unwrap().iter().map(|offset| offset + 1).collect();
    world.stop.cancel();
    world.task.await.unwrap();
    std::fs::remove_dir_all(world.data.path().join("more")).unwrap();
    let (again, stop, _) = start(world.data.path(), world.ip, &one).await;
    assert_eq!(produce(again.kafka_address).await, next, "every record is there");
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_with_the_metadata_stays_and_one_that_is_put_back_is_as_before() {
    let (both, other, policy) = (["data", "more"], ["more"], ReclaimPolicy::Retain);
    let world = World::new().await;
    world.topic().await;
    world.at_rest(&both, policy).await;
    let spread = world.replicas().await;
    for _ in 0..5 {
        world.reconcile(&other, policy).await;
    }
    let ready = world.condition("Ready");
    assert_eq!(ready["reason"], "NotSupported");
    assert!(ready["message"].as_str().unwrap().starts_with("disk data can't be removed: the metadata of broker 0"));
    assert_eq!(world.replicas().await, spread, "nothing has moved");
    world.at_rest(&both, policy).await;
    assert_eq!(world.condition("Ready")["status"], "True");
    assert_eq!(world.api.objects.lock()[CLUSTER_PATH]["status"].get("removingDisks"), None);
    world.stop.cancel();
}
