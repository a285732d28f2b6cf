//! Services: one name per broker, and one name to begin with.

use forebay_crds::Cluster;
use forebay_crds::cluster::ListenerType;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{
    CONTROLLER_PORT, HTTP_PORT, KAFKA_PORT, bootstrap_service_name, headless_service_name, is_replicated, labels,
    metadata,
};

fn port(name: &str, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        target_port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

/// A DNS name per broker. Brokers that are not ready have one too: they must find each other to become ready.
pub(super) fn headless(cluster: &Cluster) -> Service {
    let name = cluster.name_any();
    let controller = is_replicated(cluster).then(|| port("controller", CONTROLLER_PORT));
    let inside = cluster.spec.listeners.iter().filter(|listener| listener.listener_type == ListenerType::Internal);
    let inside = inside.map(|listener| port(&listener.name, listener.port));
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        publish_not_ready_addresses: Some(true),
        ports: Some(
            [port("kafka", KAFKA_PORT), port("http", HTTP_PORT)].into_iter().chain(controller).chain(inside).collect(),
        ),
        selector: Some(labels::selecting(&name)),
        ..ServiceSpec::default()
    };
    Service { metadata: metadata(cluster, headless_service_name(&name)), spec: Some(spec), ..Service::default() }
}

/// Where clients begin: any broker that is ready.
pub(super) fn bootstrap(cluster: &Cluster) -> Service {
    let name = cluster.name_any();
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        ports: Some(vec![port("kafka", KAFKA_PORT)]),
        selector: Some(labels::selecting(&name)),
        ..ServiceSpec::default()
    };
    Service { metadata: metadata(cluster, bootstrap_service_name(&name)), spec: Some(spec), ..Service::default() }
}
