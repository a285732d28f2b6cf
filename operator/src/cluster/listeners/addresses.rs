//! Addresses on a listener: what the spec says, or what Kubernetes gives to Services and nodes.

use std::collections::BTreeSet;

use forebay_crds::cluster::{Listener, ListenerAddress, ListenerType, NodeAddressType};
use kube::ResourceExt;
use serde_json::Value;

use super::super::build::{broker_host, listeners as services};
use super::super::observe::PodSeen;
use super::{Look, Missing};

/// Addresses to begin with: more are of no use to a client.
const BOOTSTRAP_ADDRESSES: usize = 3;
/// The first of these that a node has is told, where the spec names none.
const PREFERENCE: [NodeAddressType; 2] = [NodeAddressType::ExternalIp, NodeAddressType::InternalIp];

impl Look<'_> {
    /// Where clients reach a broker, or why that is not known.
    pub(super) fn address(&self, listener: &Listener, pod: &PodSeen) -> Result<String, Missing> {
        let (id, port) = (pod.ordinal, listener.advertised_port(pod.ordinal));
        let name = services::broker_name(&self.cluster.name_any(), &listener.name, id);
        let host = listener.advertised_host(id);
        match listener.listener_type {
            ListenerType::Internal => Ok(join(&broker_host(self.cluster, self.defaults, &pod.name), listener.port)),
            ListenerType::NodePort => {
                let host = host.map_or_else(|| self.node_address(listener, pod), Ok)?;
                Ok(join(&host, port.map_or_else(|| self.node_port(&name), Ok)?))
            }
            ListenerType::LoadBalancer => {
                let host = host.map_or_else(|| self.balancer(&name), Ok)?;
                Ok(join(&host, port.unwrap_or(listener.port)))
            }
        }
    }

    /// Where clients begin, and what is missing for it.
    pub(super) fn bootstrap(
        &self,
        listener: &Listener,
        brokers: &[ListenerAddress],
    ) -> (Option<String>, Option<Missing>) {
        let service = services::bootstrap_name(&self.cluster.name_any(), &listener.name);
        let of_brokers = || {
            let addresses = brokers.iter().take(BOOTSTRAP_ADDRESSES).map(|broker| broker.address.as_str());
            let addresses: Vec<&str> = addresses.collect();
            (!addresses.is_empty()).then(|| addresses.join(","))
        };
        match listener.listener_type {
            ListenerType::Internal => {
                let namespace = self.cluster.namespace().unwrap_or_default();
                (Some(format!("{service}.{namespace}.svc:{}", listener.port)), None)
            }
            // A host of the spec's own leads to single brokers, as far as is known here.
            _ if self.by_id.keys().any(|id| listener.advertised_host(*id).is_some()) => (of_brokers(), None),
            ListenerType::NodePort => match self.node_port(&service) {
                Ok(port) => {
                    let hosts = self.by_id.values().filter_map(|(pod, _)| self.node_address(listener, pod).ok());
                    let hosts: BTreeSet<String> = hosts.collect();
                    let hosts = hosts.iter().take(BOOTSTRAP_ADDRESSES).map(|host| join(host, port));
                    let hosts: Vec<String> = hosts.collect();
                    ((!hosts.is_empty()).then(|| hosts.join(",")), None)
                }
                Err(why) => (of_brokers(), Some(why)),
            },
            ListenerType::LoadBalancer => match self.balancer(&service) {
                Ok(host) => (Some(join(&host, listener.port)), None),
                Err(why) => (of_brokers(), Some(why)),
            },
        }
    }

    fn service(&self, name: &str) -> Result<&Value, Missing> {
        let service = self.observed.children.get(&format!("Service/{name}"));
        service.ok_or_else(|| Missing::Soon(format!("Service {name} is not there yet")))
    }

    fn node_port(&self, service: &str) -> Result<i32, Missing> {
        let port = self.service(service)?["spec"]["ports"][0]["nodePort"].as_i64();
        let port = port.and_then(|port| i32::try_from(port).ok()).filter(|port| *port > 0);
        port.ok_or_else(|| Missing::Soon(format!("Service {service} has no node port yet")))
    }

    fn balancer(&self, service: &str) -> Result<String, Missing> {
        let ingress = &self.service(service)?["status"]["loadBalancer"]["ingress"][0];
        let host = ingress["hostname"].as_str().or(ingress["ip"].as_str()).map(str::to_owned);
        host.ok_or_else(|| {
            Missing::Stuck(format!(
                "Service {service} has no address: nothing has made a load balancer for it yet (its Events say more)"
            ))
        })
    }

    /// An address of the node that the pod is on.
    fn node_address(&self, listener: &Listener, pod: &PodSeen) -> Result<String, Missing> {
        let Some(node) = &pod.node else { return Err(Missing::Soon(format!("{} is on no node yet", pod.name))) };
        let preferred = listener.preferred_node_address;
        let wanted = preferred.as_ref().map_or(PREFERENCE.as_slice(), std::slice::from_ref);
        match self.observed.nodes.get(node) {
            Some(Ok(addresses)) => {
                let find = |kind: &NodeAddressType| addresses.iter().find(|address| address.kind == kind.as_str());
                let found = wanted.iter().find_map(find).map(|found| found.address.clone());
                found.ok_or_else(|| {
                    let has: Vec<&str> = addresses.iter().map(|address| address.kind.as_str()).collect();
                    let wanted: Vec<&str> = wanted.iter().map(|kind| kind.as_str()).collect();
                    let (has, wanted) = (has.join(", "), wanted.join(" or "));
                    Missing::Stuck(format!(
                        "node {node} has no {wanted}, it has {has}: set preferredNodeAddress, or advertised.host"
                    ))
                })
            }
            // The pod tells its node's InternalIP, and needs no right for it.
            _ if wanted.contains(&NodeAddressType::InternalIp) => {
                let missing = || Missing::Soon(format!("{} tells no address of node {node} yet", pod.name));
                pod.host_ip.map(|ip| ip.to_string()).ok_or_else(missing)
            }
            Some(Err(why)) => Err(Missing::Stuck(format!("node {node}: {why}; or set advertised.host"))),
            None => Err(Missing::Soon(format!("node {node} has not been read yet"))),
        }
    }
}

fn join(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
