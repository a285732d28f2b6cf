//! The reconcile of a ConsumerProfile: observe → plan → apply → status.

mod observe;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use forebay_crds::{ConsumerProfile, Reason};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;

use crate::context::Context;
use crate::kube::apply as kube_apply;
use crate::kube::events::Note;
use crate::metrics::Kind;
use crate::reconcile::{self, Done, ReconcileError, Requeue};
use crate::stores::Guarded;

pub(crate) async fn reconcile(
    guarded: Arc<Guarded<ConsumerProfile>>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    let result = match &guarded.0 {
        Ok(profile) => one(profile, &context).await,
        Err(error) => Ok(reconcile::undecodable(Kind::ConsumerProfile, &guarded, &error.error)),
    };
    reconcile::finish(Kind::ConsumerProfile, &guarded, &context, started, result)
}

async fn one(profile: &ConsumerProfile, context: &Context) -> Result<Done, ReconcileError> {
    if profile.metadata.deletion_timestamp.is_some() {
        return Ok(Done { changed: false, requeue: Requeue::OnChange });
    }
    let observed = observe::observe(context, profile).await?;
    let plan = plan::plan(profile, &observed, context.resync(), Timestamp::now())?;
    let namespace = profile.namespace().unwrap_or_default();
    if let Some(config_map) = &plan.config_map {
        let what = format!("apply {}", config_map.key());
        kube_apply::apply(&context.client, &namespace, config_map).await.map_err(ReconcileError::kube(what))?;
        context.events.publish(profile, &Note::normal(Reason::SettingsChanged, config_map.key())).await;
    }
    let is_new = profile.status.as_ref() != Some(&plan.status);
    if is_new {
        let what = format!("write status of ConsumerProfile {}", profile.name_any());
        kube_apply::apply_status(&context.client, profile, &plan.status).await.map_err(ReconcileError::kube(what))?;
        for note in &plan.notes {
            context.events.publish(profile, note).await;
        }
    }
    Ok(Done { changed: is_new || plan.config_map.is_some(), requeue: plan.requeue })
}
