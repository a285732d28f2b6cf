//! Writes. Children by server-side apply with one field manager; everything that deletes names the uid that it means.

use forebay_crds::Cluster;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::compare;
use crate::reconcile::ReconcileError;

/// The one field manager.
pub(crate) const FIELD_MANAGER: &str = "forebay-operator";

/// An object that belongs to one of ours.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) resource: ApiResource,
    pub(crate) name: String,
    /// As it is sent, with the hash of itself.
    pub(crate) value: Value,
}

impl Child {
    /// A child to be applied.
    pub(crate) fn new<K>(object: &K) -> Result<Self, ReconcileError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        let name = object.meta().name.clone().unwrap_or_default();
        let what = format!("{} {name}", resource.kind);
        let value = serde_json::to_value(object).map_err(|source| ReconcileError::Json { what, source })?;
        Ok(Self { resource, name, value: compare::with_hash(value) })
    }

    /// `Kind/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.resource.kind, self.name)
    }
}

/// What is to be done about a child, given the live one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is as desired.
    Nothing,
    /// It is to be applied.
    Apply,
    /// It is on its way out: wait.
    Wait,
    /// It is somebody else's; the text says whose.
    Conflict(String),
}

/// Compares a child with the live object. `owner_uid` is the uid of the object that the child belongs to.
pub(crate) fn need(child: &Child, live: Option<&Value>, owner_uid: &str) -> Need {
    let Some(live) = live else { return Need::Apply };
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    match controller {
        Some(owner) if owner["uid"] == owner_uid => {}
        Some(owner) if live.pointer("/metadata/deletionTimestamp").is_none() => {
            return Need::Conflict(format!("it belongs to {} {}", owner["kind"], owner["name"]).replace('"', ""));
        }
        None if live.pointer("/metadata/deletionTimestamp").is_none() => {
            return Need::Conflict("it exists and belongs to nobody; rename or delete it".to_owned());
        }
        _ => return Need::Wait,
    }
    if live.pointer("/metadata/deletionTimestamp").is_some() {
        return Need::Wait;
    }
    if compare::is_within(&child.value, live) { Need::Nothing } else { Need::Apply }
}

fn params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

/// The live object, if there is one.
pub(crate) async fn get(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    name: &str,
) -> Result<Option<Value>, ReconcileError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let what = format!("get {} {namespace}/{name}", resource.kind);
    let found = api.get_opt(name).await.map_err(ReconcileError::kube(&what))?;
    found.map(|object| serde_json::to_value(object).map_err(|source| ReconcileError::Json { what, source })).transpose()
}

/// Applies a child.
pub(crate) async fn apply(client: &Client, namespace: &str, child: &Child) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &child.resource);
    api.patch(&child.name, &params(), &Patch::Apply(&child.value)).await.map(drop)
}

/// Writes a status.
pub(crate) async fn apply_status<K>(client: &Client, object: &K, status: &impl Serialize) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    // The uid keeps a status from reaching an object that was deleted and made again.
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": object.name_any(), "uid": object.uid() },
        "status": status,
    });
    api.patch_status(&object.name_any(), &params(), &Patch::Apply(&patch)).await.map(drop)
}

/// Adds or removes one of our finalizers. The resource version makes it fail, and be tried again, when the object has
/// changed meanwhile: finalizers of others are never lost.
pub(crate) async fn set_finalizer<K>(
    client: &Client,
    object: &K,
    finalizer: &str,
    wanted: bool,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let mut finalizers: Vec<&str> =
        object.finalizers().iter().map(String::as_str).filter(|f| *f != finalizer).collect();
    if wanted {
        finalizers.push(finalizer);
    }
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(&object.name_any(), &params, &Patch::Merge(&patch)).await.map(drop)
}

/// Enlarges a claim.
pub(crate) async fn grow_claim(client: &Client, namespace: &str, name: &str, size: &str) -> Result<(), kube::Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let patch = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(&patch)).await.map(drop)
}

/// Sets an annotation of a claim, or takes it away.
pub(crate) async fn annotate_claim(
    client: &Client,
    namespace: &str,
    name: &str,
    annotation: &str,
    value: Option<&str>,
) -> Result<(), kube::Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(&patch)).await.map(drop)
}

/// Adds labels or annotations to exactly this pod.
pub(crate) async fn mark_pod(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    mut metadata: Value,
) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    metadata["uid"] = uid.into();
    let patch = json!({ "metadata": metadata });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(&patch)).await.map(drop)
}

/// Makes exactly this pod the Cluster's too, so that it goes when the Cluster goes. Its controller may be another.
pub(crate) async fn own_pod(client: &Client, cluster: &Cluster, name: &str, uid: &str) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &cluster.namespace().unwrap_or_default());
    let owners: Vec<OwnerReference> = cluster.owner_ref(&()).into_iter().collect();
    let metadata = json!({"name": name, "uid": uid, "ownerReferences": owners});
    let patch = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    api.patch(name, &params(), &Patch::Apply(&patch)).await.map(drop)
}

/// Deletes exactly this claim.
pub(crate) async fn delete_claim(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error> {
    delete(client, namespace, &ApiResource::erase::<PersistentVolumeClaim>(&()), name, uid, false).await
}

/// Deletes exactly this object; `orphan` leaves what it owns.
pub(crate) async fn delete(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    name: &str,
    uid: &str,
    orphan: bool,
) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let params = DeleteParams {
        propagation_policy: orphan.then_some(PropagationPolicy::Orphan),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    api.delete(name, &params).await.map(drop)
}

/// Deletes exactly this pod, with its grace period.
pub(crate) async fn delete_pod(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error> {
    delete(client, namespace, &ApiResource::erase::<Pod>(&()), name, uid, false).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    fn child(data: &str) -> Child {
        let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
        let data = Some([("x".to_owned(), data.to_owned())].into());
        Child::new(&ConfigMap { metadata, data, ..ConfigMap::default() }).unwrap()
    }

    fn live(child: &Child, owners: &Value, deleting: bool) -> Value {
        let mut live = child.value.clone();
        live["metadata"]["ownerReferences"] = owners.clone();
        live["metadata"]["resourceVersion"] = "5".into();
        if deleting {
            live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        live
    }

    #[test]
    fn a_child_is_applied_when_it_is_missing_or_differs_and_left_alone_when_not() {
        let ours = json!([{"controller": true, "uid": "u", "kind": "Cluster", "name": "c"}]);
        let desired = child("1");
        assert_eq!(need(&desired, None, "u"), Need::Apply);
        assert_eq!(need(&desired, Some(&live(&desired, &ours, false)), "u"), Need::Nothing);
        assert_eq!(need(&desired, Some(&live(&child("2"), &ours, false)), "u"), Need::Apply);
        assert_eq!(need(&desired, Some(&live(&desired, &ours, true)), "u"), Need::Wait);
    }

    #[test]
    fn an_object_of_somebody_else_is_never_taken() {
        let theirs = json!([{"controller": true, "uid": "v", "kind": "Cluster", "name": "d"}]);
        let desired = child("1");
        assert_eq!(
            need(&desired, Some(&live(&desired, &theirs, false)), "u"),
            Need::Conflict("it belongs to Cluster d".into())
        );
        assert!(matches!(need(&desired, Some(&live(&desired, &json!([]), false)), "u"), Need::Conflict(_)));
        assert_eq!(need(&desired, Some(&live(&desired, &theirs, true)), "u"), Need::Wait);
    }
}
