//! Whole reconciles against a service in place of the Kubernetes API: which requests are made, and that converged input
//! makes no write. What the real API server does with them is tested end to end.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Parser;
use forebay_crds::{Cluster, Topic};
use http::{Method, Request, Response};
use kube::client::{Body, Client};
use kube::core::DeserializeGuard;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::args::Program;
use crate::backoff::Backoff;
use crate::context::Context;
use crate::kafka::KafkaClusters;
use crate::kube::events::Events;
use crate::metrics::Metrics;
use crate::stores::Stores;
use crate::{cluster, topic};

/// Keeps what is applied, answers with it, and remembers each write.
#[derive(Debug, Default)]
pub(crate) struct Api {
    pub(crate) objects: Mutex<BTreeMap<String, Value>>,
    /// All requests, Events aside.
    pub(crate) requests: Mutex<Vec<String>>,
    pub(crate) writes: Mutex<Vec<String>>,
    pub(crate) events: Mutex<Vec<String>>,
    /// A path that is refused to writes.
    pub(crate) refuses: Option<&'static str>,
    /// A path that can't be read.
    pub(crate) unreadable: Option<&'static str>,
    pub(crate) pods: Mutex<Vec<Value>>,
    pub(crate) claims: Mutex<Vec<Value>>,
}

/// A status is written to an object that has a spec: it must decode.
fn spec_of(path: &str) -> Value {
    if path.contains("/topics/") {
        return json!({"clusterRef": {"name": "c"}, "partitions": 1});
    }
    cluster_object()["spec"].clone()
}

impl Api {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let refusal = |code: u16, reason: &str, message: &str| {
            let kind = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure"});
            let mut status = kind;
            (status["code"], status["reason"], status["message"]) = (code.into(), reason.into(), message.into());
            (code, status)
        };
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        if path.contains("/events") {
            self.events.lock().push(body.to_string());
        } else {
            self.requests.lock().push(format!("{method} {path}"));
            if *method != Method::GET {
                self.writes.lock().push(format!("{method} {path}"));
            }
        }
        if self.unreadable.is_some_and(|path_of| path.ends_with(path_of) && *method == Method::GET) {
            return refusal(500, "InternalError", "etcd is away");
        }
        if self.refuses.is_some_and(|refused| path.ends_with(refused) && *method != Method::GET) {
            return refusal(403, "Forbidden", "not allowed here");
        }
        let mut objects = self.objects.lock();
        match *method {
            Method::GET if path.ends_with("/services") => {
                let of_listeners = objects.iter().filter(|(name, object)| {
                    name.starts_with(path) && object["metadata"]["labels"]["forebay.dev/listener"].is_string()
                });
                let items: Vec<Value> = of_listeners.map(|(_, object)| object.clone()).collect();
                (200, json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": items}))
            }
            Method::DELETE => {
                let gone = || json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
                (200, objects.remove(path).unwrap_or_else(gone))
            }
            Method::GET if path.ends_with("/pods") || path.ends_with("/persistentvolumeclaims") => {
                let items = if path.ends_with("/pods") { &self.pods } else { &self.claims };
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": *items.lock()}))
            }
            Method::GET => {
                objects.get(path).map_or_else(|| refusal(404, "NotFound", "not found"), |object| (200, object.clone()))
            }
            Method::PATCH if path.ends_with("/status") => {
                let object = objects.entry(path.trim_end_matches("/status").to_owned()).or_insert_with(|| json!({}));
                for key in ["apiVersion", "kind", "metadata"] {
                    object[key] = body[key].clone();
                }
                object["spec"] = spec_of(path);
                object["status"] = body["status"].clone();
                (200, object.clone())
            }
            Method::PATCH => {
                let object = objects.entry(path.to_owned()).or_insert_with(|| json!({}));
                for (key, value) in body.as_object().into_iter().flatten() {
                    object[key] = value.clone();
                }
                if path.contains("forebay.dev") {
                    object["spec"] = spec_of(path);
                }
                object["metadata"]["uid"] = "uid".into();
                object["metadata"]["generation"] = 1.into();
                if path.contains("statefulsets") {
                    object["status"] = json!({"observedGeneration": 1, "updateRevision": "r"});
                }
                (200, object.clone())
            }
            _ => (201, body),
        }
    }

