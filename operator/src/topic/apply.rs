//! Does what the plan says, in order; the first refusal ends it.

use forebay_broker_client::admin::NewTopic;
use forebay_crds::{Reason, TOPIC_FINALIZER, Topic};
use kube::ResourceExt;

use super::plan::{Action, Refused};
use crate::context::Context;
use crate::kafka::KafkaCluster;
use crate::kube::apply as kube_apply;
use crate::kube::events::Note;
use crate::reconcile::ReconcileError;
use crate::stores::cluster_key;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// All is done.
    Done,
    /// The object itself was changed: the watch brings it back, with the rest of the plan.
    ObjectChanged,
    /// Brokers refused.
    Refused(Refused),
}

pub(crate) async fn apply(context: &Context, topic: &Topic, actions: &[Action]) -> Result<Applied, ReconcileError> {
    let namespace = topic.namespace().unwrap_or_default();
    let key = cluster_key(&topic.spec.cluster_ref, &namespace);
    let kafka = context.kafka.get(&key, &context.args.bootstrap_of(&key.namespace, &key.name));
    for action in actions {
        match action {
            Action::AddFinalizer => {
                set_finalizer(context, topic, true).await?;
                return Ok(Applied::ObjectChanged);
            }
            Action::RemoveFinalizer(note) => {
                context.events.publish(topic, note).await;
                set_finalizer(context, topic, false).await?;
                return Ok(Applied::ObjectChanged);
            }
            change => {
                let done = on_brokers(&kafka, change).await;
                // Also after a failure: whether the change was carried out is not known then.
                kafka.looks.changed(&crate::stores::topic_name(topic));
                match done {
                    Ok(note) => {
                        tracing::info!(namespace, topic = topic.name_any(), action = %change, "done");
                        context.events.publish(topic, &note).await;
                    }
                    Err(why) => return Ok(Applied::Refused(Refused(format!("{change}: {why}")))),
                }
            }
        }
    }
    Ok(Applied::Done)
}

async fn set_finalizer(context: &Context, topic: &Topic, wanted: bool) -> Result<(), ReconcileError> {
    let what = format!("{} finalizer of Topic {}", if wanted { "add" } else { "remove" }, topic.name_any());
    kube_apply::set_finalizer(&context.client, topic, TOPIC_FINALIZER, wanted).await.map_err(ReconcileError::kube(what))
}

/// One change on the brokers, and the Event that tells of it.
async fn on_brokers(kafka: &KafkaCluster, action: &Action) -> Result<Note, String> {
    let (admin, changes) = (&kafka.admin, &kafka.changes);
    let reason = match action {
        Action::AddFinalizer | Action::RemoveFinalizer(_) => return Err("is not a change on the brokers".to_owned()),
        Action::Create { name, partitions, replication_factor, configs } => {
            let topic = NewTopic {
                name: name.clone(),
                partitions: *partitions,
                replication_factor: *replication_factor,
                configs: configs.clone(),
                ..NewTopic::default()
            };
            changes.create(admin, topic).await?;
            Reason::TopicCreated
        }
        Action::AddPartitions { name, to, .. } => {
            changes.grow(admin, name, *to).await?;
            Reason::PartitionsAdded
        }
        Action::AlterConfigs { name, changes: wanted, .. } => {
            changes.configure(admin, name, wanted).await?;
            Reason::DriftCorrected
        }
        Action::Reassign { name, moves, .. } => {
            changes.reassign(admin, name, moves).await?;
            Reason::Reassigning
        }
        Action::DeleteTopic { name } => {
            changes.delete(admin, name).await?;
            Reason::TopicDeleted
        }
    };
    Ok(Note::normal(reason, action.to_string()))
}
