//! The reconcile of a Cluster: observe → plan → apply → status.

mod apply;
mod build;
mod disk_add;
mod disk_drain;
mod disks;
mod drain;
mod dynamic;
mod leftovers;
mod listeners;
mod lost;
mod observe;
mod page_cache;
mod plan;
mod racks;
mod rebalance;
mod rebind;
mod report;
mod roll;
mod room;
mod scale;
mod settled;
#[cfg(test)]
mod tests;
mod tuning;
mod tuning_record;
mod windows;

use std::sync::Arc;
use std::time::Instant;

use forebay_crds::Cluster;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;

use self::build::Defaults;
use crate::context::Context;
use crate::kube::apply as kube_apply;
use crate::metrics::Kind;
use crate::reconcile::{self, Done, ReconcileError, Requeue};
use crate::stores::Guarded;

pub(crate) async fn reconcile(guarded: Arc<Guarded<Cluster>>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    let result = match &guarded.0 {
        Ok(cluster) => one(cluster, &context).await,
        Err(error) => Ok(reconcile::undecodable(Kind::Cluster, &guarded, &error.error)),
    };
    reconcile::finish(Kind::Cluster, &guarded, &context, started, result)
}

async fn one(cluster: &Cluster, context: &Context) -> Result<Done, ReconcileError> {
    if cluster.metadata.deletion_timestamp.is_some() {
        // Children are owned and go with it; claims go or stay by the set's retention policy.
        return Ok(Done { changed: false, requeue: Requeue::OnChange });
    }
    let defaults = Defaults {
        broker_image: context.args.broker_image.clone(),
        cluster_domain: context.args.cluster_domain.clone(),
    };
    let now = Timestamp::now();
    let observed = observe::observe(context, cluster, now).await?;
    let desired = plan::desired(cluster, &defaults, &observed);
    let plan = plan::plan(cluster, desired, &observed, &defaults, context.resync(), now);
    let failures = apply::apply(context, cluster, &plan.actions).await;
    let previous = cluster.status.clone().unwrap_or_default();
    let status = apply::with_failures(plan.status, &failures, cluster.metadata.generation, &previous, now);
    let is_new = cluster.status.as_ref() != Some(&status);
    if is_new {
        let what = format!("write status of Cluster {}", cluster.name_any());
        kube_apply::apply_status(&context.client, cluster, &status).await.map_err(ReconcileError::kube(what))?;
        for note in plan.notes.iter().chain(&apply::notes(&failures, &previous)) {
            context.events.publish(cluster, note).await;
        }
    }
    let requeue = if failures.is_empty() { plan.requeue } else { Requeue::Backoff };
    Ok(Done { changed: is_new || !plan.actions.is_empty(), requeue })
}

/// Gives up the disk of a broker, as a plan would have it: for tests of what is asked of the API. What failed is returned.
#[cfg(test)]
pub(crate) async fn replace_disk(
    context: &Context,
    cluster: &Cluster,
    (pod, claim): (&str, &str),
) -> Vec<forebay_crds::Reason> {
    let claims = vec![(claim.to_owned(), "claim-uid".to_owned())];
    let action =
        plan::Action::ReplaceDisk { pod: pod.to_owned(), uid: "pod-uid".to_owned(), claims, text: String::new() };
    apply::apply(context, cluster, &[action]).await.into_iter().map(|failure| failure.reason).collect()
}
