//! Whole reconciles against a service in place of the Kubernetes API that is at rest, refuses, or is away: exactly which requests are made,
//! what the status says, and that a failure that goes on is told once.

use std::sync::Arc;

use forebay_crds::Topic;
use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use crate::api_tests::{Api, CLUSTER_PATH, cluster_as_stored, cluster_object, context, topic_object};
use crate::{cluster, topic};

const TOPIC_PATH: &str = "/apis/forebay.dev/v1alpha1/namespaces/n/topics/t";
const CORE: &str = "/api/v1/namespaces/n";

fn condition(api: &Api, path: &str, of: &str) -> Value {
    let objects = api.objects.lock();
    let conditions = objects[path]["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == of).unwrap().clone()
}

#[tokio::test]
async fn a_cluster_at_rest_is_read_and_not_one_request_more_is_made() {
    let api = Arc::new(Api::default());
    let context = context(&api);
    for _ in 0..3 {
        cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    }
    api.asked();
    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    let reads = [
        "/apis/apps/v1/namespaces/n/statefulsets/c-broker".to_owned(),
        format!("{CORE}/services/c-brokers"),
        format!("{CORE}/services/c-bootstrap"),
        format!("{CORE}/configmaps/c-broker-config"),
        "/apis/policy/v1/namespaces/n/poddisruptionbudgets/c-broker".to_owned(),
        format!("{CORE}/services"),
        "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies/c-broker".to_owned(),
        format!("{CORE}/persistentvolumeclaims"),
        format!("{CORE}/pods"),
    ];
    assert_eq!(api.asked(), reads.map(|path| format!("GET {path}")));
}

#[tokio::test]
async fn what_can_not_be_read_ends_the_reconcile_before_anything_is_written() {
    for unreadable in ["/statefulsets/c-broker", "/pods", "/persistentvolumeclaims", "/services"] {
        let api = Arc::new(Api { unreadable: Some(unreadable), ..Api::default() });
        let context = context(&api);
        let error = cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap_err();
        assert!(error.to_string().contains("etcd is away"), "{unreadable}: {error}");
        assert_eq!(api.written(), Vec::<String>::new(), "{unreadable}");
        assert_eq!(api.told(), Vec::<String>::new(), "{unreadable}: the next reconcile may find all well");
    }
}

#[tokio::test]
async fn a_claim_that_may_not_grow_is_told_once_and_tried_again_and_all_else_is_applied() {
    const CLAIM: &str = "/api/v1/namespaces/n/persistentvolumeclaims/data-c-broker-0";
    let api = Arc::new(Api { refuses: Some("/persistentvolumeclaims/data-c-broker-0"), ..Api::default() });
    let size = json!({"storage": "512Mi"});
    api.claims.lock().push(json!({
        "metadata": {"name": "data-c-broker-0", "uid": "claim-uid"},
        "spec": {"resources": {"requests": size}},
        "status": {"capacity": size},
    }));
    let context = context(&api);
    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    let writes = api.written();
    assert_eq!(writes[0], format!("PATCH {CLAIM}"), "first, whatever else there is to do");
    assert!(writes.iter().any(|write| write.ends_with("/statefulsets/c-broker")), "{writes:?}");
    let disks = condition(&api, CLUSTER_PATH, "DisksInForce");
    assert_eq!(disks["reason"], "DiskResizeRefused");
    assert_eq!(disks["message"], "grow claim data-c-broker-0 from 512Mi to 1Gi: not allowed here");
    let refusals = |told: Vec<String>| told.iter().filter(|event| event.contains("DiskResizeRefused")).count();
    assert_eq!(refusals(api.told()), 1);
    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    api.written();
    for _ in 0..2 {
        cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
        assert_eq!(api.written(), [format!("PATCH {CLAIM}")], "tried again, and the status stays as it is");
        assert_eq!(refusals(api.told()), 0, "told once");
    }
}

#[tokio::test]
async fn a_set_that_is_refused_is_not_ready_by_the_api_servers_words_and_no_pod_is_touched() {
    let api = Arc::new(Api { refuses: Some("/statefulsets/c-broker"), ..Api::default() });
    let context = context(&api);
    for _ in 0..2 {
        cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    }
    let ready = condition(&api, CLUSTER_PATH, "Ready");
    assert_eq!(ready["reason"], "KubernetesError");
    assert_eq!(ready["message"], "apply StatefulSet/c-broker: not allowed here");
    assert!(api.written().iter().all(|write| write.starts_with("PATCH")));
}

#[tokio::test]
async fn a_set_is_made_again_around_its_pods_which_are_the_clusters_meanwhile() {
    const POD: &str = "/api/v1/namespaces/n/pods/c-broker-0";
    const SET: &str = "/apis/apps/v1/namespaces/n/statefulsets/c-broker";
    let api = Arc::new(Api::default());
    let context = context(&api);
    for _ in 0..2 {
        cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    }
    let size = json!({"storage": "1Gi"});
    api.claims.lock().push(json!({
        "metadata": {"name": "data-c-broker-0", "uid": "claim-uid"},
        "spec": {"resources": {"requests": size}},
        "status": {"capacity": size},
    }));
    let labels = json!({"controller-revision-hash": "r"});
    let ready = json!({"type": "Ready", "status": "True"});
    api.pods.lock().push(json!({
        "metadata": {"name": "c-broker-0", "uid": "pod-uid", "labels": labels},
        "status": {"conditions": [ready]},
    }));
    api.objects.lock().get_mut(SET).unwrap()["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"] =
        json!({"storage": "512Mi"});
    api.written();
    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    let writes = api.written();
    assert_eq!(writes[..2], [format!("PATCH {POD}"), format!("DELETE {SET}")]);
    let owner = api.objects.lock()[POD]["metadata"]["ownerReferences"][0].clone();
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("Cluster"), &Value::Null));
    cluster::reconcile(cluster_as_stored(&api), Arc::clone(&context)).await.unwrap();
    assert_eq!(api.written()[0], format!("PATCH {SET}"));
}

