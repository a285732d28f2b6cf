//! The operator's metrics. Their names are in `catalog`.

mod catalog;
mod process;

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, Registry, TextEncoder, exponential_buckets,
};

use self::catalog::Metric;

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

/// How a look at all topics of a Cluster ended.
const SWEEP_OUTCOMES: [&str; 2] = ["ok", "error"];

/// One more in a gauge, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What is counted as it happens, and what is set at each scrape.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: CounterVec,
    duration: HistogramVec,
    last_success: GaugeVec,
    queue: GaugeVec,
    running: GaugeVec,
    objects: GaugeVec,
    not_ready: GaugeVec,
    tuning_in_force: GaugeVec,
    brokers_wanted: GaugeVec,
    sweeps: CounterVec,
    drifts: Counter,
    leader: Gauge,
    cpu: Counter,
    resident: Gauge,
}

fn gauges(metric: &Metric) -> Result<GaugeVec, prometheus::Error> {
    GaugeVec::new(metric.opts(), metric.labels)
}

fn counters(metric: &Metric) -> Result<CounterVec, prometheus::Error> {
    CounterVec::new(metric.opts(), metric.labels)
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let seconds = exponential_buckets(0.001, 2.0, 14)?;
        let duration = HistogramOpts::from(catalog::DURATION.opts()).buckets(seconds);
        let build = gauges(&catalog::BUILD)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        let metrics = Self {
            registry: Registry::new(),
            reconciles: counters(&catalog::RECONCILES)?,
            duration: HistogramVec::new(duration, catalog::DURATION.labels)?,
            last_success: gauges(&catalog::LAST_SUCCESS)?,
            queue: gauges(&catalog::QUEUE)?,
            running: gauges(&catalog::RUNNING)?,
            objects: gauges(&catalog::OBJECTS)?,
            not_ready: gauges(&catalog::NOT_READY)?,
            tuning_in_force: gauges(&catalog::TUNING)?,
            brokers_wanted: gauges(&catalog::WANTED)?,
            sweeps: counters(&catalog::SWEEPS)?,
            drifts: Counter::with_opts(catalog::DRIFTS.opts())?,
            leader: Gauge::with_opts(catalog::LEADER.opts())?,
            cpu: Counter::with_opts(catalog::CPU.opts())?,
            resident: Gauge::with_opts(catalog::RESIDENT.opts())?,
        };
        metrics.registry.register(Box::new(build))?;
        metrics.register()?;
        for kind in Kind::ALL.map(Kind::as_str) {
            for outcome in Outcome::ALL {
                metrics.reconciles.with_label_values(&[kind, outcome.as_str()]);
            }
            for gauge in [&metrics.objects, &metrics.not_ready, &metrics.queue, &metrics.running] {
                gauge.with_label_values(&[kind]).set(0.0);
            }
            metrics.duration.with_label_values(&[kind]);
        }
        for outcome in SWEEP_OUTCOMES {
            metrics.sweeps.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    fn register(&self) -> Result<(), prometheus::Error> {
        let all: [Box<dyn Collector>; 14] = [
            Box::new(self.reconciles.clone()),
            Box::new(self.duration.clone()),
            Box::new(self.last_success.clone()),
            Box::new(self.queue.clone()),
            Box::new(self.running.clone()),
            Box::new(self.objects.clone()),
            Box::new(self.not_ready.clone()),
            Box::new(self.tuning_in_force.clone()),
            Box::new(self.brokers_wanted.clone()),
            Box::new(self.sweeps.clone()),
            Box::new(self.drifts.clone()),
            Box::new(self.leader.clone()),
            Box::new(self.cpu.clone()),
            Box::new(self.resident.clone()),
        ];
        all.into_iter().try_for_each(|collector| self.registry.register(collector))
    }

    /// Counts an object as waiting for its reconcile, as long as what is returned lives.
    pub(crate) fn queued(&self, kind: Kind) -> Counted {
        Counted::new(self.queue.with_label_values(&[kind.as_str()]))
    }

    /// Counts a reconcile as under way, as long as what is returned lives.
    pub(crate) fn running(&self, kind: Kind) -> Counted {
        Counted::new(self.running.with_label_values(&[kind.as_str()]))
    }

    /// Counts a look at all topics of a Cluster that found so many otherwise than they were.
    pub(crate) fn swept(&self, succeeded: bool, moved: u32) {
        let [ok, error] = SWEEP_OUTCOMES;
        self.sweeps.with_label_values(&[if succeeded { ok } else { error }]).inc();
        self.drifts.inc_by(f64::from(moved));
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

    pub(crate) fn set_not_ready(&self, kind: Kind, count: u32) {
        self.not_ready.with_label_values(&[kind.as_str()]).set(f64::from(count));
    }

    /// Replaces all series, so that a Cluster that is gone leaves none.
    pub(crate) fn set_tuning_in_force(&self, clusters: &[(String, String, bool)]) {
        self.tuning_in_force.reset();
        for (namespace, name, holds) in clusters {
            self.tuning_in_force.with_label_values(&[namespace, name]).set(f64::from(u8::from(*holds)));
        }
    }

    /// Replaces all series, as above.
    pub(crate) fn set_brokers_wanted(&self, clusters: &[(String, String, i32)]) {
        self.brokers_wanted.reset();
        for (namespace, name, count) in clusters {
            self.brokers_wanted.with_label_values(&[namespace, name]).set(f64::from(*count));
        }
    }

    pub(crate) fn set_leader(&self, leads: bool) {
        self.leader.set(f64::from(u8::from(leads)));
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self) -> String {
        if let Some((cpu_seconds, resident_bytes)) = process::read() {
            self.cpu.inc_by((cpu_seconds - self.cpu.get()).max(0.0));
            self.resident.set(resident_bytes);
        }
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
        metrics.set_brokers_wanted(&[("n".into(), "c".into(), 3)]);
        assert!(metrics.render().contains("forebay_operator_brokers_wanted{cluster=\"c\",namespace=\"n\"} 3\n"));
        metrics.set_brokers_wanted(&[]);
        assert!(!metrics.render().contains("brokers_wanted{"));
    }
}
