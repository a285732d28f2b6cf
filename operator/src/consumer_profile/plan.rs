//! What to do about a ConsumerProfile. Pure: the profile and what was observed in; ConfigMap, status and Events out.
//!
//! What must always hold: the ConfigMap changes only when accepted settings change; while settings are refused, it and
//! the settings in the status stay as they were.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_crds::consumer_profile as api;
use forebay_crds::solver_request::{self, InvalidMemoryLimit};
use forebay_crds::{
    CLUSTER_LABEL, ConditionReport, ConditionState, ConditionType, ConsumerProfile, ConsumerProfileStatus, Reason,
};
use forebay_profile::{BrokerLimits, ClientFamily, Request, Solution, Subscription, Verdict, render};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::observe::{Brokers, Observed};
use crate::kafka::TopicSeen;
use crate::kube::apply::{self, Child, Need};
use crate::kube::events::Note;
use crate::kube::status;
use crate::reconcile::{ReconcileError, Requeue};
use crate::topic::ClusterSeen;

/// What to do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// To be applied; none when it is as it should be.
    pub(crate) config_map: Option<Child>,
    pub(crate) status: ConsumerProfileStatus,
    pub(crate) notes: Vec<Note>,
    pub(crate) requeue: Requeue,
}

pub(crate) fn config_map_name(profile: &str) -> String {
    format!("{profile}-consumer")
}

pub(crate) fn plan(
    profile: &ConsumerProfile,
    observed: &Observed,
    resync: Duration,
    now: Timestamp,
) -> Result<Plan, ReconcileError> {
    let mut status = profile.status.clone().unwrap_or_default();
    status.observed_generation = profile.metadata.generation;
    let request = match request(profile, observed) {
        Ok(request) => request,
        Err(report) => return Ok(finished(profile, status, None, report, Requeue::Backoff, now)),
    };
    let solution = forebay_profile::solve(&request);
    status.workload = Some(workload(&solution));
    status.verdicts = solution.verdicts.iter().map(verdict).collect();
    if !solution.is_accepted() {
        let reason = match solution.verdict() {
            Verdict::Unsatisfiable => Reason::Unsatisfiable,
            Verdict::Refused | Verdict::Warning | Verdict::Ok => Reason::SettingsRefused,
        };
        let report = ready(false, reason, solution.summary());
        return Ok(finished(profile, status, None, report, Requeue::After(resync), now));
    }
    let config_map = Child::new(&build(profile, &request))?;
    let uid = profile.uid().unwrap_or_default();
    let need = apply::need(&config_map, observed.config_map.as_ref(), &uid);
    if let Need::Conflict(why) = need {
        let report = ready(false, Reason::ResourceConflict, format!("{}: {why}", config_map.key()));
        return Ok(finished(profile, status, None, report, Requeue::Backoff, now));
    }
    status.config_map_name = Some(config_map.name.clone());
    status.settings = solution.settings.entries().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    status.predicted = Some(api::Predicted {
        latency_ms: solution.predicted.latency_ms,
        memory_bytes: solution.predicted.memory_bytes,
    });
    let report = match solution.verdict() {
        Verdict::Warning => ready(true, Reason::AcceptedWithWarnings, solution.summary()),
        _ => ready(true, Reason::AsSpecified, "settings meet the goals by every rule".to_owned()),
    };
    let (config_map, requeue) = match need {
        Need::Apply => (Some(config_map), Requeue::After(resync)),
        Need::Wait => (None, Requeue::After(Duration::from_secs(1))),
        Need::Nothing | Need::Conflict(_) => (None, Requeue::After(resync)),
    };
    Ok(finished(profile, status, config_map, report, requeue, now))
}

fn ready(state: bool, reason: Reason, message: String) -> ConditionReport {
    ConditionReport::new(ConditionType::Ready, state, reason, message)
}

fn finished(
    profile: &ConsumerProfile,
    mut status: ConsumerProfileStatus,
    config_map: Option<Child>,
    report: ConditionReport,
    requeue: Requeue,
    now: Timestamp,
) -> Plan {
    let previous = profile.status.as_ref().map(|status| &status.conditions);
    let reports = [report];
    let notes = status::changes(previous, &reports);
    status.conditions = status::conditions(previous, &reports, profile.metadata.generation, now);
    Plan { config_map, status, notes, requeue }
}

