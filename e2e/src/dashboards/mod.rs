//! The chart's Grafana dashboards as data: panels, where they are, what they ask. Asked of a Prometheus, they can be checked and drawn.

mod draw;
mod panel;
mod unit;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

pub use draw::draw;
pub use unit::Unit;

use crate::prometheus::{Prometheus, Range};

/// A dashboard.
#[derive(Debug, Clone, PartialEq)]
pub struct Dashboard {
    /// The file's name without its ending.
    pub name: String,
    /// What people see above it.
    pub title: String,
    /// In the order of the file.
    pub panels: Vec<Panel>,
}

/// A panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What people see above it.
    pub title: String,
    /// How it shows what it asks.
    pub kind: Kind,
    /// Where it is, in Grafana's grid: 24 columns.
    pub place: Place,
    /// Of all its values.
    pub unit: Unit,
    /// From which value on a figure has which colour, the lowest first.
    pub steps: Vec<(f64, String)>,
    /// What it asks.
    pub targets: Vec<Target>,
}

/// How a panel shows what it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The headline of those below it.
    Row,
    /// One figure.
    Stat,
    /// Lines over time.
    Timeseries,
    /// Values of the moment.
    Table,
}

/// A place in the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Columns from the left.
    pub x: u32,
    /// Rows from the top.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// A query.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// In Prometheus' language, with the dashboard's variables in it.
    pub expression: String,
    /// What each series is called, labels in double braces.
    pub legend: String,
}

/// A series as it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its labels.
    pub labels: Value,
    /// Seconds since 1970 and values, in order.
    pub points: Vec<(f64, f64)>,
}

impl Dashboard {
    /// All dashboards of the chart, by name.
    ///
    /// # Errors
    /// When a file is not a dashboard as Grafana has them.
    pub fn all() -> Result<Vec<Self>> {
        let folder = crate::root().join("charts/forebay/dashboards");
        let files = std::fs::read_dir(&folder).with_context(|| format!("can't list {}", folder.display()))?;
        let paths: Result<Vec<_>, _> = files.map(|file| Ok::<_, std::io::Error>(file?.path())).collect();
        let mut all = paths?.iter().map(|path| Self::read(path)).collect::<Result<Vec<_>>>()?;
        all.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(all)
    }

    fn read(path: &Path) -> Result<Self> {
        let value: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self::parse(name, &value).with_context(|| path.display().to_string())
    }

    fn parse(name: String, value: &Value) -> Result<Self> {
        let panels = value["panels"].as_array().context("it has no panels")?;
        let panels = panels.iter().map(Panel::parse).collect::<Result<Vec<_>>>()?;
        Ok(Self { name, title: value["title"].as_str().context("it has no title")?.to_owned(), panels })
    }

    /// The same with variables filled in, those of Grafana itself among them.
    #[must_use]
    pub fn filled(mut self, variables: &[(&str, &str)]) -> Self {
        for target in self.panels.iter_mut().flat_map(|panel| &mut panel.targets) {
            for (name, value) in variables {
                target.expression = target.expression.replace(&format!("${name}"), value);
            }
        }
        self
    }

    /// What the panels show over a time: a list of series for each, in the order of the panels.
    ///
    /// # Errors
    /// When a query is refused; a variable that was not filled in is an error too.
    pub async fn ask(&self, prometheus: &Prometheus, range: Range) -> Result<Vec<Vec<Series>>> {
        let mut all = Vec::new();
        for panel in &self.panels {
            let mut series = Vec::new();
            for target in &panel.targets {
                let answer = prometheus.query_range(&target.expression, range).await;
                let answer = answer.with_context(|| format!("{}: {}", self.title, panel.title))?;
                series.extend(answer.into_iter().map(|(labels, points)| Series {
                    name: legend(&target.legend, &labels),
                    labels,
                    points,
                }));
            }
            all.push(series);
        }
        Ok(all)
    }
}

impl Panel {
    fn parse(value: &Value) -> Result<Self> {
        let title = value["title"].as_str().context("a panel has no title")?.to_owned();
        let kind = match value["type"].as_str() {
            Some("row") => Kind::Row,
            Some("stat") => Kind::Stat,
            Some("timeseries") => Kind::Timeseries,
            Some("table") => Kind::Table,
            other => anyhow::bail!("{title}: type {other:?} is none that can be drawn"),
        };
        let number = |name: &str| -> Result<u32> {
            let number = value["gridPos"][name].as_u64().with_context(|| format!("{title}: no gridPos.{name}"))?;
            Ok(u32::try_from(number)?)
        };
        let place = Place { x: number("x")?, y: number("y")?, width: number("w")?, height: number("h")? };
        let defaults = &value["fieldConfig"]["defaults"];
        let steps = defaults["thresholds"]["steps"].as_array().into_iter().flatten();
        let steps = steps.map(|step| {
            let from = step["value"].as_f64().unwrap_or(f64::NEG_INFINITY);
            (from, step["color"].as_str().unwrap_or_default().to_owned())
        });
        let targets = value["targets"].as_array().into_iter().flatten().map(|target| Target {
            expression: target["expr"].as_str().unwrap_or_default().to_owned(),
            legend: target["legendFormat"].as_str().unwrap_or_default().to_owned(),
        });
        Ok(Self {
            kind,
            place,
            unit: Unit::parse(defaults["unit"].as_str().unwrap_or("none")).with_context(|| title.clone())?,
            steps: steps.collect(),
            targets: targets.collect(),
            title,
        })
    }
}

/// A legend with a series' labels filled in.
fn legend(format: &str, labels: &Value) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        text.push_str(before);
        text.push_str(labels[name.trim()].as_str().unwrap_or_default());
        rest = after;
    }
    text.push_str(rest);
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_dashboard_of_the_chart_can_be_drawn() {
        let all = Dashboard::all().unwrap();
        let names: Vec<&str> = all.iter().map(|dashboard| dashboard.name.as_str()).collect();
        assert_eq!(names, ["consumer-groups", "operator", "overview", "topic", "tuning"]);
        for dashboard in all {
            let filled = dashboard.filled(&[
                ("__rate_interval", "1m"),
                ("namespace", "n"),
                ("cluster", "c"),
                ("topic", "t"),
                ("group", "g"),
                ("setting", "num.(io|network).threads"),
            ]);
            for panel in &filled.panels {
                assert!(panel.place.x + panel.place.width <= 24, "{}: {}", filled.title, panel.title);
                for target in &panel.targets {
                    assert!(!target.expression.contains('$'), "{}: {}", panel.title, target.expression);
                }
            }
        }
    }

    #[test]
    fn no_panel_lies_on_another() {
        for dashboard in Dashboard::all().unwrap() {
            for (index, panel) in dashboard.panels.iter().enumerate() {
                for other in &dashboard.panels[index + 1..] {
                    let (a, b) = (panel.place, other.place);
                    let apart = a.x + a.width <= b.x || b.x + b.width <= a.x;
                    let apart = apart || a.y + a.height <= b.y || b.y + b.height <= a.y;
                    assert!(apart, "{}: {} and {}", dashboard.name, panel.title, other.title);
                }
            }
        }
    }

    #[test]
    fn a_legend_has_the_labels_of_its_series() {
        let labels = json!({"pod": "c-broker-0", "dir": "/d"});
        assert_eq!(legend("{{pod}} {{ dir }}", &labels), "c-broker-0 /d");
        assert_eq!(legend("p99", &labels), "p99");
        assert_eq!(legend("{{none}} elections", &labels), "elections");
    }
}
