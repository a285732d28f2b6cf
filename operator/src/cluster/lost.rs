//! Brokers whose local disk is on a node that is gone: their pods can be placed nowhere, and no waiting helps. Read only
//! for pods that can't be placed. An operator that may not read nodes says that it can't tell.

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::{Api, Client};

use super::observe::{ClaimSeen, PodSeen};
use super::rebind::LostSeen;

/// The label by which local volumes name their node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Whether a pod waits for a node that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// As far as can be seen it does not.
    No,
    /// It does.
    Yes(LostSeen),
    /// The operator could not look; the text says why.
    Unknown(String),
}

/// Looks whether the pod can't be placed because a node is gone.
pub(crate) async fn look(client: &Client, pod: &PodSeen, claims: &[&ClaimSeen]) -> Lost {
    if pod.node.is_some() || pod.message.is_none() {
        return Lost::No;
    }
    let mut lost = LostSeen::default();
    for claim in claims {
        match gone(client, claim).await {
            Ok(nodes) if nodes.is_empty() => {}
            Ok(nodes) => {
                lost.claims.push((claim.name.clone(), claim.uid.clone()));
                lost.nodes.extend(nodes);
            }
            Err(error) => return Lost::Unknown(unreadable(&error)),
        }
    }
    lost.nodes.sort();
    lost.nodes.dedup();
    if lost.claims.is_empty() { Lost::No } else { Lost::Yes(lost) }
}

/// The nodes that a claim's volume can only be used on, when all of them are gone.
async fn gone(client: &Client, claim: &ClaimSeen) -> Result<Vec<String>, kube::Error> {
    let Some(volume) = &claim.volume else { return Ok(Vec::new()) };
    let Some(volume) = Api::<PersistentVolume>::all(client.clone()).get_opt(volume).await? else {
        return Ok(Vec::new());
    };
    let nodes = nodes_of(&volume);
    for node in &nodes {
        if Api::<Node>::all(client.clone()).get_opt(node).await?.is_some() {
            return Ok(Vec::new());
        }
    }
    Ok(nodes)
}

/// Whether the operator may not read, however often it tries.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Why a node or volume could not be read, and what would let the operator do so.
pub(crate) fn unreadable(error: &kube::Error) -> String {
    match error {
        error if is_forbidden(error) => {
            "the operator may not read nodes and volumes: the chart's value rbac.nodes lets it".to_owned()
        }
        other => format!("nodes and volumes could not be read: {other}"),
    }
}

/// The nodes that a volume can only be used on.
fn nodes_of(volume: &PersistentVolume) -> Vec<String> {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let terms = affinity.into_iter().flat_map(|selector| &selector.node_selector_terms);
    let expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    let hosts = expressions.filter(|one| one.key == HOSTNAME_LABEL && one.operator == "In");
    hosts.flat_map(|one| one.values.clone().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_local_volume_names_its_node_and_others_name_none() {
        let term = json!({"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": ["n1"]}]});
        let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
        assert_eq!(nodes_of(&serde_json::from_value(volume).unwrap()), ["n1"]);
        let zone =
            json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]});
        let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [zone]}}}});
        assert_eq!(nodes_of(&serde_json::from_value(volume).unwrap()), Vec::<String>::new());
        assert_eq!(nodes_of(&PersistentVolume::default()), Vec::<String>::new());
    }
}
