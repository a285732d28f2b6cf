//! Conditions of a status: kept by type, written only when something changed.

use forebay_crds::conditions::{self, ConditionReport};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use super::events::Note;

/// The conditions to store.
pub(crate) fn conditions(
    previous: Option<&Vec<Condition>>,
    reports: &[ConditionReport],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    conditions::merge(previous.map_or(&[], Vec::as_slice), reports, generation.unwrap_or(0), now)
}

/// Events for conditions whose status or reason changed: a condition that just holds on is no event, nor is one of the
/// lesser ones that holds from the first.
pub(crate) fn changes(previous: Option<&Vec<Condition>>, reports: &[ConditionReport]) -> Vec<Note> {
    use forebay_crds::{ConditionState, ConditionType, Reason};
    // It holds, and is not what somebody has written.
    let is_warning =
        |report: &ConditionReport| report.state == ConditionState::False || report.reason == Reason::DiskLargerThanSpec;
    let changed = reports.iter().filter(|report| {
        let old = previous.into_iter().flatten().find(|old| old.type_ == report.condition_type.as_str());
        let news = is_warning(report) || report.condition_type == ConditionType::Ready;
        match old {
            Some(old) if old.status == "Unknown" => news,
            Some(old) => old.status != report.state.as_str() || old.reason != report.reason.as_str(),
            None => news,
        }
    });
    let told = changed.filter(|report| {
        report.condition_type != ConditionType::Progressing
            && report.state != ConditionState::Unknown
            // Each is on its way: what comes of it is told.
            && !matches!(
                report.reason,
                Reason::Pending | Reason::BrokersStarting | Reason::Rolling | Reason::ConfigPending
            )
    });
    told.map(|report| Note {
        warning: is_warning(report),
        reason: report.reason,
        text: format!("{}: {}", report.condition_type.as_str(), report.message),
    })
    .collect()
}
