//! What clients have done of late: throughput and the tail of produce times over the last minutes, for those who compare before and
//! after a change (`/status`, `load`).
//!
//! What must hold: a bounded number of samples, taken at a steady pace whoever asks; a rate is between two samples of this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_config::status::LoadStatus;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::process::as_float;
use crate::broker::Broker;

const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// Two minutes: long enough for a percentile, short enough for somebody who waits for the effect of a change.
const SAMPLES_KEPT: usize = 13;

/// Counters at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Produce requests answered within so many seconds, by the histogram's bounds.
    pub(crate) produce: Vec<(f64, u64)>,
}

/// The samples of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct Load(Mutex<VecDeque<(Instant, Counted)>>);

impl Load {
    fn take(&self, now: Instant, counted: Counted) {
        let mut samples = self.0.lock();
        if samples.len() == SAMPLES_KEPT {
            samples.pop_front();
        }
        samples.push_back((now, counted));
    }

    /// Over all that is kept; nothing before the second sample.
    pub(crate) fn recent(&self) -> Option<LoadStatus> {
        let samples = self.0.lock();
        let ((begin, before), (end, after)) = (samples.front()?, samples.back()?);
        let seconds = end.duration_since(*begin).as_secs();
        (seconds > 0).then(|| between(before, after, seconds))
    }
}

/// Takes samples until shutdown.
pub(crate) async fn run(broker: Arc<Broker>) {
    let mut ticks = interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            now = ticks.tick() => broker.metrics.load.take(now, broker.metrics.counted()),
            () = broker.shutdown.cancelled() => return,
        }
    }
}

fn between(before: &Counted, after: &Counted, seconds: u64) -> LoadStatus {
    // A topic that was deleted takes its count with it.
    let rate = |before: u64, after: u64| after.saturating_sub(before) / seconds;
    let counts = |found: &Counted, bound: f64| found.produce.iter().find(|(at, _)| *at == bound).map_or(0, |(_, n)| *n);
    let since: Vec<(f64, u64)> =
        after.produce.iter().map(|(bound, count)| (*bound, count.saturating_sub(counts(before, *bound)))).collect();
    LoadStatus {
        seconds,
        records_in_per_second: rate(before.records_in, after.records_in),
        bytes_in_per_second: rate(before.bytes_in, after.bytes_in),
        bytes_out_per_second: rate(before.bytes_out, after.bytes_out),
        produce_p99_ms: quantile(&since, 0.99).map(|seconds| (seconds * 100_000.0).round() / 100.0),
    }
}

/// The quantile in seconds of cumulative counts, straight within a bucket, as Prometheus' `histogram_quantile` has it; the last finite
/// bound if it lies beyond that.
fn quantile(cumulative: &[(f64, u64)], quantile: f64) -> Option<f64> {
    let all = cumulative.last().map(|(_, count)| *count).filter(|count| *count > 0)?;
    let rank = quantile * as_float(all);
    let (mut lower, mut below) = (0.0, 0);
    for (bound, count) in cumulative {
        if as_float(*count) >= rank {
            let share = (rank - as_float(below)) / as_float((count - below).max(1));
            return Some(if bound.is_finite() { lower + (bound - lower) * share } else { lower });
        }
        (lower, below) = (*bound, *count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(number: u64) -> Counted {
        let produce =
            vec![(0.001, number * 90), (0.005, number * 98), (0.01, number * 100), (f64::INFINITY, number * 100)];
        Counted { records_in: number * 1_000, bytes_in: number * 50_000, bytes_out: number * 20_000, produce }
    }

    #[test]
    fn rates_and_the_tail_are_those_between_the_oldest_and_the_newest_sample() {
        let (load, start) = (Load::default(), Instant::now());
        assert_eq!(load.recent(), None);
        (0..20).for_each(|n| load.take(start + SAMPLE_EVERY * n, counted(u64::from(n))));
        let expected = LoadStatus {
            seconds: 120,
            records_in_per_second: 100,
            bytes_in_per_second: 5_000,
            bytes_out_per_second: 2_000,
            produce_p99_ms: Some(7.5),
        };
        assert_eq!(load.recent(), Some(expected));
    }

    #[test]
    fn nobody_who_produces_has_no_tail_and_a_deleted_topic_gives_no_rate_below_zero() {
        let idle = between(&counted(5), &counted(5), 10);
        assert_eq!((idle.produce_p99_ms, idle.bytes_in_per_second), (None, 0));
        assert_eq!(between(&counted(5), &counted(4), 10).records_in_per_second, 0);
    }

    #[test]
    fn a_tail_beyond_the_last_bound_is_that_bound() {
        assert_eq!(quantile(&[(0.5, 1), (f64::INFINITY, 100)], 0.99), Some(0.5));
        assert_eq!(quantile(&[(0.5, 100), (f64::INFINITY, 100)], 0.5), Some(0.25));
    }
}
