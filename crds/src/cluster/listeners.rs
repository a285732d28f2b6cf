//! Listeners beside the one that is always there, for clients that can't use the pods' own addresses; and who may reach which port.
//!
//! What must always hold: a field that a listener's type has no use for is refused, with the type that has; the ports of the brokers
//! themselves are never given away.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One more listener of every broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.type != 'Internal' || !(has(self.advertised) || has(self.preferredNodeAddress) || has(self.externalTrafficPolicy) || has(self.brokers) || has(self.bootstrap))").message("a listener of type Internal is reached by the pods' own names: leave advertised, preferredNodeAddress, externalTrafficPolicy, bootstrap and brokers out, or choose type NodePort or LoadBalancer"))]
#[x_kube(validation = Rule::new("self.type == 'LoadBalancer' || !(has(self.loadBalancerClass) || has(self.loadBalancerSourceRanges))").message("loadBalancerClass and loadBalancerSourceRanges are for type LoadBalancer: leave them out, or choose that type"))]
#[x_kube(validation = Rule::new("self.type != 'LoadBalancer' || !has(self.advertised) || !has(self.advertised.host) || self.advertised.host.contains('{broker}') || has(self.advertised.firstPort)").message("all brokers would be told by one host and port: write {broker} into advertised.host, or give advertised.firstPort"))]
#[x_kube(validation = Rule::new("self.type == 'NodePort' || !has(self.preferredNodeAddress)").message("preferredNodeAddress is for type NodePort: leave it out, or choose that type"))]
#[x_kube(validation = Rule::new("self.type != oldSelf.type || (has(self.loadBalancerClass) == has(oldSelf.loadBalancerClass) && (!has(self.loadBalancerClass) || self.loadBalancerClass == oldSelf.loadBalancerClass))").message("loadBalancerClass can't be changed, as a Service keeps its class: add a listener of another name with the new class, move the clients, then remove this one"))]
pub struct Listener {
    /// Name of the listener. Brokers know it in capitals; its Services are `<cluster>-<name>-bootstrap` and `<cluster>-<name>-<broker>`.
    #[schemars(length(min = 1, max = 12), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("!(self in ['plaintext', 'controller', 'kafka', 'http'])").message("the names plaintext, controller, kafka and http are taken by the brokers' own ports: choose another one, for example external"))]
    pub name: String,
    /// Port on the brokers' pods and of the Services, for example 9094.
    #[schemars(range(min = 1024, max = 65535))]
    #[x_kube(validation = Rule::new("!(self in [9092, 9093, 9644])").message("ports 9092 (clients inside), 9093 (brokers) and 9644 (metrics) are taken: choose another one, for example 9094"))]
    pub port: i32,
    /// `Internal`: pods of this Kubernetes cluster, by the brokers' DNS names. `NodePort`: a port of the node that the broker is on.
    /// `LoadBalancer`: an address for each broker, and one to begin with.
    #[serde(rename = "type")]
    pub listener_type: ListenerType,
    /// What clients are told to connect to, when that is not what Kubernetes gives: a name that points there, or a proxy in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertised: Option<Advertised>,
    /// NodePort: which address of its node a broker is told by. When left out, the first of ExternalIP and InternalIP that the node has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_node_address: Option<NodeAddressType>,
    /// `externalTrafficPolicy` of the brokers' Services. When left out: `Local` for a NodePort whose own node is told, which keeps the
    /// clients' addresses, else `Cluster`. The bootstrap Service has `Cluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<TrafficPolicy>,
    /// LoadBalancer: `loadBalancerClass` of the Services; the cluster's own when left out. Can't be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub load_balancer_class: Option<String>,
    /// LoadBalancer: the only addresses that may connect, in CIDR form; any when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 50)), extend("x-kubernetes-list-type" = "set"))]
    pub load_balancer_source_ranges: Vec<String>,
    /// Annotations of all Services of the listener, for load balancers and DNS controllers that go by them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub annotations: BTreeMap<String, String>,
    /// The Service that clients begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<ListenerBootstrap>,
    /// What is special about single brokers, by id: addresses, node ports, annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub brokers: Vec<ListenerBroker>,
    /// Who may connect, where `spec.networkPolicy` is given: peers as in a NetworkPolicy; anybody when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub allowed_from: Vec<NetworkPolicyPeer>,
}

impl Listener {
    /// As brokers know it.
    #[must_use]
    pub fn broker_name(&self) -> String {
        self.name.to_ascii_uppercase()
    }

    /// What is special about a broker.
    #[must_use]
    pub fn of_broker(&self, id: i32) -> Option<&ListenerBroker> {
        self.brokers.iter().find(|broker| broker.id == id)
    }

