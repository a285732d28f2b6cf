//! Every metric of the operator: name, help and labels, in one place, because dashboards and alerts are written against them.
//!
//! What must hold: labels come from closed sets, and a Cluster's own namespace and name; a name once released keeps its
//! meaning.

use prometheus::Opts;

/// One metric as a scraper sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) labels: &'static [&'static str],
}

impl Metric {
    pub(crate) fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }
}

const fn metric(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, help, labels }
}

const KIND: &[&str] = &["kind"];

pub(crate) const RECONCILES: Metric = metric(
    "forebay_operator_reconciles_total",
    "Reconciles: changed wrote something to Kubernetes or brokers, unchanged wrote nothing, error ended early.",
    &["kind", "outcome"],
);
pub(crate) const DURATION: Metric =
    metric("forebay_operator_reconcile_duration_seconds", "Time a reconcile took, its wait in the queue aside.", KIND);
pub(crate) const LAST_SUCCESS: Metric =
    metric("forebay_operator_last_success_timestamp_seconds", "When a reconcile last succeeded.", KIND);
pub(crate) const QUEUE: Metric =
    metric("forebay_operator_queue_depth", "Objects that wait for their reconcile to begin.", KIND);
pub(crate) const RUNNING: Metric = metric("forebay_operator_reconciles_running", "Reconciles under way.", KIND);
pub(crate) const OBJECTS: Metric = metric("forebay_operator_objects", "Objects that are watched.", KIND);
pub(crate) const NOT_READY: Metric =
    metric("forebay_operator_objects_not_ready", "Objects whose condition Ready is not True, paused ones aside.", KIND);
pub(crate) const TUNING: Metric = metric(
    "forebay_operator_tuning_in_force",
    "1 when a Cluster's brokers run with what its spec wants, 0 when not.",
    &["namespace", "cluster"],
);
pub(crate) const WANTED: Metric = metric(
    "forebay_operator_brokers_wanted",
    "Brokers that a Cluster's spec wants; none for a Cluster that is being deleted.",
    &["namespace", "cluster"],
);
pub(crate) const SWEEPS: Metric = metric(
    "forebay_operator_topic_sweeps_total",
    "Looks at all topics of a Cluster, by how they ended: ok or error.",
    &["outcome"],
);
pub(crate) const DRIFTS: Metric = metric(
    "forebay_operator_topics_moved_total",
    "Topics that a look found otherwise than they were left, and that were reconciled for it.",
    &[],
);
pub(crate) const LEADER: Metric =
    metric("forebay_operator_leader", "1 when this operator acts, 0 when another one does.", &[]);
pub(crate) const BUILD: Metric = metric("forebay_operator_build_info", "1, with the version.", &["version"]);
pub(crate) const CPU: Metric = metric("process_cpu_seconds_total", "User and system CPU time spent in seconds.", &[]);
pub(crate) const RESIDENT: Metric = metric("process_resident_memory_bytes", "Resident memory size in bytes.", &[]);

/// All of them, in the order of the page.
#[cfg(test)]
const ALL: &[Metric] = &[
    RECONCILES,
    DURATION,
    LAST_SUCCESS,
    QUEUE,
    RUNNING,
    OBJECTS,
    NOT_READY,
    TUNING,
    WANTED,
    SWEEPS,
    DRIFTS,
    LEADER,
    BUILD,
    CPU,
    RESIDENT,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_is_fresh() {
        let mut page = String::from(
            "# Metrics of the operator\n\nGenerated from `operator/src/metrics/catalog.rs`; do not edit. \
             Served at `/metrics` of `--http-address`.\n\n| metric | labels | what it says |\n| --- | --- | --- |\n",
        );
        for metric in ALL {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            page.push_str(&format!("| `{}` | {} | {} |\n", metric.name, labels.join(", "), metric.help));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/operator-metrics.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == page, "{path} is stale: UPDATE=1 cargo test -p forebay-operator rewrites it");
    }

    #[test]
    fn what_is_served_is_what_is_in_the_catalogue() {
        let metrics = super::super::Metrics::new().unwrap();
        metrics.swept(true, 0);
        metrics.set_tuning_in_force(&[("n".into(), "c".into(), true)]);
        metrics.set_brokers_wanted(&[("n".into(), "c".into(), 3)]);
        metrics.reconciled(super::super::Kind::Topic, super::super::Outcome::Unchanged, std::time::Duration::ZERO, 1.0);
        let text = metrics.render();
        let served: std::collections::BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(served, ALL.iter().map(|metric| metric.name).collect());
    }
}
