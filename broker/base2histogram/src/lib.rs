//! The histograms of openraft's own statistics, in little memory.
//!
//! openraft keeps them whether anybody asks for them or not. The published crate of this name builds tables for sixteen resolutions when the
//! first histogram is made, 25 MiB in all, which was most of what an idle broker held. This one has what openraft uses of it and one
//! resolution: powers of two. What must hold: nothing is allocated by recording; a percentile is never below the value it stands for and
//! less than twice as large.

use std::fmt;
use std::marker::PhantomData;

/// One for 0, and one for each length in bits.
const BUCKETS: usize = 65;

/// How often values of each magnitude were recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: [u64; BUCKETS],
    slots: PhantomData<T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Histogram<T> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: [0; BUCKETS], slots: PhantomData }
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts the same value several times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        let bits = u64::BITS - value.leading_zeros();
        if let Some(count) = usize::try_from(bits).ok().and_then(|bits| self.counts.get_mut(bits)) {
            *count += times;
        }
    }

    /// How many were recorded.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The usual percentiles.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        let of = |thousandths| self.percentile(thousandths);
        PercentileStats {
            samples: self.total(),
            p0_1: of(1),
            p1: of(10),
            p5: of(50),
            p10: of(100),
            p50: of(500),
            p90: of(900),
            p99: of(990),
            p99_9: of(999),
        }
    }

    /// The largest value of the bucket in which so many thousandths of all are reached; 0 of nothing.
    fn percentile(&self, thousandths: u64) -> u64 {
        let total = u128::from(self.total());
        let mut below = 0;
        for (bits, count) in self.counts.iter().enumerate() {
            below += u128::from(*count);
            if *count > 0 && below * 1000 >= total * u128::from(thousandths) {
                let unused = u64::BITS.saturating_sub(u32::try_from(bits).unwrap_or(u64::BITS));
                return u64::MAX.checked_shr(unused).unwrap_or(0);
            }
        }
        0
    }
}

/// Percentiles of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PercentileStats {
    /// How many values were recorded.
    pub samples: u64,
    /// 0.1 % of them are not above this.
    pub p0_1: u64,
    /// 1 %.
    pub p1: u64,
    /// 5 %.
    pub p5: u64,
    /// 10 %.
    pub p10: u64,
    /// Half of them.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, p50, p99, p99_9, .. } = self;
        write!(f, "{samples} samples, 50 % ≤ {p50}, 99 % ≤ {p99}, 99.9 % ≤ {p99_9}")
    }
}

/// Several histograms as text, a line each.
#[derive(Debug, Clone)]
pub struct AsciiChart<T = ()> {
    series: Vec<(String, Histogram<T>)>,
}

impl<T> Default for AsciiChart<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> AsciiChart<T> {
    /// Without a histogram.
    #[must_use]
    pub fn new() -> Self {
        Self { series: Vec::new() }
    }

    /// With one more.
    #[must_use]
    pub fn add(mut self, name: &str, histogram: Histogram<T>) -> Self {
        self.series.push((name.to_owned(), histogram));
        self
    }
}

impl<T> fmt::Display for AsciiChart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.series.iter().try_for_each(|(name, histogram)| writeln!(f, "{name}: {}", histogram.percentile_stats()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_not_below_its_value_and_less_than_twice_as_large() {
        for value in [0, 1, 2, 3, 1000, 4095, 4096, u64::MAX / 2, u64::MAX] {
            let mut histogram = Histogram::<()>::new();
            histogram.record(value);
            let PercentileStats { samples, p0_1, p99_9, .. } = histogram.percentile_stats();
            assert_eq!((samples, p0_1), (1, p99_9));
            assert!(p99_9 >= value && p99_9 / 2 <= value, "{p99_9} for {value}");
        }
    }

    #[test]
    fn percentiles_divide_what_was_recorded() {
        let mut histogram = Histogram::<()>::new();
        assert_eq!(histogram.percentile_stats().p50, 0, "of nothing");
        histogram.record_n(5, 98);
        (0..2).for_each(|_| histogram.record(600));
        let stats = histogram.percentile_stats();
        assert_eq!((stats.samples, stats.p50, stats.p90, stats.p99), (100, 7, 7, 1023));
        let text = AsciiChart::new().add("stage", histogram).to_string();
        assert_eq!(text, "stage: 100 samples, 50 % ≤ 7, 99 % ≤ 1023, 99.9 % ≤ 1023\n");
    }
}
