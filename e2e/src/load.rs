//! Clients that go on through a story: a pod that produces numbered records with acks=all and reads them as a group. Of each stage of
//! the story: what was acknowledged, and the longest time in which a partition acknowledged nothing. At the end the account: nothing
//! that was acknowledged may be lost. The program is that of `e2e/faults`.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, LogParams, PostParams};
use serde::Deserialize;
use serde_json::json;

use crate::Story;

/// The image with the program; packed by `cargo xtask e2e`.
pub const IMAGE: &str = "forebay.local/load:e2e";
/// The topic that is written to; a story applies it.
pub const TOPIC: &str = "own";
/// Partitions of the topic.
pub const PARTITIONS: u16 = 4;
/// Records a second and partition.
const RATE: u32 = 50;
/// What is on its way at the end is acknowledged and read again within this.
const ENDS_WITHIN_SECONDS: u32 = 240;
/// It says how far it is more often than this.
const SAID_WITHIN: Duration = Duration::from_millis(1_500);

/// What became of the records.
#[derive(Clone, Debug, Deserialize)]
pub struct Account {
    /// Records acknowledged.
    pub acknowledged: u64,
    /// Acknowledged, and not there.
    pub lost: u64,
    /// There more than once.
    pub duplicated: u64,
    /// Behind a record that was sent later.
    pub out_of_order: u64,
    /// The longest time in which a partition acknowledged nothing.
    pub longest_gap_ms: u64,
    /// When it began, since the load began.
    pub longest_gap_at_ms: u64,
    /// All that must never be.
    pub problems: Vec<String>,
}

/// A part of a story.
#[derive(Clone, Debug)]
struct Stage {
    what: String,
    acknowledged: u64,
    longest_gap_ms: u64,
}

/// Load while it runs.
#[derive(Debug)]
pub struct Load<'a> {
    story: &'a Story,
    pod: String,
    /// Lines of its log that belong to earlier stages.
    told: usize,
    stages: Vec<Stage>,
}

impl Story {
    /// Starts load on a Cluster, on a node that is not one of `away_from`, and waits until records are acknowledged.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn load(&self, cluster: &str, away_from: &[String]) -> Result<Load<'_>> {
        let pods: Api<KubePod> = self.api();
        let bootstrap = self.kafka(cluster).bootstrap();
        let (partitions, rate) = (PARTITIONS.to_string(), RATE.to_string());
        let others = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": away_from});
        let terms = json!([{"matchExpressions": [others]}]);
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let pod = json!({
            "metadata": {"generateName": "load-"},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                // With its namespace it goes at once; `end` gives it time.
                "terminationGracePeriodSeconds": 1,
                "affinity": if away_from.is_empty() { json!({}) } else { affinity },
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{
                    "name": "load",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "args": ["load", "--bootstrap", bootstrap, "--partitions", partitions, "--rate", rate],
                    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                }],
            },
        });
        let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?.name_any();
        let begun = self.eventually("load runs", 60, async || {
            let log = pods.logs(&pod, &LogParams::default()).await?;
            ensure!(log.lines().any(|line| said(line).is_some_and(|(count, _)| count > 0)), "it has said {log:?}");
            Ok(log.lines().count())
        });
        let told = begun.await?;
        Ok(Load { story: self, pod, told, stages: Vec::new() })
    }
}

/// What a line says: records acknowledged so far, and the longest gap since the line before, in milliseconds.
fn said(line: &str) -> Option<(u64, u64)> {
    let (count, gap) = line.split_once(" acknowledged, gap ")?;
    Some((count.parse().ok()?, gap.strip_suffix(" ms")?.parse().ok()?))
}

impl Load<'_> {
    /// Ends a stage: says what came of it. It began with the end of the one before.
    ///
    /// # Errors
    /// When nothing was acknowledged in it, or the load has ended.
    pub async fn stage(&mut self, what: &str) -> Result<()> {
        tokio::time::sleep(SAID_WITHIN).await;
        let pods: Api<KubePod> = self.story.api();
        let log = pods.logs(&self.pod, &LogParams::default()).await?;
        let lines: Vec<(u64, u64)> = log.lines().filter_map(said).collect();
        let before = self.told.checked_sub(1).and_then(|last| lines.get(last)).map_or(0, |(count, _)| *count);
        let since = lines.get(self.told..).unwrap_or_default();
        let (count, _) = since.last().with_context(|| format!("the load says nothing more: {}", tail(&log)))?;
        let stage = Stage {
            what: what.to_owned(),
            acknowledged: count - before,
            longest_gap_ms: since.iter().map(|(_, gap)| *gap).max().unwrap_or_default(),
        };
        self.story.step(&format!(
            "ACCOUNT {what}: {} acknowledged, longest gap {} ms",
            stage.acknowledged, stage.longest_gap_ms
        ));
        ensure!(stage.acknowledged > 0, "nothing was acknowledged: {what}");
        self.told = lines.len();
        self.stages.push(stage);
        Ok(())
    }

    /// Ends the load, and gives its account.
    ///
    /// # Errors
    /// When something was lost, came twice or in another order, or the program gave no account.
    pub async fn end(self) -> Result<Account> {
        let pods: Api<KubePod> = self.story.api();
        let follow = LogParams { follow: true, ..LogParams::default() };
        // Before the pod goes: its log goes with it.
        let mut lines = pods.log_stream(&self.pod, &follow).await?.lines();
        pods.delete(&self.pod, &DeleteParams::default().grace_period(ENDS_WITHIN_SECONDS)).await?;
        let mut last = String::new();
        while let Some(line) = lines.try_next().await? {
            if let Some(account) = line.strip_prefix("account ") {
                return self.judge(account);
            }
            last = line;
        }
        bail!("the load ended without an account; it said last: {last}")
    }

    fn judge(&self, account: &str) -> Result<Account> {
        let told: Account = serde_json::from_str(account).with_context(|| format!("not an account: {account}"))?;
        for Stage { what, acknowledged, longest_gap_ms } in &self.stages {
            println!("    | {what} | {} | {acknowledged} | {longest_gap_ms} ms |", crate::provider());
        }
        self.story.step(&format!(
            "ACCOUNT of all: {} acknowledged, {} lost, {} duplicated, {} out of order, longest gap {} ms",
            told.acknowledged, told.lost, told.duplicated, told.out_of_order, told.longest_gap_ms
        ));
        ensure!(told.problems.is_empty() && told.lost == 0, "{account}");
        Ok(told)
    }
}

fn tail(log: &str) -> &str {
    log.lines().last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_load_is_understood_and_others_are_left() {
        assert_eq!(said("120 acknowledged, gap 35 ms"), Some((120, 35)));
        assert_eq!(said("account {}"), None);
    }
}
