//! Services of `spec.listeners`: for clients outside one for each broker and one to begin with; for clients inside one to begin
//! with. And the policy that says who may reach the brokers' pods at all.

use std::collections::BTreeMap;

use forebay_crds::Cluster;
use forebay_crds::cluster::{Listener, ListenerType};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{broker_set_name, labels, metadata};

/// On the Services of a listener, with its name.
pub(crate) const LISTENER_LABEL: &str = "forebay.dev/listener";

/// Where clients of the listener begin.
pub(crate) fn bootstrap_name(cluster: &str, listener: &str) -> String {
    format!("{cluster}-{listener}-bootstrap")
}

/// The Service of one broker.
pub(crate) fn broker_name(cluster: &str, listener: &str, id: i32) -> String {
    format!("{cluster}-{listener}-{id}")
}

/// The names of all Services of `spec.listeners`.
pub(crate) fn names(cluster: &Cluster, brokers: i32) -> Vec<String> {
    let name = cluster.name_any();
    let of_one = |listener: &Listener| {
        let count = if listener.listener_type == ListenerType::Internal { 0 } else { brokers };
        let each = (0..count).map(|id| broker_name(&name, &listener.name, id));
        std::iter::once(bootstrap_name(&name, &listener.name)).chain(each).collect::<Vec<_>>()
    };
    cluster.spec.listeners.iter().flat_map(of_one).collect()
}

pub(super) fn services(cluster: &Cluster, brokers: i32) -> Vec<Service> {
    let of_one = |listener: &Listener| {
        let count = if listener.listener_type == ListenerType::Internal { 0 } else { brokers };
        let each = (0..count).map(|id| of_broker(cluster, listener, id));
        std::iter::once(bootstrap(cluster, listener)).chain(each).collect::<Vec<_>>()
    };
    cluster.spec.listeners.iter().flat_map(of_one).collect()
}

/// Any broker that is ready.
fn bootstrap(cluster: &Cluster, listener: &Listener) -> Service {
    let name = cluster.name_any();
    let own = listener.bootstrap.clone().unwrap_or_default();
    let spec = ServiceSpec {
        selector: Some(labels::selecting(&name)),
        external_traffic_policy: is_outside(listener).then(|| "Cluster".to_owned()),
        ..spec(listener, own.node_port)
    };
    service(cluster, listener, bootstrap_name(&name, &listener.name), own.annotations, spec)
}

/// One broker, and as soon as its process serves: whoever was sent there must get there.
fn of_broker(cluster: &Cluster, listener: &Listener, id: i32) -> Service {
    let name = cluster.name_any();
    let own = listener.of_broker(id).cloned().unwrap_or_default();
    let pod = format!("{}-{id}", broker_set_name(&name));
    let mut selector = labels::selecting(&name);
    selector.insert("statefulset.kubernetes.io/pod-name".to_owned(), pod);
    let spec = ServiceSpec {
        selector: Some(selector),
        publish_not_ready_addresses: Some(true),
        external_traffic_policy: Some(listener.effective_traffic_policy().as_str().to_owned()),
        ..spec(listener, own.node_port)
    };
    service(cluster, listener, broker_name(&name, &listener.name, id), own.annotations, spec)
}

fn is_outside(listener: &Listener) -> bool {
    listener.listener_type != ListenerType::Internal
}

fn spec(listener: &Listener, node_port: Option<i32>) -> ServiceSpec {
    let ranges = listener.load_balancer_source_ranges.clone();
    ServiceSpec {
        type_: Some(match listener.listener_type {
            ListenerType::Internal => "ClusterIP".to_owned(),
            outside => outside.as_str().to_owned(),
        }),
        ports: Some(vec![ServicePort {
            name: Some(listener.name.clone()),
            port: listener.port,
            target_port: Some(IntOrString::Int(listener.port)),
            protocol: Some("TCP".to_owned()),
            node_port,
            ..ServicePort::default()
        }]),
        load_balancer_class: listener.load_balancer_class.clone(),
        load_balancer_source_ranges: (!ranges.is_empty()).then_some(ranges),
        ..ServiceSpec::default()
    }
}

fn service(
    cluster: &Cluster,
    listener: &Listener,
    name: String,
    own: BTreeMap<String, String>,
    spec: ServiceSpec,
) -> Service {
    let mut metadata = metadata(cluster, name);
    metadata.labels.get_or_insert_default().insert(LISTENER_LABEL.to_owned(), listener.name.clone());
    let mut annotations = listener.annotations.clone();
    annotations.extend(own);
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    Service { metadata, spec: Some(spec), ..Service::default() }
}
