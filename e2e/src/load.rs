//! Clients that go on through a story: a pod that produces numbered records with acks=all and reads them as a group, and at the
//! end the account: nothing that was acknowledged may be lost. The program is that of `e2e/faults`.

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

/// Load while it runs.
#[derive(Debug)]
pub struct Load<'a> {
    story: &'a Story,
    pod: String,
}

impl Story {
    /// Starts load on a Cluster, on a node that is not `away_from`, and waits until records are acknowledged.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn load(&self, cluster: &str, away_from: Option<&str>) -> Result<Load<'_>> {
        let pods: Api<KubePod> = self.api();
        let bootstrap = self.kafka(cluster).bootstrap();
        let (partitions, rate) = (PARTITIONS.to_string(), RATE.to_string());
        let expressions: Vec<_> = away_from
            .iter()
            .map(|node| json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}))
            .collect();
        let terms = json!([{"matchExpressions": expressions}]);
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let pod = json!({
            "metadata": {"generateName": "load-"},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": ENDS_WITHIN_SECONDS,
                "affinity": if expressions.is_empty() { json!({}) } else { affinity },
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
            ensure!(log.lines().any(|line| acknowledged(line).is_some_and(|count| count > 0)), "it has said {log:?}");
            Ok(())
        });
        begun.await?;
        Ok(Load { story: self, pod })
    }
}

fn acknowledged(line: &str) -> Option<u64> {
    line.strip_suffix(" acknowledged")?.parse().ok()
}

impl Load<'_> {
    /// Ends the load, and gives its account.
    ///
    /// # Errors
    /// When something was lost, came twice or in another order, or the program gave no account.
    pub async fn end(self) -> Result<Account> {
        let pods: Api<KubePod> = self.story.api();
        let follow = LogParams { follow: true, ..LogParams::default() };
        // Before the pod goes: its log goes with it.
        let mut lines = pods.log_stream(&self.pod, &follow).await?.lines();
        pods.delete(&self.pod, &DeleteParams::default()).await?;
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
        self.story.step(&format!(
            "ACCOUNT: {} acknowledged, {} lost; longest acknowledgement gap {} ms",
            told.acknowledged, told.lost, told.longest_gap_ms
        ));
        ensure!(told.problems.is_empty() && told.lost == 0, "{account}");
        Ok(told)
    }
}
