//! Whether brokers leave so much memory to the page cache as the spec wants. Pure.
//!
//! What must hold: the figure stands still on a cluster at rest. So it goes by the most that a broker has had, which never falls while
//! it runs, and in steps.

use forebay_broker_config::status::BrokerStatus;
use forebay_crds::ClusterSpec;
use forebay_crds::cluster::{TuningCheck, bytes};

use super::tuning::check;

const SETTING: &str = "page cache";
const STEP_BYTES: u64 = 16 << 20;

/// The most that a broker itself has had, rounded up.
pub(crate) fn peak_bytes(status: &BrokerStatus) -> Option<i64> {
    let peak = status.peak_memory_bytes?.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
    i64::try_from(peak).ok()
}

/// What is left to the page cache of what a broker is given (its request, else its limit), against what is wanted.
pub(crate) fn check_reserve(spec: &ClusterSpec, status: &BrokerStatus) -> Option<TuningCheck> {
    let wanted = spec.page_cache_reserve_bytes()?;
    let limit = status.memory_limit_bytes.and_then(|limit| i64::try_from(limit).ok());
    let given = spec.given_memory_bytes().map(|(_, given)| given);
    // A limit that others set (a LimitRange) may be lower than the request says, and is all there is without one.
    let Some(given) = given.into_iter().chain(limit).min() else {
        let hint = "set resources.requests.memory: without it nothing is kept for a broker".to_owned();
        return Some(TuningCheck {
            hint: Some(hint),
            ..check(&SETTING, &bytes(wanted), &"no request and no limit", false)
        });
    };
    // A version that does not tell.
    let own = peak_bytes(status)?;
    let left = (given - own).max(0);
    let holds = left >= wanted;
    let hint = format!(
        "given {}, of which the broker itself has had {}: raise resources.requests.memory",
        bytes(given),
        bytes(own)
    );
    Some(TuningCheck { hint: (!holds).then_some(hint), ..check(&SETTING, &bytes(wanted), &bytes(left), holds) })
}
