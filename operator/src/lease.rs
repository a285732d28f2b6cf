//! Leader election by a Lease. Taking and renewing replace the object at the resource version that was read, so two
//! operators can't both succeed. Whether a holder is gone is judged by this process's own clock: the Lease did not change
//! for its whole duration.
//!
//! What must always hold: an operator that could not renew in time stops before another one may take over.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

const DURATION: Duration = Duration::from_secs(15);
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Give up before the duration is over: what is under way needs time to end.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
const TRY_EVERY: Duration = Duration::from_secs(2);

/// The Lease that operators compete for.
#[derive(Clone, Debug)]
pub(crate) struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
}

/// The Lease as another holder left it, and since when it has not changed.
#[derive(Clone, Debug)]
struct Watched {
    version: Option<String>,
    since: Instant,
}

impl Election {
    pub(crate) fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        // A pod's name may come again; a restart must not pass for the old process.
        let identity = format!("{identity}_{}", Timestamp::now().as_millisecond());
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity }
    }

    /// Waits until this operator leads; none when `shutdown` comes first.
    pub(crate) async fn acquire(&self, shutdown: &CancellationToken) -> Option<Lease> {
        let mut watched: Option<Watched> = None;
        loop {
            match self.attempt(&mut watched).await {
                Ok(Some(lease)) => {
                    tracing::info!(lease = self.name, identity = self.identity, "leading");
                    return Some(lease);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, lease = self.name, "lease can't be taken"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(TRY_EVERY) => {}
            }
        }
    }

    async fn attempt(&self, watched: &mut Option<Watched>) -> Result<Option<Lease>, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.spec(None)) };
            return won(self.api.create(&PostParams::default(), &lease).await);
        };
        if !is_free(&lease, watched, Instant::now()) {
            return Ok(None);
        }
        let taken = Lease { spec: Some(self.spec(lease.spec.as_ref())), ..lease };
        won(self.api.replace(&self.name, &PostParams::default(), &taken).await)
    }

    fn spec(&self, previous: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            acquire_time: Some(now.clone()),
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(previous.and_then(|spec| spec.lease_transitions).unwrap_or(0) + 1),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }

    /// Renews until `shutdown` (then the Lease is given back when `release` says that all work has ended) or until it is
    /// lost: false.
    pub(crate) async fn hold(&self, mut lease: Lease, shutdown: &CancellationToken) -> Result<Lease, LeaseLost> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(lease),
                () = tokio::time::sleep(RENEW_EVERY) => {}
            }
            let mut next = lease.clone();
            if let Some(spec) = &mut next.spec {
                spec.renew_time = Some(MicroTime(Timestamp::now()));
            }
            let left = GIVE_UP_AFTER.saturating_sub(renewed.elapsed());
            let asked = Instant::now();
            match tokio::time::timeout(left, self.api.replace(&self.name, &PostParams::default(), &next)).await {
                Ok(Ok(kept)) => (lease, renewed) = (kept, asked),
                Ok(Err(kube::Error::Api(status))) if status.code == 409 || status.code == 404 => return Err(LeaseLost),
                Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "lease not renewed"),
                Err(_) => return Err(LeaseLost),
            }
            if renewed.elapsed() >= GIVE_UP_AFTER {
                return Err(LeaseLost);
            }
        }
    }

    /// Gives the Lease back, so that the next operator need not wait. Only when all work has ended.
    pub(crate) async fn release(&self, lease: Lease) {
        let name = lease.name_any();
        let spec = lease.spec.clone().map(|spec| LeaseSpec { holder_identity: Some(String::new()), ..spec });
        let freed = Lease { spec, ..lease };
        if let Err(error) = self.api.replace(&name, &PostParams::default(), &freed).await {
            tracing::warn!(%error, lease = self.name, "lease not given back");
        }
    }
}

/// The Lease is another's, or could not be renewed in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease was lost: another operator may lead now")]
pub(crate) struct LeaseLost;

/// Somebody else was faster: no error.
fn won(result: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match result {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Nobody holds it, or its holder has not renewed it while it was watched for its whole duration.
fn is_free(lease: &Lease, watched: &mut Option<Watched>, now: Instant) -> bool {
    let spec = lease.spec.clone().unwrap_or_default();
    if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
        return true;
    }
    let version = lease.resource_version();
    match watched {
        Some(seen) if seen.version == version => {
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            now.duration_since(seen.since) > seconds.map_or(DURATION, Duration::from_secs)
        }
        _ => {
            *watched = Some(Watched { version, since: now });
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.into()),
                lease_duration_seconds: Some(15),
                ..LeaseSpec::default()
            }),
        }
    }

    #[test]
    fn a_lease_is_taken_only_when_it_did_not_change_for_its_whole_duration() {
        let (start, mut watched) = (Instant::now(), None);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!is_free(&lease("other", "1"), &mut watched, at(0)), "just seen");
        assert!(!is_free(&lease("other", "1"), &mut watched, at(15)));
        assert!(!is_free(&lease("other", "2"), &mut watched, at(16)), "renewed meanwhile");
        assert!(!is_free(&lease("other", "2"), &mut watched, at(31)));
        assert!(is_free(&lease("other", "2"), &mut watched, at(32)));
        assert!(is_free(&lease("", "3"), &mut watched, at(33)), "given back");
    }
}
