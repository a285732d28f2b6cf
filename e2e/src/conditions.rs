//! Waiting for what an object's status says.

use std::fmt::Debug;

use anyhow::{Context, Result, bail};
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use serde::de::DeserializeOwned;

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
