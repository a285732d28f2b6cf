//! A page that needs nothing else: bars for figures of cases, curves for figures over a rate, the table, and how it was measured.

use std::fmt::Write;

use super::samples::{Row, short};

const FOREBAY: &str = "#0b7285";
const KAFKA: &str = "#adb5bd";
const WIDTH: f64 = 760.0;
const LABEL: f64 = 230.0;
const BAR: f64 = 12.0;
const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;max-width:60em;margin:2em auto;color:#212529}\
table{border-collapse:collapse;font-size:12px}td,th{border:1px solid #dee2e6;padding:3px 7px;text-align:left}\
svg{max-width:100%}pre{background:#f8f9fa;padding:8px;white-space:pre-wrap}h2{margin-top:1.6em}";

/// Text as HTML wants it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The whole page.
pub(crate) fn page(title: &str, how: &[String], rows: &[Row]) -> String {
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style><h1>{0}</h1>",
        escaped(title)
    );
    text += "<pre>";
    text += &how.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("\n");
    text += "</pre>";
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !metrics.contains(&(row.metric, row.unit)) {
            metrics.push((row.metric, row.unit));
        }
    }
    for (metric, unit) in metrics {
        let of: Vec<&Row> = rows.iter().filter(|row| row.metric == metric).collect();
        let rates: Option<Vec<f64>> = of.iter().map(|row| row.case.strip_suffix(" records/s")?.parse().ok()).collect();
        let picture = match rates {
            Some(rates) if rates.len() > 2 => curves(&of, &rates),
            _ => bars(&of),
        };
        // Writing to a string can't fail.
        let _ = write!(text, "<h2>{} ({})</h2>{picture}", escaped(metric), escaped(unit));
    }
    text += "<h2>All figures</h2><table><tr><th>case<th>figure<th>unit<th>Forebay: median (min–max)<th>Kafka<th>ratio<th>wanted</tr>";
    for row in rows {
        let shown =
            |spread: Option<super::samples::Spread>| spread.map_or_else(String::new, |spread| spread.to_string());
        let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        let (forebay, kafka, wanted) = (shown(row.forebay), shown(row.kafka), row.wanted.text());
        let _ = write!(text, "<tr><td>{}<td>{}<td>{}", escaped(&row.case), escaped(row.metric), escaped(row.unit));
        let _ = write!(text, "<td>{forebay}<td>{kafka}<td>{ratio}<td>{wanted}</tr>");
    }
    text + "</table></html>\n"
}

fn most(rows: &[&Row]) -> f64 {
    let all = rows.iter().flat_map(|row| [row.forebay, row.kafka]).flatten();
    all.map(|spread| spread.most).fold(f64::MIN_POSITIVE, f64::max)
}

/// Two bars for each case; thin lines show the least and the most.
fn bars(rows: &[&Row]) -> String {
    let scale = (WIDTH - LABEL - 90.0) / most(rows);
    let height = rows.len() as f64 * (2.0 * BAR + 10.0) + 10.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" font-size=\"11\">");
    for (number, row) in rows.iter().enumerate() {
        let top = number as f64 * (2.0 * BAR + 10.0) + 6.0;
        let _ = write!(svg, "<text x=\"0\" y=\"{}\">{}</text>", top + BAR + 4.0, escaped(&row.case));
        for (place, spread, color) in [(0.0, row.forebay, FOREBAY), (1.0, row.kafka, KAFKA)] {
            let Some(spread) = spread else { continue };
            let y = top + place * BAR;
            let (width, middle) = (spread.median * scale, y + BAR / 2.0);
            let (from, to, thick) = (LABEL + spread.least * scale, LABEL + spread.most * scale, BAR - 1.0);
            let _ = write!(
                svg,
                "<rect x=\"{LABEL}\" y=\"{y}\" width=\"{width:.1}\" height=\"{thick}\" fill=\"{color}\"/>\
                 <line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#000\" stroke-width=\"0.7\"/>",
            );
            let x = LABEL + spread.most * scale + 5.0;
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y + BAR - 2.0, short(spread.median));
        }
    }
    svg + "</svg>" + LEGEND
}

const LEGEND: &str =
    "<p><span style=\"color:#0b7285\">■</span> Forebay <span style=\"color:#adb5bd\">■</span> Apache Kafka</p>";

/// Medians over the rate, both axes logarithmic.
fn curves(rows: &[&Row], rates: &[f64]) -> String {
    let (height, left, bottom) = (260.0, 60.0, 30.0);
    let least = rows.iter().flat_map(|row| [row.forebay, row.kafka]).flatten().map(|spread| spread.median);
    let (low, high) = (least.fold(f64::INFINITY, f64::min).max(1e-3).log10(), most(rows).max(2e-3).log10());
    let (first, last) = (rates[0].log10(), rates[rates.len() - 1].log10());
    let x = |rate: f64| left + (rate.log10() - first) / (last - first).max(1e-9) * (WIDTH - left - 60.0);
    let y = |value: f64| 10.0 + (high - value.max(1e-3).log10()) / (high - low).max(1e-9) * (height - bottom - 20.0);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" font-size=\"11\">");
    for rate in rates {
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{}\">{rate}/s</text>", x(*rate) - 14.0, height - 8.0);
    }
    for (color, pick) in [(KAFKA, false), (FOREBAY, true)] {
        let spreads =
            rows.iter().zip(rates).filter_map(|(row, rate)| Some((*rate, if pick { row.forebay } else { row.kafka }?)));
        let points: Vec<_> = spreads.map(|(rate, spread)| (x(rate), y(spread.median), spread.median)).collect();
        let line: Vec<_> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{}\"/>",
            line.join(" ")
        );
        for (x, y, median) in points {
            let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 5.0, y - 4.0, short(median));
        }
    }
    svg + "</svg>" + LEGEND
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::samples::{Spread, Wanted};

    fn row(case: &str, forebay: f64) -> Row {
        let spread = |median| Some(Spread { least: median, median, most: median });
        let (metric, unit, wanted) = ("p99", "ms", Wanted::Nothing);
        Row { case: case.to_owned(), metric, unit, forebay: spread(forebay), kafka: spread(2.0), wanted }
    }

    #[test]
    fn cases_are_bars_and_rates_are_a_curve() {
        let bars = page("A & B", &[], &[row("1 KB <lz4>", 1.0)]);
        assert!(bars.contains("<rect") && !bars.contains("<polyline") && bars.contains("1 KB &lt;lz4&gt;"));
        let rates: Vec<_> = ["100", "1000", "10000"].map(|rate| row(&format!("{rate} records/s"), 1.0)).into();
        assert!(page("A", &[], &rates).contains("<polyline"));
    }
}
