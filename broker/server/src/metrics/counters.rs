//! What the broker counts as it works. Each hot path holds its own handles, so that counting is one atomic addition
//! without a lookup by label; what can be read off at a scrape is not counted here but in `scrape.rs`.

use std::sync::OnceLock;
use std::time::Duration;

use forebay_broker_wire::types::{ApiKey, ErrorCode};
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};

use super::catalog::{self, Metric};
use super::cluster::ClusterCounters;
use super::load::{Counted, Load};

/// From a quarter of a millisecond, where an append ends, to ten seconds, beyond every usual long poll.
const DURATION_BUCKETS_SECONDS: &[f64] =
    &[0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// API keys are small numbers; one beyond is not counted.
const API_KEYS: usize = 128;

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) connections_total: IntCounter,
    pub(crate) requests: Requests,
    pub(crate) cluster: ClusterCounters,
    pub(crate) load: Load,
    topics: TopicVecs,
    flush_duration: HistogramVec,
}

impl Metrics {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        Ok(Self {
            connections_total: counter(&registry, catalog::CONNECTIONS_TOTAL)?,
            requests: Requests::new(&registry)?,
            cluster: ClusterCounters::new(&registry)?,
            load: Load::default(),
            topics: TopicVecs {
                bytes_in: counters(&registry, catalog::TOPIC_BYTES_IN)?,
                bytes_out: counters(&registry, catalog::TOPIC_BYTES_OUT)?,
                messages_in: counters(&registry, catalog::TOPIC_MESSAGES_IN)?,
                cold_reads: counters(&registry, catalog::TOPIC_COLD_READS)?,
            },
            flush_duration: histograms(&registry, catalog::FLUSH_DURATION)?,
            registry,
        })
    }

    /// The counters of one topic; kept by its partitions.
    pub(crate) fn topic(&self, topic: &str) -> TopicMetrics {
        TopicMetrics {
            bytes_in: self.topics.bytes_in.with_label_values(&[topic]),
            bytes_out: self.topics.bytes_out.with_label_values(&[topic]),
            messages_in: self.topics.messages_in.with_label_values(&[topic]),
            cold_reads: self.topics.cold_reads.with_label_values(&[topic]),
        }
    }

    /// A deleted topic leaves no series behind.
    pub(crate) fn forget_topic(&self, topic: &str) {
        let TopicVecs { bytes_in, bytes_out, messages_in, cold_reads } = &self.topics;
        for vec in [bytes_in, bytes_out, messages_in, cold_reads] {
            // It is not there if the topic was never used.
            let _missing = vec.remove_label_values(&[topic]);
        }
    }

    /// All topics together, and produce requests by their time.
    pub(crate) fn counted(&self) -> Counted {
        Counted {
            records_in: total(&self.topics.messages_in),
            bytes_in: total(&self.topics.bytes_in),
            bytes_out: total(&self.topics.bytes_out),
            produce: self.requests.cumulative(ApiKey::Produce),
        }
    }

    pub(crate) fn flush_duration(&self, log_dir: &str) -> Histogram {
        self.flush_duration.with_label_values(&[log_dir])
    }
}

#[derive(Debug)]
struct TopicVecs {
    bytes_in: IntCounterVec,
    bytes_out: IntCounterVec,
    messages_in: IntCounterVec,
    cold_reads: IntCounterVec,
}

#[derive(Debug, Clone)]
pub(crate) struct TopicMetrics {
    pub(crate) bytes_in: IntCounter,
    pub(crate) bytes_out: IntCounter,
    pub(crate) messages_in: IntCounter,
    pub(crate) cold_reads: IntCounter,
}

/// Requests by API: series appear when an API is first used.
#[derive(Debug)]
pub(crate) struct Requests {
    total: IntCounterVec,
    duration: HistogramVec,
    errors: IntCounterVec,
    by_api: Vec<OnceLock<(IntCounter, Histogram)>>,
}

impl Requests {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            total: counters(registry, catalog::REQUESTS)?,
            duration: histograms(registry, catalog::REQUEST_DURATION)?,
            errors: counters(registry, catalog::REQUEST_ERRORS)?,
            by_api: (0..API_KEYS).map(|_| OnceLock::new()).collect(),
        })
    }

    pub(crate) fn observe(&self, api_key: ApiKey, duration: Duration) {
        let Some(cell) = usize::try_from(api_key.as_i16()).ok().and_then(|key| self.by_api.get(key)) else { return };
        let (total, histogram) = cell.get_or_init(|| {
            let api = [api_key.name()];
            (self.total.with_label_values(&api), self.duration.with_label_values(&api))
        });
        total.inc();
        histogram.observe(duration.as_secs_f64());
    }

    /// Requests answered within so many seconds, the last bound infinite; empty when there were none.
    fn cumulative(&self, api_key: ApiKey) -> Vec<(f64, u64)> {
        let cell = usize::try_from(api_key.as_i16()).ok().and_then(|key| self.by_api.get(key));
        let Some((_, histogram)) = cell.and_then(OnceLock::get) else { return Vec::new() };
        let families = histogram.collect();
        let found = families.iter().flat_map(|family| family.get_metric()).map(|metric| metric.get_histogram());
        let buckets = found.flat_map(|histogram| {
            let finite = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
            finite.chain([(f64::INFINITY, histogram.get_sample_count())]).collect::<Vec<_>>()
        });
        buckets.collect()
    }

    pub(crate) fn error(&self, api_key: ApiKey, error: ErrorCode) {
        self.errors.with_label_values(&[api_key.name(), error.name()]).inc();
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "these are whole numbers from 0 on, which the library hands out as floats"
)]
fn total(counters: &IntCounterVec) -> u64 {
    let families = counters.collect();
    let values = families.iter().flat_map(|family| family.get_metric()).map(|metric| metric.get_counter().get_value());
    values.map(|value| value as u64).sum()
}

fn opts(metric: Metric) -> Opts {
    Opts::new(metric.name, metric.help)
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// One without labels.
pub(super) fn counter(registry: &Registry, metric: Metric) -> prometheus::Result<IntCounter> {
    register(registry, IntCounter::with_opts(opts(metric))?)
}

fn counters(registry: &Registry, metric: Metric) -> prometheus::Result<IntCounterVec> {
    register(registry, IntCounterVec::new(opts(metric), metric.labels)?)
}

fn histograms(registry: &Registry, metric: Metric) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::new(metric.name, metric.help).buckets(DURATION_BUCKETS_SECONDS.to_vec());
    register(registry, HistogramVec::new(opts, metric.labels)?)
}
