//! The reconcile of a Topic: observe → plan → apply → status. After a change the topic is looked at again in the same
//! pass, so that the status says what came of it. A Topic that needs nothing sleeps until it, its Cluster or its topic
//! changes; that the topic did is found by `sweep`, for all topics of a Cluster at once.

mod apply;
mod config;
#[cfg(test)]
mod many_tests;
mod observe;
mod owners;
mod placement;
mod plan;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use forebay_crds::Topic;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;

pub(crate) use self::observe::{ClusterSeen, admitted};
pub(crate) use self::owners::Owners;
use self::plan::{Pace, Plan};
use crate::context::Context;
use crate::kube::apply as kube_apply;
use crate::metrics::Kind;
use crate::reconcile::{self, Done, ReconcileError, Requeue};
use crate::stores::Guarded;

pub(crate) async fn reconcile(guarded: Arc<Guarded<Topic>>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    let result = match &guarded.0 {
        Ok(topic) => one(topic, &context).await,
        Err(error) => Ok(reconcile::undecodable(Kind::Topic, &guarded, &error.error)),
    };
    reconcile::finish(Kind::Topic, &guarded, &context, started, result)
}

async fn one(topic: &Topic, context: &Context) -> Result<Done, ReconcileError> {
    let mut plan = look_and_plan(topic, context).await?;
    let had_actions = !plan.actions.is_empty();
    if had_actions {
        match apply::apply(context, topic, &plan.actions).await? {
            apply::Applied::ObjectChanged => return Ok(Done { changed: true, requeue: Requeue::OnChange }),
            apply::Applied::Refused(refused) => plan = plan.refused(topic, &refused, Timestamp::now()),
            apply::Applied::Done => plan = look_and_plan(topic, context).await?.after(&plan.actions),
        }
    }
    let Some(status) = &plan.status else {
        return Ok(Done { changed: had_actions, requeue: plan.requeue });
    };
    let is_new = topic.status.as_ref() != Some(status);
    if is_new {
        let what = format!("write status of Topic {}", topic.name_any());
        kube_apply::apply_status(&context.client, topic, status).await.map_err(ReconcileError::kube(what))?;
        for note in &plan.notes {
            context.events.publish(topic, note).await;
        }
    }
    Ok(Done { changed: is_new || had_actions, requeue: plan.requeue })
}

async fn look_and_plan(topic: &Topic, context: &Context) -> Result<Plan, ReconcileError> {
    let observed = observe::observe(context, topic).await?;
    let pace = Pace { resync: context.resync(), settled: context.slow_resync() };
    let plan = plan::plan(topic, &observed, pace, Timestamp::now());
    if observed.owner.is_none() {
        observe::settle(context, &observed, plan.is_settled);
    }
    Ok(plan)
}
