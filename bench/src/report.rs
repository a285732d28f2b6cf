//! Figures with their limits: printed as a Markdown table, and saved with the command and the machine when asked to.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// One figure.
#[derive(Debug)]
pub(crate) struct Figure {
    what: String,
    value: String,
    /// What it must keep, and whether it does.
    limit: Option<(String, bool)>,
}

/// Figures in the order they were taken, and tables in Markdown.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
    tables: Vec<String>,
}

impl Report {
    /// A figure without a limit.
    pub(crate) fn tell(&mut self, what: &str, value: impl Into<String>) {
        self.figures.push(Figure { what: what.to_owned(), value: value.into(), limit: None });
    }

    /// A figure that must keep a limit.
    pub(crate) fn judge(&mut self, what: &str, value: impl Into<String>, limit: &str, kept: bool) {
        self.figures.push(Figure { what: what.to_owned(), value: value.into(), limit: Some((limit.to_owned(), kept)) });
    }

    /// A table of its own.
    pub(crate) fn table(&mut self, markdown: String) {
        self.tables.push(markdown);
    }

    /// Whether every limit is kept.
    pub(crate) fn passes(&self) -> bool {
        self.figures.iter().all(|figure| figure.limit.as_ref().is_none_or(|(_, kept)| *kept))
    }

    fn markdown(&self) -> String {
        let mut text = self.tables.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        if self.figures.is_empty() {
            return text;
        }
        text.push_str("| what | measured | must be | |\n|---|---|---|---|\n");
        for Figure { what, value, limit } in &self.figures {
            let (limit, verdict) = match limit {
                Some((limit, true)) => (limit.as_str(), "pass"),
                Some((limit, false)) => (limit.as_str(), "FAIL"),
                None => ("", ""),
            };
            let _ = writeln!(text, "| {what} | {value} | {limit} | {verdict} |"); // writing to a string can't fail
        }
        text
    }

    /// Prints all, saves it if a file is given, and says whether every limit is kept.
    pub(crate) fn finish(&self, title: &str, save: Option<&Path>) -> Result<bool> {
        let markdown = self.markdown();
        println!("{markdown}");
        if let Some(path) = save {
            let text = format!("# {title}\n\n`cargo xtask bench {}`\n\n{}\n\n{markdown}", command_line(), machine());
            std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(self.passes())
    }
}

/// What this was asked to measure.
pub(crate) fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('/')).collect();
    arguments.join(" ").replace(" --broker", "").replace(" --operator", "")
}

/// The machine the figures are from: without it they mean little.
pub(crate) fn machine() -> String {
    let first = |file: &str, key: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!(
        "{}, {cores} cores, memory {}, Linux {}, load average at the end {load}.",
        first("/proc/cpuinfo", "model name"),
        first("/proc/meminfo", "MemTotal"),
        first("/proc/sys/kernel/osrelease", ""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_limit_that_is_not_kept_fails_the_whole() {
        let mut report = Report::default();
        report.tell("cores", "2");
        report.judge("memory", "12 MiB", "< 40 MiB", true);
        assert!(report.passes());
        report.judge("start", "400 ms", "< 300 ms", false);
        assert!(!report.passes());
        assert!(report.markdown().contains("| start | 400 ms | < 300 ms | FAIL |"), "{}", report.markdown());
    }
}
