//! How far a figure is from what this machine can do at all: decided from its name and its case, where one limit is known to bound it.
//!
//! What must hold: only what is written or sent as it is (not compressed) is compared with what carries bytes, and every copy counts.

use std::fmt::Write as _;

use super::samples::{Row, short};
use crate::limits::Limits;

/// What bounds a figure.
struct Bound {
    what: &'static str,
    /// The figure in the limit's unit, and the limit.
    figure: f64,
    limit: f64,
    unit: &'static str,
    /// The figure as a share of the limit; of a time, the limit as a share of it.
    share: f64,
}

fn bound(row: &Row, limits: &Limits) -> Option<Bound> {
    let figure = row.forebay?.median;
    let bytes = if row.case.starts_with("100 B") { 100.0 } else { 1024.0 };
    let (is_plain, flushes) =
        (!["lz4", "zstd"].iter().any(|codec| row.case.contains(codec)), row.case.contains("flush"));
    let rate = |what, limit: f64, copies: f64| {
        let figure = figure * bytes * copies / 1e6;
        Bound { what, figure, limit, unit: "MB/s", share: figure / limit }
    };
    match (row.metric, row.unit) {
        ("produced", "records/s") if row.case.starts_with("librdkafka") => {
            Some(rate("new pages of the page cache, three replicas", limits.page_cache, 3.0))
        }
        ("produced", "records/s") if row.case.starts_with("Java") => None,
        ("produced", "records/s") if is_plain && !flushes => {
            Some(rate("new pages of the page cache", limits.page_cache, 1.0))
        }
        ("produced", "records/s") if flushes => Some(rate("writing to the disk", limits.disk, 1.0)),
        ("consumed" | "only counted", "records/s") if is_plain => Some(rate("loopback TCP", limits.loopback, 1.0)),
        ("acknowledged, 99 %", "ms") if flushes => {
            let limit = limits.flush.as_secs_f64() * 1e3;
            Some(Bound { what: "fdatasync of 4 KiB, median", figure, limit, unit: "ms", share: limit / figure })
        }
        _ => None,
    }
}

/// What client and broker together take of all cores at the rate of `row`: near all of them, the client decides how many go through.
fn cores(row: &Row, rows: &[Row]) -> Option<Bound> {
    let median = |metric: String| {
        let same = rows.iter().find(|other| other.case == row.case && other.metric == metric)?;
        Some(same.forebay?.median)
    };
    let (rate, of) = (row.forebay?.median, row.metric);
    let broker = median(format!("broker CPU per record {of}"))?;
    let client = median(format!("the client's own CPU per record {of}"))?;
    let (figure, limit) = (rate * (broker + client) / 1e6, std::thread::available_parallelism().ok()?.get() as f64);
    Some(Bound { what: "cores, the client's included", figure, limit, unit: "cores", share: figure / limit })
}

/// A table of all that have a limit; empty when none has.
pub(super) fn markdown(rows: &[Row], limits: &Limits) -> String {
    let mut text = String::new();
    let bounds = rows.iter().flat_map(|row| [bound(row, limits), cores(row, rows)].map(|bound| (row, bound)));
    for (row, bound) in bounds {
        let Some(Bound { what, figure, limit, unit, share }) = bound else { continue };
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} {unit} | {what}: {} {unit} | {:.0} % |",
            row.case,
            row.metric,
            short(figure),
            short(limit),
            100.0 * share
        );
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "How far Forebay is from what bounds it on this machine (one thread each, when idle):\n\n| case | figure | Forebay | limit | share |\n|---|---|---|---|---|\n{text}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::samples::{Spread, Wanted};
    use super::*;

    fn row(case: &str, metric: &'static str, unit: &'static str, median: f64) -> Row {
        let forebay = Some(Spread { least: median, median, most: median });
        Row { case: case.to_owned(), metric, unit, forebay, kafka: None, wanted: Wanted::Nothing }
    }

    #[test]
    fn bytes_are_compared_with_what_carries_them_and_times_with_a_flush() {
        let limits = Limits {
            loopback: 4_000.0,
            memory: 8_000.0,
            page_cache: 2_048.0,
            disk: 1_600.0,
            flush: Duration::from_micros(500),
        };
        let rows = [
            row("1 KB, 64 KB/10 ms, none", "produced", "records/s", 1_000_000.0),
            row("1 KB, 64 KB/10 ms, lz4", "produced", "records/s", 1_000_000.0),
            row("100 B, 64 KB/10 ms, none", "only counted", "records/s", 10_000_000.0),
            row("librdkafka, 64 KB", "produced", "records/s", 200_000.0),
            row("flush.messages=1", "acknowledged, 99 %", "ms", 5.0),
            row("flush.messages=1 ÷ default", "produced", "×", 0.8),
        ];
        let table = markdown(&rows, &limits);
        let shares: Vec<&str> = table.lines().skip(4).filter_map(|line| line.rsplit(" | ").next()).collect();
        assert_eq!(shares, ["50 % |", "25 % |", "30 % |", "10 % |"], "{table}");
        assert_eq!(markdown(&rows[1..2], &limits), "");
        let client = row(&rows[1].case, "the client's own CPU per record produced", "µs", 0.4);
        let produced = row(&rows[1].case, "produced", "records/s", 1_000_000.0);
        let costs = [produced, row(&rows[1].case, "broker CPU per record produced", "µs", 0.1), client];
        assert!(markdown(&costs, &limits).contains("| 0.500 cores |"), "{}", markdown(&costs, &limits));
    }
}
