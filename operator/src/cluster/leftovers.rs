//! Children that are wanted no more: Services of listeners and of brokers that are gone, and the policy of a spec that asks for none.
//!
//! What must always hold: only what belongs to this very Cluster is deleted, and only kinds that come and go with the spec.

use forebay_crds::Cluster;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::ApiResource;
use serde_json::Value;

use super::build::listeners::LISTENER_LABEL;
use super::observe::Observed;
use crate::kube::apply::Child;

/// One child, exactly.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub(crate) resource: ApiResource,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What is there and not among the desired.
pub(crate) fn of(cluster: &Cluster, desired: &[Child], observed: &Observed) -> Vec<Leftover> {
    let unwanted = observed.children.iter().filter(|(key, _)| desired.iter().all(|child| child.key() != **key));
    let ours = unwanted.filter(|(_, live)| belongs_to(cluster, live));
    ours.filter_map(|(_, live)| leftover(live)).collect()
}

fn belongs_to(cluster: &Cluster, live: &Value) -> bool {
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let uid = cluster.uid().unwrap_or_default();
    let is_owned =
        owners.into_iter().flatten().any(|owner| owner["controller"] == true && owner["uid"] == uid.as_str());
    is_owned && live.pointer("/metadata/deletionTimestamp").is_none()
}

fn leftover(live: &Value) -> Option<Leftover> {
    let resource = match live["kind"].as_str()? {
        "Service" if live["metadata"]["labels"][LISTENER_LABEL].is_string() => ApiResource::erase::<Service>(&()),
        "NetworkPolicy" => ApiResource::erase::<NetworkPolicy>(&()),
        _ => return None,
    };
    let text = |field: &str| live["metadata"][field].as_str().map(str::to_owned);
    Some(Leftover { resource, name: text("name")?, uid: text("uid")? })
}
