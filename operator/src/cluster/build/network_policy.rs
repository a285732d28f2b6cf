//! Who may reach the brokers' pods, where `spec.networkPolicy` asks for it. Brokers reach each other and the operator reaches them
//! whatever it says: a policy that cut them off would stop the cluster.

use std::collections::BTreeMap;

use forebay_crds::Cluster;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{CONTROLLER_PORT, HTTP_PORT, KAFKA_PORT, broker_set_name, is_replicated, labels, metadata};

pub(super) fn build(cluster: &Cluster) -> Option<NetworkPolicy> {
    let wanted = cluster.spec.network_policy.as_ref()?;
    let name = cluster.name_any();
    let brokers = NetworkPolicyPeer { pod_selector: Some(labels::selector(&name)), ..NetworkPolicyPeer::default() };
    let mut rules = vec![
        rule(KAFKA_PORT, [or_all_pods(&wanted.clients), vec![brokers.clone(), operator()]].concat()),
        rule(HTTP_PORT, [or_all_pods(&wanted.monitoring), vec![operator()]].concat()),
    ];
    if is_replicated(cluster) {
        rules.push(rule(CONTROLLER_PORT, vec![brokers]));
    }
    rules.extend(cluster.spec.listeners.iter().map(|listener| rule(listener.port, listener.allowed_from.clone())));
    Some(NetworkPolicy {
        metadata: metadata(cluster, broker_set_name(&name)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(labels::selector(&name)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(rules),
            egress: None,
        }),
    })
}

/// Nobody in `from` stands for anybody, from outside too.
fn rule(port: i32, from: Vec<NetworkPolicyPeer>) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        from: (!from.is_empty()).then_some(from),
        ports: Some(vec![NetworkPolicyPort {
            port: Some(IntOrString::Int(port)),
            protocol: Some("TCP".to_owned()),
            end_port: None,
        }]),
    }
}

fn or_all_pods(peers: &[NetworkPolicyPeer]) -> Vec<NetworkPolicyPeer> {
    match peers {
        [] => {
            vec![NetworkPolicyPeer {
                namespace_selector: Some(LabelSelector::default()),
                ..NetworkPolicyPeer::default()
            }]
        }
        some => some.to_vec(),
    }
}

/// Wherever it runs.
fn operator() -> NetworkPolicyPeer {
    let of_operator: BTreeMap<String, String> =
        [("app.kubernetes.io/name".to_owned(), "forebay-operator".to_owned())].into();
    NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector::default()),
        pod_selector: Some(LabelSelector { match_labels: Some(of_operator), ..LabelSelector::default() }),
        ..NetworkPolicyPeer::default()
    }
}