    /// The requests since the last call, Events aside.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    /// The writes since the last call, Events aside.
    pub(crate) fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock())
    }

    /// The Events since the last call.
    pub(crate) fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock())
    }
}

pub(crate) fn context(api: &Arc<Api>) -> Arc<Context> {
    context_of(api, "127.0.0.1:1", Stores::default())
}

/// With brokers that are reached there, and what watches have seen.
pub(crate) fn context_of(api: &Arc<Api>, bootstrap: &str, stores: Stores) -> Arc<Context> {
    let api = Arc::clone(api);
    let service = tower::service_fn(move |request: Request<Body>| {
        let api = Arc::clone(&api);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (code, answer) = api.answer(&head.method, head.uri.path(), &body);
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(response.unwrap())
        }
    });
    let client = Client::new(service, "n");
    Arc::new(Context {
        events: Events::new(client.clone(), "test".to_owned()),
        client,
        args: Program::parse_from(["forebay-operator", "--bootstrap", bootstrap]).operator,
        metrics: Metrics::new().unwrap(),
        kafka: KafkaClusters::default(),
        backoff: Backoff::default(),
        stores,
        owners: topic::Owners::default(),
    })
}

pub(crate) const CLUSTER_PATH: &str = "/apis/forebay.dev/v1alpha1/namespaces/n/clusters/c";

pub(crate) fn cluster_object() -> Value {
    json!({
        "apiVersion": "forebay.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "generation": 1},
        "spec": {"replicas": 1, "disks": [{"name": "data", "size": "1Gi"}]},
    })
}

/// The Cluster as the watch would bring it: with the status that was written.
pub(crate) fn cluster_as_stored(api: &Api) -> Arc<DeserializeGuard<Cluster>> {
    cluster_with(api, &json!([]))
}

fn cluster_with(api: &Api, listeners: &Value) -> Arc<DeserializeGuard<Cluster>> {
    let mut object = cluster_object();
    object["spec"]["listeners"] = listeners.clone();
    if let Some(stored) = api.objects.lock().get(CLUSTER_PATH) {
        object["status"] = stored["status"].clone();
    }
    Arc::new(DeserializeGuard(Ok(serde_json::from_value(object).unwrap())))
}

#[tokio::test]
async fn a_new_cluster_is_applied_once_and_then_nothing_is_written() {
    let api = Arc::new(Api::default());
    let context = context(&api);
    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    let writes = api.written();
    assert_eq!(writes.len(), 6, "five children and the status: {writes:?}");
    assert!(writes[4].ends_with("/statefulsets/c-broker") && writes[5].ends_with("/clusters/c/status"), "{writes:?}");

    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    assert_eq!(
        api.written(),
        ["PATCH /apis/forebay.dev/v1alpha1/namespaces/n/clusters/c/status"],
        "the children are there now"
    );
    for _ in 0..3 {
        cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
        assert_eq!(api.written(), Vec::<String>::new());
    }
    let metrics = context.metrics.render();
    assert!(metrics.contains("reconciles_total{kind=\"Cluster\",outcome=\"unchanged\"} 3\n"), "{metrics}");
}

