//! The metadata quorum's metrics, as this broker sees it.

use super::catalog;
use super::process::as_float;
use super::scrape::Snapshot;
use crate::broker::Broker;

pub(super) fn of_quorum(broker: &Broker, snapshot: &mut Snapshot) -> prometheus::Result<()> {
    let status = broker.metadata.quorum().status();
    let leads = broker.metadata.leadership().borrow().here;
    let count = |number: usize| as_float(u64::try_from(number).unwrap_or(u64::MAX));
    let offset = |offset: i64| as_float(u64::try_from(offset).unwrap_or_default());
    snapshot.set(catalog::QUORUM_LEADER, &[], if leads { 1.0 } else { 0.0 })?;
    snapshot.set(catalog::QUORUM_LED, &[], if status.leader.is_some() { 1.0 } else { 0.0 })?;
    snapshot.set(catalog::QUORUM_TERM, &[], as_float(status.term))?;
    snapshot.set(catalog::QUORUM_VOTERS, &[], count(status.voters.len()))?;
    snapshot.set(catalog::QUORUM_LEARNERS, &[], count(status.learners.len()))?;
    snapshot.set(catalog::QUORUM_HIGH_WATERMARK, &[], offset(status.high_watermark))?;
    if leads && let Some(lag) = status.largest_lag(broker.id()) {
        snapshot.set(catalog::QUORUM_LAG, &[], offset(lag))?;
    }
    Ok(())
}
