//! Reads what listeners depend on: their Services, the brokers' NetworkPolicy, and the addresses of nodes.

use std::collections::{BTreeMap, BTreeSet};

use forebay_crds::{CLUSTER_LABEL, Cluster};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, ApiResource, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::super::build::broker_set_name;
use super::super::build::listeners::{self as services, LISTENER_LABEL};
use super::super::lost;
use super::super::observe::PodSeen;
use super::{NodeAddress, Nodes};
use crate::kube::apply;
use crate::reconcile::ReconcileError;

/// Services of listeners, those that are wanted no more too, and the brokers' NetworkPolicy.
pub(crate) async fn children(
    client: &Client,
    cluster: &Cluster,
    children: &mut BTreeMap<String, Value>,
) -> Result<(), ReconcileError> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let ours = format!("{CLUSTER_LABEL}={name},{LISTENER_LABEL}");
    let listed = services.list(&ListParams::default().labels(&ours)).await;
    for service in listed.map_err(ReconcileError::kube("list Services of listeners"))?.items {
        let key = format!("Service/{}", service.name_any());
        let what = key.clone();
        let value = serde_json::to_value(service).map_err(|source| ReconcileError::Json { what, source })?;
        children.insert(key, value);
    }
    // One of such a name that is not ours has no such label, and must be seen.
    let resource = ApiResource::erase::<Service>(&());
    for child in services::names(cluster, cluster.spec.replicas) {
        let key = format!("Service/{child}");
        if !children.contains_key(&key)
            && let Some(live) = apply::get(client, &namespace, &resource, &child).await?
        {
            children.insert(key, live);
        }
    }
    let (resource, child) = (ApiResource::erase::<NetworkPolicy>(&()), broker_set_name(&name));
    match apply::get(client, &namespace, &resource, &child).await {
        Ok(Some(live)) => drop(children.insert(format!("{}/{child}", resource.kind), live)),
        Ok(None) => {}
        // Whoever asks for no policy need not give the right to read them.
        Err(_) if cluster.spec.network_policy.is_none() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The addresses of the pods' nodes. Nodes are the cluster's: an operator may not be allowed to read them.
pub(crate) async fn nodes(client: &Client, pods: &[PodSeen]) -> Nodes {
    let api: Api<Node> = Api::all(client.clone());
    let names: BTreeSet<&String> = pods.iter().filter_map(|pod| pod.node.as_ref()).collect();
    let mut nodes = Nodes::new();
    for name in names {
        let read = api.get(name).await.map_err(|error| lost::unreadable(&error));
        nodes.insert(name.clone(), read.map(|node| node_addresses(&node)));
    }
    nodes
}

fn node_addresses(node: &Node) -> Vec<NodeAddress> {
    let status = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let seen = |one: &k8s_openapi::api::core::v1::NodeAddress| NodeAddress {
        kind: one.type_.clone(),
        address: one.address.clone(),
    };
    status.into_iter().flatten().map(seen).collect()
}
