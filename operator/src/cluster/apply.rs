//! Does what the plan says, in order. A step that fails is reported and stops no other step.

use forebay_broker_client::Admin;
use forebay_broker_client::types::BrokerId;
use forebay_crds::{Cluster, ClusterStatus, ConditionReport, ConditionType, Reason};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::json;
use thiserror::Error;

use super::build::NO_RACK_ANNOTATION;
use super::build::listeners::LISTENER_LABEL;
use super::disk_drain::removal::{DISK_ANNOTATION, REMOVED};
use super::dynamic;
use super::listeners::ADVERTISED_LISTENERS;
use super::plan::Action;
use super::scale::{BROKER_ANNOTATION, UNREGISTERED};
use crate::context::Context;
use crate::kafka::{brokers, log_dirs, moves};
use crate::kube::apply;
use crate::kube::events::Note;
use crate::kube::status;

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) condition: ConditionType,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

pub(crate) async fn apply(context: &Context, cluster: &Cluster, actions: &[Action]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for action in actions {
        match perform(context, cluster, action).await {
            Ok(note) => {
                tracing::info!(namespace = cluster.namespace(), cluster = cluster.name_any(), %action, "done");
                context.events.publish(cluster, &note).await;
            }
            Err(error) => failures.push(failure(action, &error)),
        }
    }
    failures
}

/// Who refused a step.
#[derive(Debug, Error)]
enum StepError {
    /// The Kubernetes API.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// The brokers.
    #[error("{0}")]
    Brokers(String),
}

async fn perform(context: &Context, cluster: &Cluster, action: &Action) -> Result<Note, StepError> {
    let (client, namespace) = (&context.client, cluster.namespace().unwrap_or_default());
    match action {
        Action::Apply(child) => {
            apply::apply(client, &namespace, child).await?;
            Ok(Note::normal(Reason::Applied, child.key()))
        }
        Action::GrowClaim(growth) => {
            apply::grow_claim(client, &namespace, &growth.claim, &growth.to).await?;
            Ok(Note::normal(Reason::DiskResizing, action.to_string()))
        }
        Action::LabelPod { .. } | Action::TellNoRack { .. } => {
            tell_rack(client, &namespace, action).await?;
            Ok(Note::normal(Reason::Applied, action.to_string()))
        }
        Action::OrphanSet { name, uid, pods } => {
            for (pod, uid) in pods {
                apply::own_pod(client, cluster, pod, uid).await?;
            }
            let resource = ApiResource::erase::<StatefulSet>(&());
            apply::delete(client, &namespace, &resource, name, uid, true).await?;
            Ok(Note::normal(Reason::StatefulSetRecreated, format!("{name}: claim templates changed; its pods run on")))
        }
        Action::ReplacePod(one) => {
            if let Some(topics) = &one.without_spare {
                let text =
                    format!("topics that have no replica to spare stand still while {} restarts: {topics}", one.name);
                context.events.publish(cluster, &Note::warning(Reason::NoSpareReplica, text)).await;
            }
            apply::delete_pod(client, &namespace, &one.name, &one.uid).await?;
            Ok(Note::normal(one.reason, one.why.clone()))
        }
        Action::ReplaceDisk { pod, uid, claims, text } => {
            for (name, uid) in claims {
                apply::delete_claim(client, &namespace, name, uid).await?;
            }
            apply::delete_pod(client, &namespace, pod, uid).await?;
            Ok(Note::warning(Reason::NodeLost, text.clone()))
        }
        Action::MarkClaim { name, mark } => {
            apply::annotate_claim(client, &namespace, name, BROKER_ANNOTATION, *mark).await?;
            Ok(Note::normal(Reason::ScalingDown, action.to_string()))
        }
        Action::MarkDisk { claim, mark } => {
            apply::annotate_claim(client, &namespace, claim, DISK_ANNOTATION, *mark).await?;
            Ok(Note::normal(Reason::RemovingDisk, action.to_string()))
        }
        Action::DisposeClaims { claims, delete } => {
            dispose(client, &namespace, claims, (DISK_ANNOTATION, REMOVED), *delete).await?;
            Ok(Note::normal(Reason::DiskRemoved, action.to_string()))
        }
        Action::Unregister { id, claims, delete } => {
            let unregistered = context.kafka_of(cluster).admin.unregister_broker(BrokerId(*id)).await;
            unregistered.map_err(|error| StepError::Brokers(error.to_string()))?;
            dispose(client, &namespace, claims, (BROKER_ANNOTATION, UNREGISTERED), *delete).await?;
            Ok(Note::normal(Reason::ScalingDown, action.to_string()))
        }
        Action::Remove(one) => {
            apply::delete(client, &namespace, &one.resource, &one.name, &one.uid, false).await?;
            Ok(Note::normal(Reason::Removed, format!("{}/{}", one.resource.kind, one.name)))
        }
        Action::SetOnBrokers(_)
        | Action::Tell(_)
        | Action::Move { .. }
        | Action::MoveDirs { .. }
        | Action::Unthrottle { .. } => {
            ask_brokers(&context.kafka_of(cluster).admin, action).await.map_err(StepError::Brokers)
        }
    }
}

