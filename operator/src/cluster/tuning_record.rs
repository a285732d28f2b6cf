//! The record of tuning: parameters that were changed, with date and reason, and what brokers measured before and after. Pure.
//!
//! What must hold: all that it goes by is in the status, so another operator goes on with it; it is written when something was changed and
//! when the effect is known, and not in between; it is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_broker_config::status::{BrokerStatus, LoadStatus};
use forebay_crds::cluster::{MeasuredLoad, ParameterChange, TUNING_REASON_ANNOTATION, TuningChange};
use forebay_crds::{Cluster, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::Value;

use super::build::{self, Defaults};
use crate::kube::events::Note;

/// Edits that are kept, the newest.
const KEPT: usize = 20;
/// Parameters that are listed of one edit.
const LISTED: usize = 30;
/// Characters of a value or a reason that are kept.
const CHARS_MAX: usize = 200;
/// From when all brokers have a change to its measurement: a minute in which clients come back and caches fill, and the two minutes that
/// brokers tell of.
const IN_FORCE_FOR: SignedDuration = SignedDuration::from_secs(180);
/// How long brokers that tell nothing are asked.
const GIVEN_UP_AFTER: SignedDuration = SignedDuration::from_secs(900);

/// What the record goes by.
pub(crate) struct Situation<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) defaults: &'a Defaults,
    pub(crate) reports: &'a BTreeMap<i32, &'a BrokerStatus>,
    /// Brokers that there are, whether they report or not.
    pub(crate) brokers: usize,
    /// The spec is carried out: not refused, not paused.
    pub(crate) accepted: bool,
    /// Nothing had been left to do before this look.
    pub(crate) was_settled: bool,
    /// Since when nothing is left to do.
    pub(crate) settled_since: Option<Timestamp>,
    pub(crate) now: Timestamp,
}

/// The record as it is now.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Recorded {
    pub(crate) tuned: BTreeMap<String, String>,
    pub(crate) record: Vec<TuningChange>,
    pub(crate) notes: Vec<Note>,
    /// When to look again for the effect of a change.
    pub(crate) wake: Option<Duration>,
}

pub(crate) fn step(situation: &Situation) -> Recorded {
    let old = situation.cluster.status.clone().unwrap_or_default();
    let mut recorded = Recorded { tuned: old.tuned, record: old.tuning_record, ..Recorded::default() };
    if !situation.accepted {
        return recorded;
    }
    let now_tuned = parameters(situation.cluster, situation.defaults);
    let changes = changes(&recorded.tuned, &now_tuned);
    let is_first = recorded.tuned.is_empty();
    recorded.tuned = now_tuned;
    if changes.is_empty() || is_first {
        measure(&mut recorded, situation);
    } else {
        begin(&mut recorded, changes, situation);
    }
    recorded
}

/// A new edit. One before it whose effect is not known yet never will be.
fn begin(recorded: &mut Recorded, mut changes: Vec<ParameterChange>, situation: &Situation) {
    if let Some(last) = recorded.record.last_mut().filter(|last| last.effect.is_none()) {
        last.effect = Some("not measured: something else was changed before the effect could be seen".to_owned());
    }
    let more = changes.len().saturating_sub(LISTED);
    changes.truncate(LISTED);
    let reason = situation.cluster.annotations().get(TUNING_REASON_ANNOTATION).map(|reason| cut(reason));
    let change = TuningChange {
        time: Time(situation.now),
        reason: reason.filter(|reason| !reason.trim().is_empty()),
        changes,
        more: i32::try_from(more).ok().filter(|more| *more > 0),
        before: if situation.was_settled { together(situation) } else { None },
        after: None,
        effect: None,
    };
    recorded.notes.push(Note::normal(Reason::TuningChanged, what(&change)));
    recorded.wake = Some(IN_FORCE_FOR.unsigned_abs());
    recorded.record.push(change);
    let too_many = recorded.record.len().saturating_sub(KEPT);
    recorded.record.drain(..too_many);
}