#[tokio::test]
async fn a_topic_that_waits_for_its_cluster_is_looked_at_in_one_request_and_told_once() {
    let api = Arc::new(Api::default());
    let context = context(&api);
    topic::reconcile(topic_as_stored(&api), Arc::clone(&context)).await.unwrap();
    assert_eq!(api.written(), [format!("PATCH {TOPIC_PATH}/status")]);
    assert_eq!(condition(&api, TOPIC_PATH, "Ready")["reason"], "ClusterNotFound");
    assert_eq!(api.told().len(), 1);
    api.asked();
    topic::reconcile(topic_as_stored(&api), Arc::clone(&context)).await.unwrap();
    assert_eq!(api.asked(), [format!("GET {CLUSTER_PATH}")]);
    assert_eq!(api.told(), Vec::<String>::new());
}

/// The Topic as the watch would bring it: with the status that was written.
fn topic_as_stored(api: &Api) -> Arc<DeserializeGuard<Topic>> {
    let mut object = topic_object(false).0.as_ref().unwrap().clone();
    if let Some(stored) = api.objects.lock().get(TOPIC_PATH) {
        object.status = serde_json::from_value(stored["status"].clone()).unwrap();
    }
    Arc::new(DeserializeGuard(Ok(object)))
}

#[tokio::test]
async fn a_finalizer_that_somebody_else_has_just_changed_is_left_and_tried_again() {
    let api = Arc::new(Api { refuses: Some("/topics/t"), ..Api::default() });
    let error = topic::reconcile(topic_object(true), context(&api)).await.unwrap_err();
    assert!(error.to_string().contains("remove finalizer of Topic t"), "{error}");
    assert_eq!(api.written(), [format!("PATCH {TOPIC_PATH}")]);
}

#[tokio::test]
async fn a_cluster_on_its_way_out_is_left_to_its_owners_and_nothing_is_asked() {
    let api = Arc::new(Api::default());
    let mut object = cluster_object();
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    object["metadata"]["finalizers"] = json!(["other/one"]);
    let deleted = Arc::new(DeserializeGuard(Ok(serde_json::from_value(object).unwrap())));
    cluster::reconcile(deleted, context(&api)).await.unwrap();
    assert_eq!(api.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn an_object_that_can_not_be_decoded_is_an_unchanged_one_and_nothing_is_asked() {
    let api = Arc::new(Api::default());
    let context = context(&api);
    let broken = json!({"apiVersion": "forebay.dev/v1alpha1", "kind": "Topic", "metadata": {"name": "t", "namespace": "n"}, "spec": {}});
    let guarded: DeserializeGuard<Topic> = serde_json::from_value(broken).unwrap();
    assert!(guarded.0.is_err());
    topic::reconcile(Arc::new(guarded), Arc::clone(&context)).await.unwrap();
    assert_eq!(api.asked(), Vec::<String>::new());
}
