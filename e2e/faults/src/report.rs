//! What a run found: JSON for machines, Markdown for people, both beside the brokers' logs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::check::Verdict;

/// One partition.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionReport {
    pub(crate) acknowledged: u64,
    pub(crate) read: u64,
    pub(crate) longest_unavailability_ms: u64,
    pub(crate) longest_unavailability_at_ms: u64,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
}

/// The whole run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) brokers: i32,
    pub(crate) seconds: u64,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) acknowledged: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) out_of_order: u64,
    pub(crate) healed_after_ms: u64,
    pub(crate) replicas_compared: usize,
    pub(crate) partitions: BTreeMap<String, PartitionReport>,
    pub(crate) problems: Vec<String>,
    pub(crate) client_errors: BTreeMap<String, u64>,
}

impl Report {
    /// Adds a partition to the sums; what is wrong with it becomes a problem.
    pub(crate) fn add(&mut self, name: String, partition: PartitionReport) {
        let verdict = &partition.verdict;
        self.acknowledged += partition.acknowledged;
        self.lost += verdict.lost;
        self.duplicated += verdict.duplicated;
        self.out_of_order += verdict.out_of_order;
        if !verdict.is_clean() {
            self.problems.push(format!(
                "{name}: {} lost, {} moved, {} duplicated, {} out of order, {} gaps, {} vanished; {}",
                verdict.lost,
                verdict.moved,
                verdict.duplicated,
                verdict.out_of_order,
                verdict.gaps,
                verdict.vanished,
                verdict.examples.join("; ")
            ));
        }
        self.partitions.insert(name, partition);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "# Faults: {} brokers, {} s, seed {}\n\n{} records acknowledged, {} lost, {} duplicated, {} out of order; all in sync {} ms after the last \
             fault; {} replicas compared on disk.\n\n| fault | times |\n|---|---|\n",
            self.brokers,
            self.seconds,
            self.seed,
            self.acknowledged,
            self.lost,
            self.duplicated,
            self.out_of_order,
            self.healed_after_ms,
            self.replicas_compared
        );
        // Writing to a string can't fail.
        for (fault, times) in &self.faults {
            let _ = writeln!(text, "| {fault} | {times} |");
        }
        text.push_str("\n| partition | acknowledged | read | longest unavailability | at |\n|---|---|---|---|---|\n");
        for (name, partition) in &self.partitions {
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {} ms | {:.1} s |",
                partition.acknowledged,
                partition.read,
                partition.longest_unavailability_ms,
                Duration::from_millis(partition.longest_unavailability_at_ms).as_secs_f64(),
            );
        }
        if self.problems.is_empty() {
            text.push_str("\nNo problem.\n");
        } else {
            text.push_str("\n## Problems\n\n");
            for problem in &self.problems {
                let _ = writeln!(text, "- {problem}");
            }
        }
        text
    }

    /// Writes both forms.
    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        let save = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text).with_context(|| format!("can't write {}", file.display()))
        };
        save("report.json", serde_json::to_string_pretty(self)?)?;
        save("report.md", self.markdown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_partition_is_a_problem_and_in_the_sums() {
        let mut report = Report::default();
        let verdict =
            Verdict { lost: 2, examples: vec!["record 7 was acknowledged at 7".to_owned()], ..Verdict::default() };
        let partition = PartitionReport {
            acknowledged: 9,
            read: 7,
            longest_unavailability_ms: 1500,
            longest_unavailability_at_ms: 0,
            verdict,
        };
        report.add("own-0".to_owned(), partition);
        assert_eq!((report.lost, report.problems.len()), (2, 1));
        assert!(report.markdown().contains("| own-0 | 9 | 7 | 1500 ms | 0.0 s |"), "{}", report.markdown());
    }
}