/// Deletes claims that nobody has a use for, or marks them.
async fn dispose(
    client: &Client,
    namespace: &str,
    claims: &[(String, String)],
    (annotation, mark): (&str, &str),
    delete: bool,
) -> Result<(), kube::Error> {
    for (name, uid) in claims {
        match delete {
            true => apply::delete_claim(client, namespace, name, uid).await?,
            false => apply::annotate_claim(client, namespace, name, annotation, Some(mark)).await?,
        }
    }
    Ok(())
}

/// Tells a pod its rack, or that it has none.
async fn tell_rack(client: &Client, namespace: &str, action: &Action) -> Result<(), kube::Error> {
    let (name, uid, told) = match action {
        Action::LabelPod { name, uid, label, value } => (name, uid, json!({"labels": {label: value}})),
        Action::TellNoRack { name, uid, why } => (name, uid, json!({"annotations": {NO_RACK_ANNOTATION: why}})),
        _ => return Ok(()),
    };
    apply::mark_pod(client, namespace, name, uid, told).await
}

/// Steps that are the brokers' to do.
async fn ask_brokers(admin: &Admin, action: &Action) -> Result<Note, String> {
    match action {
        Action::Move { moves, bytes_per_second, text, reason } => {
            moves::start(admin, moves, *bytes_per_second).await?;
            Ok(Note::normal(*reason, text.clone()))
        }
        Action::MoveDirs { moves, text } => {
            log_dirs::start(admin, moves).await?;
            Ok(Note::normal(Reason::RemovingDisk, text.clone()))
        }
        Action::Unthrottle { topics, reason } => {
            moves::unthrottle(admin, topics).await?;
            Ok(Note::normal(*reason, action.to_string()))
        }
        Action::SetOnBrokers(settings) => {
            brokers::set(admin, settings).await?;
            let text = format!("set while the brokers run, none is restarted: {}", dynamic::text(settings));
            Ok(Note::normal(Reason::ConfigApplied, text))
        }
        Action::Tell(tell) => {
            brokers::set_on_each(admin, ADVERTISED_LISTENERS, tell).await?;
            Ok(Note::normal(Reason::AddressChanged, action.to_string()))
        }
        other => Err(format!("{other} is not the brokers' to do")),
    }
}

fn failure(action: &Action, error: &StepError) -> Failure {
    let said = match error {
        // The first line: the rest is a diff of the whole object.
        StepError::Kube(kube::Error::Api(status)) => status.message.lines().next().unwrap_or_default().to_owned(),
        other => other.to_string(),
    };
    let (condition, reason) = match action {
        Action::GrowClaim(_) => (ConditionType::DisksInForce, Reason::DiskResizeRefused),
        Action::Tell(_) => (ConditionType::ListenersReady, Reason::KafkaError),
        // A port that is taken, a class that does not exist: brokers run all the same.
        Action::Apply(child) if child.value["metadata"]["labels"][LISTENER_LABEL].is_string() => {
            (ConditionType::ListenersReady, Reason::KubernetesError)
        }
        Action::Apply(_)
        | Action::OrphanSet { .. }
        | Action::ReplacePod(_)
        | Action::Remove(_)
        | Action::LabelPod { .. }
        | Action::TellNoRack { .. }
        | Action::MarkClaim { .. }
        | Action::MarkDisk { .. }
        | Action::DisposeClaims { .. }
        | Action::ReplaceDisk { .. } => (ConditionType::Ready, Reason::KubernetesError),
        Action::SetOnBrokers(_)
        | Action::Move { .. }
        | Action::MoveDirs { .. }
        | Action::Unthrottle { .. }
        | Action::Unregister { .. } => (ConditionType::Ready, Reason::KafkaError),
    };
    Failure { condition, reason, message: format!("{action}: {said}") }
}

/// Events for failures that are new: one that goes on is in the status.
pub(crate) fn notes(failures: &[Failure], previous: &ClusterStatus) -> Vec<Note> {
    let is_new = |failure: &&Failure| {
        let same = |old: &&Condition| old.type_ == failure.condition.as_str() && old.reason == failure.reason.as_str();
        !previous.conditions.iter().any(|old| same(&old))
    };
    failures.iter().filter(is_new).map(|failure| Note::warning(failure.reason, failure.message.clone())).collect()
}

/// The status after the steps that failed.
pub(crate) fn with_failures(
    mut status: ClusterStatus,
    failures: &[Failure],
    generation: Option<i64>,
    previous: &ClusterStatus,
    now: Timestamp,
) -> ClusterStatus {
    for failure in failures {
        let report = ConditionReport::new(failure.condition, false, failure.reason, &failure.message);
        let merged = status::conditions(Some(&previous.conditions), &[report], generation, now);
        for condition in merged {
            status.conditions.retain(|old| old.type_ != condition.type_);
            status.conditions.push(condition);
        }
    }
    status
}
