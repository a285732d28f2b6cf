//! Waiting for what an object's status says.

use std::fmt::Debug;

use anyhow::{Context, Result, bail};
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Story;

/// The kinds of forebay.dev: each reports conditions.
pub trait Reports:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug
{
    /// What the status says, and for which generation.
    fn reported(&self) -> (&[Condition], Option<i64>);
}

macro_rules! reports {
    ($($kind:ident),+) => { $(
        impl Reports for $kind {
            fn reported(&self) -> (&[Condition], Option<i64>) {
                self.status.as_ref().map_or((&[], None), |status| (&status.conditions, status.observed_generation))
            }
        }
    )+ };
}
reports!(Cluster, Topic, ConsumerProfile);

/// The condition of that type, when it is about the present spec.
///
/// # Errors
/// When there is none, or it answers an older generation.
pub fn condition<K: Reports>(object: &K, condition_type: &str) -> Result<Condition> {
    let (conditions, observed) = object.reported();
    let found = conditions.iter().find(|condition| condition.type_ == condition_type);
    let found = found.with_context(|| format!("it has no condition {condition_type}"))?;
    if observed != object.meta().generation || found.observed_generation != object.meta().generation {
        bail!("{condition_type} is about generation {observed:?}, not {:?}", object.meta().generation);
    }
    Ok(found.clone())
}

/// What kstatus makes of an object: the rules by which Helm, Flux and Argo CD wait for objects of kinds that they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It is as its spec says.
    Current,
    /// Something still happens to it.
    InProgress,
    /// It is on its way out.
    Terminating,
    /// It will not get there.
    Failed,
}

/// Judges an object as the API server gives it.
pub fn kstatus(object: &Value) -> Progress {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    if !metadata["deletionTimestamp"].is_null() {
        return Progress::Terminating;
    }
    if !status["observedGeneration"].is_null() && status["observedGeneration"] != metadata["generation"] {
        return Progress::InProgress;
    }
    let conditions = status["conditions"].as_array();
    let of = |kind: &str| {
        conditions.into_iter().flatten().find(|one| one["type"] == kind).map(|one| one["status"] == "True")
    };
    match (of("Stalled"), of("Reconciling"), of("Ready")) {
        (Some(true), _, _) => Progress::Failed,
        (_, Some(true), _) | (_, _, Some(false)) => Progress::InProgress,
        // Nothing says that it is not there yet: this is what an object without any status comes to.
        _ => Progress::Current,
    }
}

impl Story {
    /// Waits for a condition with that status, and gives it.
    ///
    /// # Errors
    /// After `limit_seconds`, with what the condition says instead.
    pub async fn expect_condition<K: Reports>(
        &self,
        name: &str,
        condition_type: &str,
        status: &str,
        limit_seconds: u64,
    ) -> Result<Condition> {
        let kind = K::kind(&());
        let what = format!("{kind} {name}: {condition_type} is {status}");
        self.expect(name, &what, limit_seconds, |object: &K| {
            let found = condition(object, condition_type)?;
            if found.status == status {
                return Ok(found);
            }
            bail!("{condition_type} is {} ({}: {})", found.status, found.reason, found.message)
        })
        .await
    }

    /// Waits until the object is `Ready`.
    ///
    /// # Errors
    /// After `limit_seconds`, with the reason why it is not.
    pub async fn expect_ready<K: Reports>(&self, name: &str, limit_seconds: u64) -> Result<()> {
        self.expect_condition::<K>(name, "Ready", "True", limit_seconds).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_current_when_its_status_answers_its_generation_and_says_ready() {
        let object = |observed: i64, ready: &str| {
            json!({
                "metadata": {"generation": 2},
                "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        assert_eq!(kstatus(&object(2, "True")), Progress::Current);
        assert_eq!(kstatus(&object(1, "True")), Progress::InProgress);
        assert_eq!(kstatus(&object(2, "Unknown")), Progress::InProgress);
        assert_eq!(kstatus(&json!({"metadata": {"generation": 1}})), Progress::Current, "the trap");
        let unobserved = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": -1}});
        assert_eq!(kstatus(&unobserved), Progress::InProgress);
        assert_eq!(kstatus(&json!({"metadata": {"deletionTimestamp": "now"}})), Progress::Terminating);
    }
}