/// The effect of the last edit, once it has been in force for long enough.
fn measure(recorded: &mut Recorded, situation: &Situation) {
    let Some(last) = recorded.record.last_mut().filter(|last| last.effect.is_none()) else { return };
    let Some(settled_since) = situation.settled_since else { return };
    let since = settled_since.max(last.time.0);
    let waited = situation.now.duration_since(since);
    if waited < IN_FORCE_FOR {
        recorded.wake = Some((IN_FORCE_FOR - waited).unsigned_abs());
        return;
    }
    match together(situation) {
        Some(after) => {
            last.effect = Some(effect(last.before.as_ref(), &after));
            last.after = Some(after);
        }
        None if waited < GIVEN_UP_AFTER => {
            recorded.wake = Some(Duration::from_secs(30));
            return;
        }
        None => last.effect = Some("not measured: not all brokers tell what clients do".to_owned()),
    }
    let text = format!("{}: {}", what(last), last.effect.as_deref().unwrap_or_default());
    recorded.notes.push(Note::normal(Reason::TuningMeasured, text));
}

/// What the spec says of everything that speed depends on, by its path.
fn parameters(cluster: &Cluster, defaults: &Defaults) -> BTreeMap<String, String> {
    let spec = &cluster.spec;
    let mut found = BTreeMap::new();
    let mut add = |path: &str, value: Value| flatten(path, &value, &mut found);
    let json = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
    add("replicas", spec.replicas.into());
    add("image", spec.image.clone().unwrap_or_else(|| defaults.broker_image.clone()).into());
    add("disks", spec.disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(",").into());
    add("threads", json(serde_json::to_value(build::threads(spec))));
    add("ulimits", json(serde_json::to_value(&spec.ulimits)));
    add("kernel", json(serde_json::to_value(&spec.kernel)));
    add("config", json(serde_json::to_value(&spec.config)));
    if let Some(resources) = &spec.resources {
        add("resources.requests", json(serde_json::to_value(&resources.requests)));
        add("resources.limits", json(serde_json::to_value(&resources.limits)));
    }
    found
}

fn flatten(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| flatten(&format!("{path}.{name}"), value, found));
        }
        Value::String(text) => drop(found.insert(path.to_owned(), text.clone())),
        other => drop(found.insert(path.to_owned(), other.to_string())),
    }
}

fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<ParameterChange> {
    let change = |name: &String| ParameterChange {
        parameter: name.clone(),
        from: before.get(name).map(|value| cut(value)),
        to: after.get(name).map(|value| cut(value)),
    };
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let differs = after.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(name, _)| name);
    gone.chain(differs).map(change).collect()
}

/// All brokers together; nothing if one does not tell.
fn together(situation: &Situation) -> Option<MeasuredLoad> {
    if situation.reports.len() < situation.brokers {
        return None;
    }
    let all: Option<Vec<LoadStatus>> = situation.reports.values().map(|status| status.load).collect();
    let all = all.filter(|all| !all.is_empty())?;
    let sum = |rate: fn(&LoadStatus) -> u64| i64::try_from(all.iter().map(rate).sum::<u64>()).unwrap_or(i64::MAX);
    Some(MeasuredLoad {
        seconds: all.iter().map(|load| load.seconds).min().and_then(|least| i64::try_from(least).ok())?,
        records_in_per_second: sum(|load| load.records_in_per_second),
        bytes_in_per_second: sum(|load| load.bytes_in_per_second),
        bytes_out_per_second: sum(|load| load.bytes_out_per_second),
        produce_p99_ms: all.iter().filter_map(|load| load.produce_p99_ms).reduce(f64::max),
    })
}

