//! The operator's metrics: every name in one place, every label from a closed set (and a Cluster's own name).

use std::time::Duration;

use prometheus::{
    CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, TextEncoder, exponential_buckets,
};

/// The kinds that are reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Cluster,
    Topic,
    ConsumerProfile,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Cluster, Self::Topic, Self::ConsumerProfile];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Topic => "Topic",
            Self::ConsumerProfile => "ConsumerProfile",
        }
    }
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Changed,
    Unchanged,
    Error,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Error];

    fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Error => "error",
        }
    }
}

/// What is counted as it happens, and what is set at each scrape.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: CounterVec,
    duration: HistogramVec,
    last_success: GaugeVec,
    objects: GaugeVec,
    tuning_in_force: GaugeVec,
    leader: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(format!("forebay_operator_{name}"), help);
        let seconds = exponential_buckets(0.001, 2.0, 14)?;
        let duration =
            HistogramOpts::from(opts("reconcile_duration_seconds", "Time a reconcile took.")).buckets(seconds);
        let build = GaugeVec::new(opts("build_info", "1, with the version."), &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        let metrics = Self {
            registry: Registry::new(),
            reconciles: CounterVec::new(opts("reconciles_total", "Reconciles by outcome."), &["kind", "outcome"])?,
            duration: HistogramVec::new(duration, &["kind"])?,
            last_success: GaugeVec::new(
                opts("last_success_timestamp_seconds", "When a reconcile last succeeded."),
                &["kind"],
            )?,
            objects: GaugeVec::new(opts("objects", "Objects that are watched."), &["kind"])?,
            tuning_in_force: GaugeVec::new(
                opts("tuning_in_force", "1 when a Cluster's brokers run with what its spec wants, 0 when not."),
                &["namespace", "cluster"],
            )?,
            leader: Gauge::with_opts(opts("leader", "1 when this operator acts, 0 when another one does."))?,
        };
        metrics.registry.register(Box::new(build))?;
        metrics.register()?;
        for kind in Kind::ALL.map(Kind::as_str) {
            for outcome in Outcome::ALL {
                metrics.reconciles.with_label_values(&[kind, outcome.as_str()]);
            }
            metrics.objects.with_label_values(&[kind]).set(0.0);
            metrics.duration.with_label_values(&[kind]);
        }
        Ok(metrics)
    }

    fn register(&self) -> Result<(), prometheus::Error> {
        self.registry.register(Box::new(self.reconciles.clone()))?;
        self.registry.register(Box::new(self.duration.clone()))?;
        self.registry.register(Box::new(self.last_success.clone()))?;
        self.registry.register(Box::new(self.objects.clone()))?;
        self.registry.register(Box::new(self.tuning_in_force.clone()))?;
        self.registry.register(Box::new(self.leader.clone()))
    }

    pub(crate) fn reconciled(&self, kind: Kind, outcome: Outcome, took: Duration, now_seconds: f64) {
        self.reconciles.with_label_values(&[kind.as_str(), outcome.as_str()]).inc();
        self.duration.with_label_values(&[kind.as_str()]).observe(took.as_secs_f64());
        if outcome != Outcome::Error {
            self.last_success.with_label_values(&[kind.as_str()]).set(now_seconds);
        }
    }

    pub(crate) fn set_objects(&self, kind: Kind, count: u32) {
        self.objects.with_label_values(&[kind.as_str()]).set(f64::from(count));
    }

    /// Replaces all series, so that a Cluster that is gone leaves none.
    pub(crate) fn set_tuning_in_force(&self, clusters: &[(String, String, bool)]) {
        self.tuning_in_force.reset();
        for (namespace, name, holds) in clusters {
            self.tuning_in_force.with_label_values(&[namespace, name]).set(f64::from(u8::from(*holds)));
        }
    }

    pub(crate) fn set_leader(&self, leads: bool) {
        self.leader.set(f64::from(u8::from(leads)));
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_of_every_kind_is_there_before_the_first_reconcile() {
        let metrics = Metrics::new().unwrap();
        let text = metrics.render();
        for kind in Kind::ALL.map(Kind::as_str) {
            for outcome in ["changed", "unchanged", "error"] {
                let series = format!("forebay_operator_reconciles_total{{kind=\"{kind}\",outcome=\"{outcome}\"}} 0\n");
                assert!(text.contains(&series), "{series} is not in {text}");
            }
            assert!(text.contains(&format!("forebay_operator_objects{{kind=\"{kind}\"}} 0\n")));
        }
    }

    #[test]
    fn a_cluster_that_is_gone_leaves_no_series() {
        let metrics = Metrics::new().unwrap();
        metrics.set_tuning_in_force(&[("n".into(), "c".into(), false)]);
        assert!(metrics.render().contains("forebay_operator_tuning_in_force{cluster=\"c\",namespace=\"n\"} 0\n"));
        metrics.set_tuning_in_force(&[]);
        assert!(!metrics.render().contains("tuning_in_force{"));
    }
}
