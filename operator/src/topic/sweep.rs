//! Finds what was changed behind the operator's back: each resync, all topics of each Cluster are looked at in a few requests,
//! and only the Topics whose topic is not as it was are reconciled. So a converged cluster of 5,000 topics costs a look, not 5,000
//! reconciles.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc;
use futures::sink::SinkExt;
use kube::runtime::reflector::ObjectRef;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::observe::{ClusterSeen, admitted};
use super::owners::Index;
use crate::context::Context;
use crate::stores::{ClusterKey, Guarded};

/// Clusters looked at at the same time.
const CLUSTERS_AT_ONCE: usize = 4;
/// Looks in a row that fail before Topics say that brokers can't be reached: a broker that restarts is no news.
const FAILURES_TO_TELL: u32 = 3;

/// Wakes Topics: one for each controller, with the namespace it watches.
pub(crate) type Wake = (Option<String>, mpsc::Sender<ObjectRef<Guarded<forebay_crds::Topic>>>);

/// Sweeps until `stop`.
pub(crate) async fn run(context: Arc<Context>, wake: Vec<Wake>, stop: CancellationToken) {
    let mut ticks = interval(context.resync());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweeps = Sweeps { wake, failures: HashMap::new() };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sweeps.all(&context) => {}
        }
    }
}

struct Sweeps {
    wake: Vec<Wake>,
    /// Looks that failed in a row.
    failures: HashMap<ClusterKey, u32>,
}

impl Sweeps {
    async fn all(&mut self, context: &Context) {
        let index = context.owners.index(&context.stores, None);
        self.failures.retain(|key, _| index.clusters().any(|named| named == key));
        let failures = &self.failures;
        let looks = futures::stream::iter(index.clusters().cloned())
            .map(async |key| {
                let found = sweep(context, &key, &index, failures.get(&key).copied().unwrap_or(0)).await;
                (key, found)
            })
            .buffer_unordered(CLUSTERS_AT_ONCE)
            .collect::<Vec<_>>()
            .await;
        for (key, found) in looks {
            let Some(found) = found else { continue };
            let moved = if found.failed { 0 } else { found.wake.len() };
            context.metrics.swept(!found.failed, u32::try_from(moved).unwrap_or(u32::MAX));
            match found.failed {
                true => *self.failures.entry(key.clone()).or_default() += 1,
                false => drop(self.failures.remove(&key)),
            }
            for name in &found.wake {
                for owner in index.owners(&key, name) {
                    self.wake(&owner.namespace, &owner.name).await;
                }
            }
        }
    }

    async fn wake(&mut self, namespace: &str, name: &str) {
        for (watched, sender) in &mut self.wake {
            if watched.as_deref().is_none_or(|watched| watched == namespace) {
                // A controller that has ended takes no more.
                let _ = sender.send(ObjectRef::new(name).within(namespace)).await;
            }
        }
    }
}

/// What a look at a Cluster's topics found.
pub(super) struct Found {
    pub(super) failed: bool,
    /// The topics whose Topics are to be reconciled.
    pub(super) wake: Vec<String>,
}

/// None when there is nobody to ask: Topics are told so by their own reconciles.
pub(super) async fn sweep(context: &Context, key: &ClusterKey, index: &Index, failures: u32) -> Option<Found> {
    let ClusterSeen::Reached(_) = admitted(context, key, &key.namespace, false).await.ok()? else { return None };
    let kafka = context.kafka.get(key, &context.args.bootstrap_of(&key.namespace, &key.name));
    let own = index.names(key);
    let mut all: BTreeSet<String> = context.stores.names_in_profiles(key);
    all.extend(own.iter().cloned());
    match kafka.looks.sweep(&kafka.admin, &all).await {
        Ok(mut moved) => {
            if failures > 0 {
                // What was told to wait for brokers need not wait for its turn.
                moved.extend(kafka.looks.unsettled(&own));
            }
            if !moved.is_empty() {
                tracing::info!(cluster = %key, topics = moved.len(), "not as they were");
            }
            Some(Found { failed: false, wake: moved })
        }
        Err(why) => {
            tracing::debug!(cluster = %key, why, failures, "topics can't be looked at");
            let tell = failures + 1 == FAILURES_TO_TELL;
            Some(Found { failed: true, wake: if tell { own.into_iter().collect() } else { Vec::new() } })
        }
    }
}
