//! A dashboard as one SVG picture: each panel in its place in the grid.
//!
//! Pure: what was asked in, text out.

use std::fmt::Write;

use super::panel;
use super::{Dashboard, Kind, Place, Series};
use crate::prometheus::Range;

/// Of one column and one row of the grid, in pixels.
const COLUMN: f64 = 60.0;
const ROW: f64 = 32.0;
const COLUMNS: f64 = 24.0;
/// Around each panel.
const GAP: f64 = 4.0;
/// Above the panels, for the dashboard's title.
const HEAD: f64 = 48.0;

/// A rectangle of the picture, in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    fn of(place: Place) -> Self {
        Self {
            x: f64::from(place.x) * COLUMN + GAP,
            y: f64::from(place.y) * ROW + GAP + HEAD,
            width: f64::from(place.width) * COLUMN - 2.0 * GAP,
            height: f64::from(place.height) * ROW - 2.0 * GAP,
        }
    }

    pub(super) fn inside(self, left: f64, top: f64, right: f64, bottom: f64) -> Self {
        Self {
            x: self.x + left,
            y: self.y + top,
            width: (self.width - left - right).max(0.0),
            height: (self.height - top - bottom).max(0.0),
        }
    }
}

/// The picture. `series` has a list for each panel, in their order.
pub fn draw(dashboard: &Dashboard, series: &[Vec<Series>], range: Range) -> String {
    let rows = dashboard.panels.iter().map(|panel| panel.place.y + panel.place.height).max().unwrap_or(0);
    let (width, height) = (COLUMNS * COLUMN, f64::from(rows) * ROW + HEAD + GAP);
    let mut picture = Picture(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"Inter, Helvetica, Arial, sans-serif\" \
         font-size=\"11\" fill=\"#24292f\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#f4f5f5\"/>\n"
    ));
    let (from, to) = (clock(range.start), clock(range.end));
    picture.text(2.0 * GAP, 31.0, "font-size=\"20\" font-weight=\"600\"", &dashboard.title);
    let times = format!("{from} to {to} UTC");
    picture.text(width - 2.0 * GAP, 31.0, "font-size=\"13\" text-anchor=\"end\" fill=\"#57606a\"", &times);
    for (panel, series) in dashboard.panels.iter().zip(series) {
        let area = Area::of(panel.place);
        if panel.kind == Kind::Row {
            picture.text(area.x + 4.0, area.y + 17.0, "font-size=\"14\" font-weight=\"600\"", &panel.title);
            continue;
        }
        picture.rectangle(area, "fill=\"#ffffff\" stroke=\"#d8dee4\" rx=\"2\"");
        picture.text(area.x + 8.0, area.y + 17.0, "font-size=\"12\" font-weight=\"600\"", &panel.title);
        let inner = area.inside(8.0, 24.0, 8.0, 6.0);
        match panel.kind {
            Kind::Row => {}
            Kind::Stat => panel::stat(&mut picture, panel, series, inner, range),
            Kind::Timeseries => panel::timeseries(&mut picture, panel, series, inner, range),
            Kind::Table => panel::table(&mut picture, panel, series, inner),
        }
    }
    picture.0.push_str("</svg>\n");
    picture.0
}

/// Hours and minutes.
pub(super) fn clock(seconds: f64) -> String {
    let minutes = (seconds / 60.0).floor().rem_euclid(1440.0);
    format!("{:02.0}:{:02.0}", (minutes / 60.0).floor(), minutes.rem_euclid(60.0))
}

/// The text of an SVG as it grows. Writing to a string can't fail.
#[derive(Debug)]
pub(super) struct Picture(String);

impl Picture {
    pub(super) fn text(&mut self, x: f64, y: f64, style: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(self.0, "<text x=\"{x:.0}\" y=\"{y:.0}\" {style}>{text}</text>");
    }

    pub(super) fn rectangle(&mut self, area: Area, style: &str) {
        let Area { x, y, width, height } = area;
        let _ =
            writeln!(self.0, "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" {style}/>");
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        let _ = writeln!(self.0, "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" {style}/>", from.0, from.1, to.0, to.1);
    }

    /// Points joined to a line, or to an area down to `floor`.
    pub(super) fn path(&mut self, points: &[(f64, f64)], floor: Option<f64>, style: &str) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        }
        if let Some(floor) = floor {
            let _ = write!(path, "L{:.1} {floor:.1}L{:.1} {floor:.1}Z", last.0, first.0);
        }
        let _ = writeln!(self.0, "<path d=\"{path}\" {style}/>");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Panel, Unit};
    use super::*;
    use serde_json::json;

    fn panel(kind: Kind, x: u32) -> Panel {
        Panel {
            title: format!("Lag > {x}"),
            kind,
            place: Place { x, y: 0, width: 8, height: 8 },
            unit: Unit::Short,
            steps: vec![(f64::NEG_INFINITY, "green".to_owned()), (10.0, "red".to_owned())],
            targets: Vec::new(),
        }
    }

    fn series(points: &[(f64, f64)]) -> Vec<Series> {
        vec![Series { name: "g & h".to_owned(), labels: json!({"pod": "p"}), points: points.to_vec() }]
    }

    #[test]
    fn every_panel_is_drawn_in_its_place_and_names_are_escaped() {
        let panels = vec![panel(Kind::Stat, 0), panel(Kind::Timeseries, 8), panel(Kind::Table, 16)];
        let dashboard = Dashboard { name: "d".to_owned(), title: "D".to_owned(), panels };
        let range = Range { start: 36_000.0, end: 36_060.0, step: 10.0 };
        let points = [(36_000.0, 1.0), (36_010.0, 2.0), (36_020.0, 12.0)];
        let picture = draw(&dashboard, &[series(&points), series(&points), series(&points)], range);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("x=\"4\" y=\"52\" width=\"472\" height=\"248\""), "{picture}");
        assert!(picture.contains("x=\"484\" y=\"52\""), "{picture}");
        assert_eq!(picture.matches("Lag &gt; ").count(), 3);
        assert!(picture.contains("g &amp; h") && !picture.contains("g & h"));
        assert!(picture.contains("10:00 to 10:01 UTC"));
        assert!(picture.contains(panel::RED), "the last value is over its threshold: {picture}");
    }

    #[test]
    fn a_panel_without_series_says_so() {
        let dashboard =
            Dashboard { name: "d".to_owned(), title: "D".to_owned(), panels: vec![panel(Kind::Timeseries, 0)] };
        let picture = draw(&dashboard, &[Vec::new()], Range { start: 0.0, end: 60.0, step: 10.0 });
        assert!(picture.contains("No data"), "{picture}");
    }
}
