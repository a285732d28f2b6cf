//! What was measured: one line of JSON for each run as it happens, a Markdown table of medians in the end.
//!
//! What must hold: nothing is left out; a row shows the median of all rounds between the least and the most, and the ratio of the medians.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::side::Make;

/// A figure, and what of it is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) wanted: Wanted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// Forebay ÷ Kafka: at most so much.
    AtMost(f64),
    /// Forebay ÷ Kafka: at least so much.
    AtLeast(f64),
    /// Forebay's own figure: at most so much.
    OwnAtMost(f64),
    /// Forebay's own figure: at least so much.
    OwnAtLeast(f64),
    Nothing,
}

impl Wanted {
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("ratio ≤ {most:.2}"),
            Self::AtLeast(least) => format!("ratio ≥ {least:.2}"),
            Self::OwnAtMost(most) => format!("≤ {most}"),
            Self::OwnAtLeast(least) => format!("≥ {least}"),
            Self::Nothing => String::new(),
        }
    }
}

/// One figure of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) scenario: &'static str,
    pub(crate) case: String,
    pub(crate) make: Make,
    pub(crate) round: u32,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    #[serde(skip)]
    pub(crate) wanted: Wanted,
}

/// A median between the extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of an even number the lower of the two in the middle; `None` of nothing.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        Some(Self { least, median: sorted[(sorted.len() - 1) / 2], most })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}–{})", short(self.median), short(self.least), short(self.most))
    }
}

/// Three digits that count.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A row of the table: one figure of one case, for both.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) forebay: Option<Spread>,
    pub(crate) kafka: Option<Spread>,
    pub(crate) wanted: Wanted,
}

impl Row {
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.forebay?.median / self.kafka?.median)
    }

    /// Whether it is as wanted; `None` when nothing is wanted, or the peer that it is compared with was not measured.
    pub(crate) fn kept(&self) -> Option<bool> {
        match self.wanted {
            Wanted::AtMost(most) => self.ratio().map(|ratio| ratio <= most),
            Wanted::AtLeast(least) => self.ratio().map(|ratio| ratio >= least),
            Wanted::OwnAtMost(most) => self.forebay.map(|forebay| forebay.median <= most),
            Wanted::OwnAtLeast(least) => self.forebay.map(|forebay| forebay.median >= least),
            Wanted::Nothing => None,
        }
    }
}

/// All samples of one scenario.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) scenario: &'static str,
    all: Vec<Sample>,
    lines: Option<PathBuf>,
}

impl Samples {
    /// `lines` is the file that takes every sample as it comes.
    pub(crate) fn new(scenario: &'static str, lines: Option<&Path>) -> Result<Self> {
        if let Some(path) = lines {
            std::fs::write(path, "").with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(Self { scenario, all: Vec::new(), lines: lines.map(Path::to_path_buf) })
    }

    pub(crate) fn add(&mut self, case: &str, make: Make, round: u32, metric: Metric, value: f64) -> Result<()> {
        let Metric { name, unit, wanted } = metric;
        let case = case.to_owned();
        let sample = Sample { scenario: self.scenario, case, make, round, metric: name, unit, value, wanted };
        eprintln!(
            "{:16} {make:7} round {round}  {:40} {} {unit}",
            self.scenario,
            format!("{}: {name}", sample.case),
            short(value)
        );
        if let Some(path) = &self.lines {
            let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
            writeln!(file, "{}", serde_json::to_string(&sample)?)?;
        }
        self.all.push(sample);
        Ok(())
    }

    /// In the order in which cases and figures first came.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for sample in &self.all {
            if rows.iter().any(|row| row.case == sample.case && row.metric == sample.metric) {
                continue;
            }
            let of = |make| {
                let same =
                    |other: &&Sample| other.case == sample.case && other.metric == sample.metric && other.make == make;
                Spread::of(self.all.iter().filter(same).map(|sample| sample.value))
            };
            let (case, forebay, kafka) = (sample.case.clone(), of(Make::Forebay), of(Make::Kafka));
            rows.push(Row { case, metric: sample.metric, unit: sample.unit, forebay, kafka, wanted: sample.wanted });
        }
        rows
    }

    pub(crate) fn passes(&self) -> bool {
        self.rows().iter().all(|row| row.kept() != Some(false))
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "| case | figure | unit | Forebay: median (min–max) | Kafka | ratio | wanted | |\n|---|---|---|---|---|---|---|---|\n",
        );
        let shown = |spread: Option<Spread>| spread.map_or_else(String::new, |spread| spread.to_string());
        for row in self.rows() {
            let verdict = match row.kept() {
                Some(true) => "pass",
                Some(false) => "FAIL",
                None => "",
            };
            // Writing to a string can't fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {verdict} |",
                row.case,
                row.metric,
                row.unit,
                shown(row.forebay),
                shown(row.kafka),
                row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.3}")),
                row.wanted.text(),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Metric = Metric { name: "cpu", unit: "µs", wanted: Wanted::AtMost(0.35) };

    #[test]
    fn a_row_has_both_medians_between_their_extremes_and_is_judged_by_their_ratio() {
        let mut samples = Samples::new("ladder", None).unwrap();
        for (round, value) in [(1, 3.0), (2, 1.0), (3, 2.0)] {
            samples.add("1 KB", Make::Forebay, round, CPU, value).unwrap();
            samples.add("1 KB", Make::Kafka, round, CPU, value * 4.0).unwrap();
        }
        let row = "| 1 KB | cpu | µs | 2.00 (1.00–3.00) | 8.00 (4.00–12.0) | 0.250 | ratio ≤ 0.35 | pass |";
        assert!(samples.markdown().contains(row), "{}", samples.markdown());
        assert!(samples.passes());
        samples.add("100 B", Make::Forebay, 1, CPU, 1.0).unwrap();
        assert!(samples.passes(), "no peer, no verdict");
        samples.add("100 B", Make::Kafka, 1, CPU, 2.0).unwrap();
        assert!(!samples.passes());
    }

    #[test]
    fn a_limit_of_forebays_own_needs_no_peer() {
        let start = Metric { name: "start", unit: "s", wanted: Wanted::OwnAtMost(3.0) };
        let mut samples = Samples::new("many", None).unwrap();
        samples.add("a", Make::Kafka, 1, start, 9.0).unwrap();
        assert!(samples.passes(), "it is not the peer's limit");
        samples.add("a", Make::Forebay, 1, start, 2.0).unwrap();
        assert!(samples.passes());
        samples.add("b", Make::Forebay, 1, start, 3.5).unwrap();
        assert!(!samples.passes());
    }
}