    /// The host that clients are told for a broker, if the spec says so.
    #[must_use]
    pub fn advertised_host(&self, id: i32) -> Option<String> {
        let own = self.of_broker(id).and_then(|broker| broker.host.clone());
        let of_all = || Some(self.advertised.as_ref()?.host.as_ref()?.replace("{broker}", &id.to_string()));
        own.or_else(of_all)
    }

    /// The port that clients are told for a broker, if the spec says so.
    #[must_use]
    pub fn advertised_port(&self, id: i32) -> Option<i32> {
        let own = self.of_broker(id).and_then(|broker| broker.port);
        let of_all = || {
            let advertised = self.advertised.as_ref()?;
            advertised.port.or_else(|| advertised.first_port.map(|first| first.saturating_add(id)))
        };
        own.or_else(of_all)
    }

    /// The policy of the brokers' Services; none where there is nothing to come in from.
    #[must_use]
    pub fn effective_traffic_policy(&self) -> TrafficPolicy {
        let tells_own_node = self.listener_type == ListenerType::NodePort
            && self.advertised.as_ref().is_none_or(|advertised| advertised.host.is_none())
            && self.brokers.iter().all(|broker| broker.host.is_none());
        let chosen = if tells_own_node { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
        self.external_traffic_policy.unwrap_or(chosen)
    }
}

/// How a listener is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
pub enum ListenerType {
    /// From inside, by DNS names.
    Internal,
    /// By ports of nodes.
    NodePort,
    /// By load balancers.
    LoadBalancer,
}

impl ListenerType {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "Internal",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// Which address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
pub enum NodeAddressType {
    /// The address outside.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    /// The address inside.
    #[serde(rename = "InternalIP")]
    InternalIp,
    /// The name outside.
    #[serde(rename = "ExternalDNS")]
    ExternalDns,
    /// The name inside.
    #[serde(rename = "InternalDNS")]
    InternalDns,
    /// The name that the node calls itself.
    Hostname,
}

impl NodeAddressType {
    /// Kubernetes' name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExternalIp => "ExternalIP",
            Self::InternalIp => "InternalIP",
            Self::ExternalDns => "ExternalDNS",
            Self::InternalDns => "InternalDNS",
            Self::Hostname => "Hostname",
        }
    }
}

/// Which pods traffic from outside goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
pub enum TrafficPolicy {
    /// To the broker wherever it is; clients appear with a node's address.
    Cluster,
    /// Only by the broker's own node; clients keep their addresses.
    Local,
}

impl TrafficPolicy {
    /// Kubernetes' name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}

/// What clients are told for every broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.port) && has(self.firstPort))").message("port is the same for all brokers, firstPort another one for each: give one of them"))]
#[x_kube(validation = Rule::new("!has(self.host) || self.host.contains('{broker}') || has(self.firstPort) || !has(self.port)").message("all brokers would be told by one host and port: write {broker} into host, or give firstPort instead of port"))]
pub struct Advertised {
    /// Host; what Kubernetes gives when left out. `{broker}` in it stands for the broker's id, as in `broker-{broker}.kafka.example.com`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-.:a-zA-Z0-9{}]+$"))]
    pub host: Option<String>,
    /// Port of every broker, the same for all; the Service's own when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Port of broker 0; broker n has this plus n. For one host that leads to each broker by a port of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub first_port: Option<i32>,
}

/// The Service that clients begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerBootstrap {
    /// Its node port; Kubernetes chooses when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<i32>,
    /// Annotations of this Service, beside the listener's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub annotations: BTreeMap<String, String>,
}

/// What is special about one broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerBroker {
    /// The broker's id.
    #[schemars(range(min = 0, max = 999))]
    pub id: i32,
    /// Host that clients are told; stronger than `advertised.host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-.:a-zA-Z0-9]+$"))]
    pub host: Option<String>,
    /// Port that clients are told; stronger than `advertised.port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Node port of its Service; Kubernetes chooses when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<i32>,
    /// Annotations of its Service, beside the listener's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub annotations: BTreeMap<String, String>,
}

/// Who may reach the brokers' pods. Brokers among themselves and the operator always may.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerNetworkPolicy {
    /// Who may connect to port 9092: peers as in a NetworkPolicy; every pod of the Kubernetes cluster when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub clients: Vec<NetworkPolicyPeer>,
    /// Who may read metrics on port 9644; every pod of the Kubernetes cluster when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub monitoring: Vec<NetworkPolicyPeer>,
}

/// A listener as it can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub listener_type: ListenerType,
    /// What clients put in `bootstrap.servers`; absent while no address is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_servers: Option<String>,
    /// What clients are told for each broker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub brokers: Vec<ListenerAddress>,
    /// What stands in the way of the brokers that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Where a broker is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerAddress {
    /// The broker's id.
    pub id: i32,
    /// `host:port`.
    pub address: String,
}