#[tokio::test]
async fn services_of_a_listener_come_and_go_with_it_and_nothing_is_written_between() {
    let api = Arc::new(Api::default());
    let context = context(&api);
    let reconcile = async |listeners: &Value| {
        cluster::reconcile(cluster_with(&api, listeners), Arc::clone(&context)).await.unwrap();
        api.written()
    };
    let (none, one) = (json!([]), json!([{"name": "external", "port": 9094, "type": "LoadBalancer"}]));
    for _ in 0..3 {
        reconcile(&none).await;
    }
    assert_eq!(
        reconcile(&one).await,
        [
            "PATCH /api/v1/namespaces/n/configmaps/c-broker-config",
            "PATCH /api/v1/namespaces/n/services/c-external-bootstrap",
            "PATCH /api/v1/namespaces/n/services/c-external-0",
            "PATCH /apis/apps/v1/namespaces/n/statefulsets/c-broker",
            "PATCH /apis/forebay.dev/v1alpha1/namespaces/n/clusters/c/status"
        ]
    );
    reconcile(&one).await;
    for _ in 0..3 {
        assert_eq!(reconcile(&one).await, Vec::<String>::new());
    }
    assert_eq!(
        reconcile(&none).await,
        [
            "PATCH /api/v1/namespaces/n/configmaps/c-broker-config",
            "PATCH /apis/apps/v1/namespaces/n/statefulsets/c-broker",
            "DELETE /api/v1/namespaces/n/services/c-external-0",
            "DELETE /api/v1/namespaces/n/services/c-external-bootstrap",
            "PATCH /apis/forebay.dev/v1alpha1/namespaces/n/clusters/c/status"
        ]
    );
    reconcile(&none).await;
    assert_eq!(reconcile(&none).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_service_of_a_listener_that_is_refused_keeps_no_broker_from_being_ready() {
    let api = Arc::new(Api { refuses: Some("/services/c-external-0"), ..Api::default() });
    let one = json!([{"name": "external", "port": 9094, "type": "NodePort"}]);
    cluster::reconcile(cluster_with(&api, &one), context(&api)).await.unwrap();
    let objects = api.objects.lock();
    let conditions = objects[CLUSTER_PATH]["status"]["conditions"].as_array().unwrap();
    let of = |name: &str| conditions.iter().find(|condition| condition["type"] == name).unwrap();
    assert_eq!(of("ListenersReady")["message"], "apply Service/c-external-0: not allowed here");
    assert_eq!(of("Ready")["reason"], "BrokersStarting");
}

#[tokio::test]
async fn a_child_that_is_refused_stops_no_other_and_is_in_the_status() {
    let api = Arc::new(Api { refuses: Some("/services/c-bootstrap"), ..Api::default() });
    let context = context(&api);
    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    assert!(api.written().iter().any(|write| write.ends_with("/statefulsets/c-broker")));
    let objects = api.objects.lock();
    let conditions = objects[CLUSTER_PATH]["status"]["conditions"].to_string();
    assert!(conditions.contains("apply Service/c-bootstrap: not allowed here"), "{conditions}");
    assert!(conditions.contains("KubernetesError"), "{conditions}");
}

#[tokio::test]
async fn a_status_that_can_not_be_written_is_an_error_and_is_counted() {
    let api = Arc::new(Api { refuses: Some("/clusters/c/status"), ..Api::default() });
    let context = context(&api);
    let error = cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap_err();
    assert!(error.to_string().contains("write status of Cluster c"), "{error}");
    assert!(context.metrics.render().contains("reconciles_total{kind=\"Cluster\",outcome=\"error\"} 1\n"));
}

pub(crate) fn topic_object(deleting: bool) -> Arc<DeserializeGuard<Topic>> {
    let mut object = json!({
        "apiVersion": "forebay.dev/v1alpha1", "kind": "Topic",
        "metadata": {"name": "t", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": "5", "finalizers": ["other/one", "forebay.dev/topic"]},
        "spec": {"clusterRef": {"name": "c"}, "partitions": 1},
    });
    if deleting {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    Arc::new(DeserializeGuard(Ok(serde_json::from_value(object).unwrap())))
}

#[tokio::test]
async fn a_topic_whose_cluster_is_gone_is_let_go_and_only_our_finalizer_is_taken() {
    let api = Arc::new(Api::default());
    topic::reconcile(topic_object(true), context(&api)).await.unwrap();
    assert_eq!(api.written(), ["PATCH /apis/forebay.dev/v1alpha1/namespaces/n/topics/t"]);
    let objects = api.objects.lock();
    let metadata = &objects["/apis/forebay.dev/v1alpha1/namespaces/n/topics/t"]["metadata"];
    assert_eq!((&metadata["finalizers"], &metadata["resourceVersion"]), (&json!(["other/one"]), &json!("5")));
}

#[tokio::test]
async fn a_topic_whose_brokers_do_not_answer_is_kept_and_says_so() {
    let api = Arc::new(Api::default());
    api.objects.lock().insert(CLUSTER_PATH.to_owned(), cluster_object());
    api.objects.lock().insert("/api/v1/namespaces/n".to_owned(), json!({"metadata": {"name": "n"}}));
    topic::reconcile(topic_object(true), context(&api)).await.unwrap();
    assert_eq!(api.written(), ["PATCH /apis/forebay.dev/v1alpha1/namespaces/n/topics/t/status"]);
    let objects = api.objects.lock();
    let conditions = objects["/apis/forebay.dev/v1alpha1/namespaces/n/topics/t"]["status"]["conditions"].to_string();
    assert!(conditions.contains("ClusterNotReachable") && conditions.contains("127.0.0.1:1"), "{conditions}");
}

/// Broker 0 of one can't be placed: its claim's volume is on node n1, which is not there.
fn with_a_lost_node(refuses: Option<&'static str>) -> Arc<Api> {
    let api = Arc::new(Api { refuses, ..Api::default() });
    let since = "2020-01-01T00:00:00Z";
    let unplaced =
        json!({"type": "PodScheduled", "status": "False", "message": "no node", "lastTransitionTime": since});
    api.pods.lock().push(json!({
        "metadata": {"name": "c-broker-0", "uid": "pod-uid", "labels": {"controller-revision-hash": "r"}},
        "status": {"conditions": [unplaced]},
    }));
    let size = json!({"storage": "1Gi"});
    api.claims.lock().push(json!({
        "metadata": {"name": "data-c-broker-0", "uid": "claim-uid"},
        "spec": {"volumeName": "v", "resources": {"requests": size}},
        "status": {"capacity": size},
    }));
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    });
    api.objects.lock().insert("/api/v1/persistentvolumes/v".to_owned(), volume);
    api
}

#[tokio::test]
async fn a_lost_disk_that_may_be_the_only_one_is_told_and_nothing_is_deleted() {
    let api = with_a_lost_node(None);
    let context = context(&api);
    for _ in 0..2 {
        cluster::reconcile(cluster_replacing(&api), Arc::clone(&context)).await.unwrap();
    }
    assert!(api.written().iter().all(|write| write.starts_with("PATCH")));
    for _ in 0..3 {
        cluster::reconcile(cluster_replacing(&api), Arc::clone(&context)).await.unwrap();
        assert_eq!(api.written(), Vec::<String>::new(), "told once");
    }
    let stored = api.objects.lock()[CLUSTER_PATH]["status"]["conditions"].to_string();
    assert!(stored.contains("NodeLost") && stored.contains("its records may be nowhere else"), "{stored}");
}

/// The Cluster of the tests with `onNodeLost: Replace`.
fn cluster_replacing(api: &Api) -> Arc<DeserializeGuard<Cluster>> {
    let stored = cluster_as_stored(api);
    let mut cluster = stored.0.as_ref().unwrap().clone();
    cluster.spec.on_node_lost = Some(forebay_crds::cluster::OnNodeLost::Replace);
    Arc::new(DeserializeGuard(Ok(cluster)))
}

#[tokio::test]
async fn a_disk_is_given_up_claims_first_and_a_refusal_leaves_the_pod() {
    const CLAIM: &str = "/api/v1/namespaces/n/persistentvolumeclaims/data-c-broker-0";
    for refuses in [None, Some("/data-c-broker-0")] {
        let api = with_a_lost_node(refuses);
        let context = context(&api);
        let cluster: Cluster = serde_json::from_value(cluster_object()).unwrap();
        let failed = cluster::replace_disk(&context, &cluster, ("c-broker-0", "data-c-broker-0")).await;
        let mut expected = vec![format!("DELETE {CLAIM}")];
        if refuses.is_none() {
            expected.push("DELETE /api/v1/namespaces/n/pods/c-broker-0".to_owned());
        }
        assert_eq!(api.written(), expected);
        assert_eq!(failed.len(), usize::from(refuses.is_some()), "{failed:?}");
    }
}