/// What the solver is asked, or why it can't be asked yet.
fn request(profile: &ConsumerProfile, observed: &Observed) -> Result<Request, ConditionReport> {
    let key = &observed.cluster_key;
    let brokers = match &observed.cluster {
        ClusterSeen::Reached(brokers) => brokers,
        ClusterSeen::Missing => {
            return Err(ready(false, Reason::ClusterNotFound, format!("Cluster {key} does not exist")));
        }
        ClusterSeen::Deleting => {
            return Err(ready(false, Reason::ClusterGone, format!("Cluster {key} is being deleted")));
        }
        ClusterSeen::NotAllowed => {
            let message = format!(
                "Cluster {key} does not admit ConsumerProfiles of this namespace: add it to its spec.allowedNamespaces"
            );
            return Err(ready(false, Reason::ClusterNotAllowed, message));
        }
        ClusterSeen::Unreachable(why) => {
            let message = format!("brokers of Cluster {key} can't be reached: {why}");
            let unknown = ConditionState::Unknown;
            return Err(ConditionReport::new(ConditionType::Ready, unknown, Reason::ClusterNotReachable, message));
        }
    };
    let invalid = |error: InvalidMemoryLimit| ready(false, Reason::InvalidSpec, error.to_string());
    solver_request::request(profile, subscription(brokers)?).map_err(invalid)
}

fn subscription(brokers: &Brokers) -> Result<Subscription, ConditionReport> {
    let (mut partitions, mut leaders, mut largest) = (0_i64, Vec::<i32>::new(), None);
    for (name, topic) in &brokers.topics {
        match &**topic {
            TopicSeen::Absent => {
                let message = format!("topic {name} does not exist: its partitions are not known");
                return Err(ready(false, Reason::TopicNotFound, message));
            }
            TopicSeen::Refused(why) => {
                return Err(ready(false, Reason::KafkaError, format!("topic {name}: {why}")));
            }
            TopicSeen::Present(state) => {
                partitions += i64::from(state.partitions);
                leaders.extend(&state.leaders);
                let of_topic = state.configs.iter().find(|entry| entry.name == "max.message.bytes");
                let of_topic = of_topic.and_then(|entry| entry.value.as_ref()?.parse::<i64>().ok());
                largest = largest.max(of_topic);
            }
        }
    }
    leaders.sort_unstable();
    leaders.dedup();
    let stated =
        |name: &str, default: i64| brokers.config.get(name).and_then(|value| value.parse().ok()).unwrap_or(default);
    let kafka = BrokerLimits::default();
    Ok(Subscription {
        partitions,
        brokers: i64::try_from(leaders.len()).unwrap_or(i64::MAX).max(1),
        limits: BrokerLimits {
            max_message_bytes: largest.unwrap_or(kafka.max_message_bytes),
            fetch_max_bytes: stated("fetch.max.bytes", kafka.fetch_max_bytes),
            session_timeout_ms_min: stated("group.min.session.timeout.ms", kafka.session_timeout_ms_min),
            session_timeout_ms_max: stated("group.max.session.timeout.ms", kafka.session_timeout_ms_max),
        },
    })
}

/// The file for each client whose settings hold; the one of `spec.clientFamily` is always among them.
fn build(profile: &ConsumerProfile, request: &Request) -> ConfigMap {
    let files = ClientFamily::ALL.into_iter().filter_map(|family| {
        let solution = forebay_profile::solve(&Request { family, ..request.clone() });
        let text = render::render(family, &solution.settings);
        solution.is_accepted().then(|| (render::file_name(family).to_owned(), text))
    });
    let labels: BTreeMap<String, String> = [
        ("app.kubernetes.io/name", "forebay-consumer-profile"),
        ("app.kubernetes.io/instance", &profile.name_any()),
        ("app.kubernetes.io/managed-by", "forebay-operator"),
        ("app.kubernetes.io/part-of", "forebay"),
    ]
    .map(|(key, value)| (key.to_owned(), value.chars().take(63).collect()))
    .into();
    let cluster = (CLUSTER_LABEL.to_owned(), profile.spec.cluster_ref.name.clone());
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(config_map_name(&profile.name_any())),
            namespace: profile.namespace(),
            labels: Some(labels.into_iter().chain([cluster]).collect()),
            owner_references: profile.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(files.collect()),
        ..ConfigMap::default()
    }
}

fn workload(solution: &Solution) -> api::EffectiveWorkload {
    let workload = &solution.workload;
    let count = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the schema")]
    let latency_ms = workload.latency_ms as i64;
    api::EffectiveWorkload {
        partitions: count(workload.partitions),
        brokers: count(workload.brokers),
        partitions_per_fetch: count(workload.partitions_per_fetch()),
        members: count(workload.members),
        latency_ms,
        records_per_second: workload.records_per_second,
        record_bytes: workload.record_bytes,
        work_mean_ms: workload.work_mean_ms,
        work_worst_ms: workload.work_worst_ms,
        memory_limit_bytes: workload.memory_limit_bytes,
    }
}

fn verdict(verdict: &forebay_profile::RuleVerdict) -> api::RuleVerdict {
    api::RuleVerdict {
        rule: verdict.rule.id().to_owned(),
        verdict: match verdict.verdict {
            Verdict::Ok => api::Verdict::Ok,
            Verdict::Warning => api::Verdict::Warning,
            Verdict::Refused => api::Verdict::Refused,
            Verdict::Unsatisfiable => api::Verdict::Unsatisfiable,
        },
        message: verdict.message.clone(),
    }
}
