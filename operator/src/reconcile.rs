//! What the reconciles of all kinds share: how they end, how that is counted, and when they run again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use thiserror::Error;

use crate::backoff::ObjectKey;
use crate::context::Context;
use crate::metrics::{Kind, Outcome};
use crate::stores::Guarded;

/// Why a reconcile ended early. What users caused is a condition, not an error.
#[derive(Debug, Error)]
pub(crate) enum ReconcileError {
    /// The Kubernetes API refused or did not answer.
    #[error("{what}: {source}")]
    Kube {
        /// What was asked.
        what: String,
        /// Its answer.
        source: Box<kube::Error>,
    },
    /// An object of ours could not be written as JSON.
    #[error("{what}: {source}")]
    Json {
        /// Which object.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl ReconcileError {
    /// For `map_err`: names what was asked.
    pub(crate) fn kube(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Kube { what, source: Box::new(source) }
    }
}

/// When to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// After this time.
    After(Duration),
    /// After a pause that grows from time to time: something is in the way that may take long to go.
    Backoff,
    /// Only when the object changes.
    OnChange,
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Whether anything was written, to Kubernetes or to a broker.
    pub(crate) changed: bool,
    pub(crate) requeue: Requeue,
}

pub(crate) fn object_key<K: Resource>(kind: Kind, object: &K) -> ObjectKey {
    let meta = object.meta();
    ObjectKey {
        kind,
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// Counts a reconcile and says when the next one is due.
pub(crate) fn finish<K: Resource>(
    kind: Kind,
    object: &Guarded<K>,
    context: &Context,
    started: Instant,
    result: Result<Done, ReconcileError>,
) -> Result<Action, ReconcileError>
where
    K::DynamicType: Default,
{
    let outcome = match &result {
        Ok(Done { changed: true, .. }) => Outcome::Changed,
        Ok(Done { changed: false, .. }) => Outcome::Unchanged,
        Err(_) => Outcome::Error,
    };
    let took = started.elapsed();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are below 2^53")]
    let now_seconds = Timestamp::now().as_millisecond() as f64 / 1000.0;
    context.metrics.reconciled(kind, outcome, took, now_seconds);
    let key = object_key(kind, object);
    tracing::debug!(kind = kind.as_str(), namespace = key.namespace, name = key.name, ?outcome, ?took, "reconciled");
    let done = result?;
    Ok(match done.requeue {
        Requeue::Backoff => Action::requeue(jittered(context.backoff.failed(&key))),
        Requeue::After(pause) => {
            context.backoff.succeeded(&key);
            Action::requeue(jittered(pause))
        }
        Requeue::OnChange => {
            context.backoff.succeeded(&key);
            Action::await_change()
        }
    })
}

/// After an error: a growing pause.
pub(crate) fn error_policy<K: Resource>(
    kind: Kind,
    object: &Arc<Guarded<K>>,
    error: &ReconcileError,
    context: &Context,
) -> Action
where
    K::DynamicType: Default,
{
    let pause = context.backoff.failed(&object_key(kind, object.as_ref()));
    tracing::warn!(kind = kind.as_str(), namespace = object.namespace(), name = object.name_any(), %error, ?pause, "reconcile failed");
    Action::requeue(jittered(pause))
}

/// An object that does not decode waits for its next change; the others go on.
pub(crate) fn undecodable<K: Resource>(kind: Kind, object: &Guarded<K>, error: &str) -> Done
where
    K::DynamicType: Default,
{
    let (namespace, name) = (object.namespace(), object.name_any());
    tracing::warn!(
        kind = kind.as_str(),
        namespace,
        name,
        error,
        "object can't be read and is left alone until it changes"
    );
    Done { changed: false, requeue: Requeue::OnChange }
}

/// Up to a tenth longer, so that objects of one age don't all come at once.
fn jittered(pause: Duration) -> Duration {
    let nanoseconds = Timestamp::now().subsec_nanosecond().unsigned_abs() % 1_000;
    pause + pause.mul_f64(f64::from(nanoseconds) / 10_000.0)
}