/// The edit in words.
fn what(change: &TuningChange) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
    let one = |c: &ParameterChange| format!("{} {} → {}", c.parameter, value(&c.from), value(&c.to));
    let more = change.more.map(|more| format!(", {more} more")).unwrap_or_default();
    let reason = change.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}{more}{reason}", change.changes.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn effect(before: Option<&MeasuredLoad>, after: &MeasuredLoad) -> String {
    let ms = |p99: Option<f64>| p99.map_or_else(|| "none".to_owned(), |ms| format!("{ms} ms"));
    let Some(before) = before else {
        return format!(
            "{} records and {} B in, {} B out a second, produce p99 {}; nothing was measured before",
            after.records_in_per_second,
            after.bytes_in_per_second,
            after.bytes_out_per_second,
            ms(after.produce_p99_ms)
        );
    };
    format!(
        "{} → {} records and {} → {} B in, {} → {} B out a second, produce p99 {} → {}",
        before.records_in_per_second,
        after.records_in_per_second,
        before.bytes_in_per_second,
        after.bytes_in_per_second,
        before.bytes_out_per_second,
        after.bytes_out_per_second,
        ms(before.produce_p99_ms),
        ms(after.produce_p99_ms)
    )
}

fn cut(text: &str) -> String {
    text.chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use forebay_crds::ClusterStatus;
    use serde_json::json;

    use super::*;

    const START: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(START + seconds).unwrap()
    }

    fn cluster(spec: &Value, reason: Option<&str>, status: Option<ClusterStatus>) -> Cluster {
        let annotations: BTreeMap<_, _> = reason.map(|reason| (TUNING_REASON_ANNOTATION, reason)).into_iter().collect();
        let mut object = json!({
            "apiVersion": "forebay.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "c", "namespace": "n", "annotations": annotations},
            "spec": {"replicas": 2, "disks": [{"name": "data", "size": "10Gi"}]},
        });
        spec.as_object().unwrap().iter().for_each(|(key, value)| object["spec"][key] = value.clone());
        Cluster { status, ..serde_json::from_value(object).unwrap() }
    }

    fn broker(records: u64, p99: f64) -> BrokerStatus {
        let load = LoadStatus {
            seconds: 120,
            records_in_per_second: records,
            bytes_in_per_second: records * 10,
            bytes_out_per_second: records * 20,
            produce_p99_ms: Some(p99),
        };
        BrokerStatus { load: Some(load), ..BrokerStatus::default() }
    }

    /// One look, at a cluster at rest but for what is said; what it records becomes the next one's status.
    struct Look<'a> {
        cluster: Cluster,
        brokers: &'a [BrokerStatus],
        was_settled: bool,
        settled_since: Option<Timestamp>,
        now: Timestamp,
    }

    impl Look<'_> {
        fn take(&self) -> Recorded {
            let defaults = Defaults { broker_image: "image:1".to_owned(), cluster_domain: String::new() };
            let reports = (0..).zip(self.brokers).collect();
            step(&Situation {
                cluster: &self.cluster,
                defaults: &defaults,
                reports: &reports,
                brokers: 2,
                accepted: true,
                was_settled: self.was_settled,
                settled_since: self.settled_since,
                now: self.now,
            })
        }
    }

    fn look<'a>(spec: &Value, before: &Recorded, brokers: &'a [BrokerStatus], seconds: i64) -> Look<'a> {
        let status = ClusterStatus {
            tuned: before.tuned.clone(),
            tuning_record: before.record.clone(),
            ..ClusterStatus::default()
        };
        Look {
            cluster: cluster(spec, Some("p99 above 10 ms"), Some(status)),
            brokers,
            was_settled: true,
            settled_since: Some(at(0)),
            now: at(seconds),
        }
    }

    #[test]
    fn a_changed_parameter_is_recorded_with_its_reason_and_what_was_measured_before_and_after() {
        let (slow, fast) = ([broker(100, 9.0), broker(50, 12.5)], [broker(150, 4.0), broker(150, 3.0)]);
        let first = look(&json!({"threads": {"io": 8}}), &Recorded::default(), &slow, 10).take();
        assert!(first.record.is_empty() && first.notes.is_empty(), "a Cluster's first spec is no change");
        let spec = json!({"threads": {"io": 16}, "config": {"log.flush.interval.ms": 20}});
        let begun = look(&spec, &first, &slow, 1_000).take();
        let [change] = begun.record.as_slice() else { panic!("{begun:?}") };
        let what = "config.log.flush.interval.ms unset → 20, threads.io 8 → 16 (p99 above 10 ms)";
        assert_eq!(begun.notes, [Note::normal(Reason::TuningChanged, what)]);
        let before = change.before.clone().unwrap();
        assert_eq!((before.records_in_per_second, before.produce_p99_ms), (150, Some(12.5)));

        // The roll ends at 1,100; the operator was another one meanwhile.
        let mut later = look(&spec, &begun, &fast, 1_100);
        (later.was_settled, later.settled_since) = (false, None);
        assert_eq!(later.take(), Recorded { notes: Vec::new(), wake: None, ..begun.clone_of() });
        (later.settled_since, later.now) = (Some(at(1_100)), at(1_270));
        assert_eq!(later.take().wake, Some(Duration::from_secs(10)));
        later.now = at(1_280);
        let done = later.take();
        let effect = "150 → 300 records and 1500 → 3000 B in, 3000 → 6000 B out a second, produce p99 12.5 ms → 4 ms";
        assert_eq!(done.notes, [Note::normal(Reason::TuningMeasured, format!("{what}: {effect}"))]);
        assert_eq!((done.record[0].effect.as_deref(), done.wake), (Some(effect), None));
        let after = look(&spec, &done, &slow, 5_000).take();
        assert_eq!(
            (after.record, after.notes, after.tuned),
            (done.record, Vec::new(), done.tuned),
            "nothing is written again"
        );
    }

    impl Recorded {
        fn clone_of(&self) -> Self {
            Self { tuned: self.tuned.clone(), record: self.record.clone(), notes: self.notes.clone(), wake: self.wake }
        }
    }

    #[test]
    fn the_record_is_bounded_and_an_edit_on_top_of_another_leaves_that_one_unmeasured() {
        let brokers = [broker(1, 1.0), broker(1, 1.0)];
        let mut recorded = look(&json!({}), &Recorded::default(), &brokers, 0).take();
        for n in 1..=30 {
            recorded = look(&json!({"threads": {"io": n}}), &recorded, &brokers, n).take();
        }
        assert_eq!(recorded.record.len(), KEPT);
        let (last, earlier) = recorded.record.split_last().unwrap();
        assert_eq!((last.changes[0].to.as_deref(), last.effect.as_deref()), (Some("30"), None));
        assert!(
            earlier.iter().all(|change| change.effect.as_deref().unwrap().starts_with("not measured: something else"))
        );
    }

    #[test]
    fn what_is_measured_while_brokers_are_restarted_or_one_is_silent_is_no_figure() {
        let brokers = [broker(1, 1.0), broker(1, 1.0)];
        let first = look(&json!({}), &Recorded::default(), &brokers, 0).take();
        let mut restarting = look(&json!({"threads": {"io": 1}}), &first, &brokers, 5);
        restarting.was_settled = false;
        assert_eq!(restarting.take().record[0].before, None);
        let begun = look(&json!({"threads": {"io": 1}}), &first, &brokers[..1], 5).take();
        assert_eq!(begun.record[0].before, None);
        let waiting = look(&json!({"threads": {"io": 1}}), &begun, &brokers[..1], 300).take();
        assert_eq!((waiting.record[0].effect.as_ref(), waiting.wake), (None, Some(Duration::from_secs(30))));
        let given_up = look(&json!({"threads": {"io": 1}}), &begun, &brokers[..1], 906).take();
        assert!(given_up.record[0].effect.as_deref().unwrap().starts_with("not measured: not all brokers"));
    }

    #[test]
    fn threads_that_follow_from_the_cpu_limit_are_told_with_it_and_long_values_are_cut() {
        let brokers = [broker(1, 1.0), broker(1, 1.0)];
        let limits = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu}}, "image": "i".repeat(300 + cpu.len())});
        let first = look(&limits("2"), &Recorded::default(), &brokers, 0).take();
        let changed = look(&limits("4.0"), &first, &brokers, 5).take();
        let names: Vec<&str> = changed.record[0].changes.iter().map(|change| change.parameter.as_str()).collect();
        assert_eq!(names, ["image", "resources.limits.cpu", "threads.io", "threads.network"]);
        assert_eq!(changed.record[0].changes[0].to.as_ref().unwrap().len(), CHARS_MAX);
    }
}
