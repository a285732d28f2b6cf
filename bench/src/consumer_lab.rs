//! The consumer tuning lab: the same 200,000 records read under fetch settings A to D by Apache's Java client.
//!
//! D asks for more than a response can carry (8 MiB of 4 × 1 MiB). An ordinary broker then waits `fetch.max.wait.ms` each time;
//! this one answers when the response can't grow any more, so D must stay close to C.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::Common;
use crate::compare::Peer;
use crate::compare::side::{Make, Side};
use crate::report::Report;

/// Name, fetch.min.bytes, fetch.max.wait.ms, max.poll.records.
const SETS: [(&str, u32, u32, u32); 4] =
    [("A", 1, 0, 100), ("B", 65_536, 50, 500), ("C", 1_048_576, 1_000, 5_000), ("D", 8_388_608, 1_000, 5_000)];
/// The most that D may take of C's time.
const D_OF_C_AT_MOST: f64 = 1.2;

/// With a peer: the two take turns so often, each time in a new JVM.
const TURNS: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// A broker that runs already, of whatever make; otherwise one is started.
    #[arg(long, conflicts_with = "peer")]
    bootstrap: Option<String>,
    /// Also measure Apache Kafka, in the same run.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Rounds of each set (in each turn).
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

type Rounds = BTreeMap<String, Vec<Round>>;

/// One round of one set, as the Java program prints it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Round {
    set: String,
    ms: f64,
    records_per_second: f64,
    poll_p50_ms: f64,
    poll_p99_ms: f64,
    polls: f64,
    empty_polls: f64,
}

pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut report = Report::default();
    let forebay = match &options.bootstrap {
        Some(bootstrap) => {
            let rounds = measure(bootstrap, options.rounds)?;
            report.table(table(&rounds));
            rounds
        }
        None => side_by_side(options, &mut report).await?,
    };
    let ratio = median_ms(&forebay, "D") / median_ms(&forebay, "C");
    report.judge("D ÷ C (medians)", format!("{ratio:.2}"), &format!("≤ {D_OF_C_AT_MOST}"), ratio <= D_OF_C_AT_MOST);
    report.finish("Consumer tuning lab", options.common.save.as_deref())
}

/// Brokers of our own, one after the other and again; gives Forebay's rounds.
async fn side_by_side(options: &Options, report: &mut Report) -> Result<Rounds> {
    let peer = options.peer.map(|Peer::Kafka| Make::Kafka);
    let mut sides = Vec::new();
    for make in peer.into_iter().chain([Make::Forebay]) {
        let mut side = Side::prepare(make, &options.common.broker, &[])?;
        side.up().await?;
        sides.push((side, Rounds::new()));
    }
    for _ in 0..if peer.is_some() { TURNS } else { 1 } {
        for (side, rounds) in &mut sides {
            for (set, found) in measure(side.address(), options.rounds)? {
                rounds.entry(set).or_default().extend(found);
            }
        }
    }
    let mut forebay = Rounds::new();
    let mut kafka = None;
    for (side, rounds) in sides {
        report.table(format!("{}:\n\n{}", side.make, table(&rounds)));
        match side.make {
            Make::Forebay => forebay = rounds,
            Make::Kafka => kafka = Some(rounds),
        }
    }
    let Some(kafka) = kafka else { return Ok(forebay) };
    for set in ["A", "B", "C"] {
        let ratio = median_ms(&forebay, set) / median_ms(&kafka, set);
        report.judge(&format!("{set}, Forebay ÷ Kafka (medians)"), format!("{ratio:.2}"), "≤ 1", ratio <= 1.0);
    }
    report.tell("Kafka's D ÷ C (medians)", format!("{:.1}", median_ms(&kafka, "D") / median_ms(&kafka, "C")));
    Ok(forebay)
}

fn median_ms(rounds: &Rounds, set: &str) -> f64 {
    rounds.get(set).map_or(f64::INFINITY, |rounds| median(rounds, |round| round.ms))
}

fn measure(bootstrap: &str, rounds: u32) -> Result<Rounds> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let sets = SETS.map(|(name, min_bytes, wait_ms, records)| format!("{name}:{min_bytes}:{wait_ms}:{records}"));
    let output = Command::new(root.join("e2e/compat/tools"))
        .arg("run")
        .arg(root.join("bench/clients/java/ConsumerLab.java"))
        .args([bootstrap, &format!("consumer-lab-{now}"), &rounds.to_string()])
        .args(sets)
        .stderr(Stdio::inherit())
        .output()
        .context("can't run the Java client")?;
    if !output.status.success() {
        bail!("the Java client ended with {}", output.status);
    }
    let mut by_set = Rounds::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let round: Round = serde_json::from_str(line).with_context(|| format!("not a round: {line}"))?;
        by_set.entry(round.set.clone()).or_default().push(round);
    }
    Ok(by_set)
}

fn sorted(rounds: &[Round], of: impl Fn(&Round) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle value; of an even number the lower of the two.
fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let values = sorted(rounds, of);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

fn table(rounds: &Rounds) -> String {
    let mut text = String::from(
        "| set | fetch.min.bytes | fetch.max.wait.ms | max.poll.records | ms: median (min–max) | records/s | poll p50 ms | poll p99 ms | polls | empty polls |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, min_bytes, wait_ms, records) in SETS {
        let Some(rounds) = rounds.get(name) else { continue };
        let ms = sorted(rounds, |r| r.ms);
        let (least, most) = (ms.first().copied().unwrap_or(f64::NAN), ms.last().copied().unwrap_or(f64::NAN));
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "| {name} | {min_bytes} | {wait_ms} | {records} | {:.0} ({least:.0}–{most:.0}) | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} |",
            median(rounds, |r| r.ms),
            median(rounds, |r| r.records_per_second),
            median(rounds, |r| r.poll_p50_ms),
            median(rounds, |r| r.poll_p99_ms),
            median(rounds, |r| r.polls),
            median(rounds, |r| r.empty_polls),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(ms: f64) -> Round {
        Round {
            set: "C".to_owned(),
            ms,
            records_per_second: 1.0,
            poll_p50_ms: 1.0,
            poll_p99_ms: 2.0,
            polls: 3.0,
            empty_polls: 0.0,
        }
    }

    #[test]
    fn a_row_has_the_median_between_the_extremes() {
        let rounds = BTreeMap::from([("C".to_owned(), vec![round(410.0), round(386.0), round(391.0)])]);
        assert!(table(&rounds).contains("| C | 1048576 | 1000 | 5000 | 391 (386–410) |"), "{}", table(&rounds));
    }
}
