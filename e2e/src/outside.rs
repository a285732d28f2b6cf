//! A client outside of the Kubernetes cluster: kcat as a process of this machine, which knows no name of a pod or Service.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use forebay_crds::Cluster;
use forebay_crds::cluster::ListenerStatus;
use serde_json::Value;

use crate::Story;
use crate::kafka::{Record, checked, lines};

/// kcat gives up by itself after so long.
const TIMEOUT_MS: &str = "socket.timeout.ms=10000";

/// Clients that begin at these addresses.
#[derive(Debug, Clone)]
pub struct Outside {
    bootstrap: String,
}

impl Story {
    /// What the status says of the Cluster's first listener.
    ///
    /// # Errors
    /// When it says nothing.
    pub async fn listener(&self, cluster: &str) -> Result<ListenerStatus> {
        let cluster = self.api::<Cluster>().get(cluster).await?;
        let listeners = cluster.status.context("no status")?.listeners;
        listeners.into_iter().next().context("the status has no listener")
    }

    /// Clients that are told of each broker exactly what the status says of that listener.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn outside(&self, cluster: &str) -> Result<Outside> {
        let bootstrap = self.listener(cluster).await?.bootstrap_servers.context("nowhere to begin")?;
        let client = Outside { bootstrap };
        let what = format!("clients that begin at {} are told of three brokers", client.bootstrap);
        self.eventually(&what, 60, async || {
            let told = client.brokers().await?;
            let status = self.listener(cluster).await?.brokers;
            let status: BTreeMap<i32, String> = status.into_iter().map(|one| (one.id, one.address)).collect();
            ensure!(told.len() == 3 && told == status, "told {told:?}, the status has {status:?}");
            Ok(())
        })
        .await?;
        Ok(client)
    }
}

impl Outside {
    /// Writes 100 records to each partition, whoever leads it, and reads all of them; their numbers begin with `first`.
    ///
    /// # Errors
    /// When a partition does not take them, or not all are read.
    pub async fn everywhere(&self, story: &Story, topic: &str, partitions: i32, first: usize) -> Result<Vec<String>> {
        let mut produced = Vec::new();
        for partition in 0..partitions {
            let from = first + usize::try_from(partition)? * 100;
            let what = format!("100 records are acknowledged in partition {partition}");
            let written = async || self.produce(topic, partition, from..from + 100).await;
            produced.extend(story.eventually(&what, 60, written).await?);
        }
        let consumed = lines(&self.consume(topic).await?);
        ensure!(produced.iter().all(|line| consumed.binary_search(line).is_ok()), "what was written is not all read");
        Ok(produced)
    }

    /// Address of each broker by its id, as clients are told.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn brokers(&self) -> Result<BTreeMap<i32, String>> {
        let printed = self.kcat(&["-L", "-J"], String::new()).await?;
        let metadata: Value = serde_json::from_str(&printed).with_context(|| format!("not JSON: {printed}"))?;
        let broker =
            |broker: &Value| Some((i32::try_from(broker["id"].as_i64()?).ok()?, broker["name"].as_str()?.to_owned()));
        Ok(metadata["brokers"].as_array().into_iter().flatten().filter_map(broker).collect())
    }

    /// Produces `key-N:value-N` for each number to one partition, with acks=all.
    ///
    /// # Errors
    /// When not everything is acknowledged.
    pub async fn produce(&self, topic: &str, partition: i32, numbers: std::ops::Range<usize>) -> Result<Vec<String>> {
        let lines: Vec<String> = numbers.map(|number| format!("key-{number}:value-{number}")).collect();
        let partition = partition.to_string();
        // Idempotent: a record that is sent again, as its leader was lost, is there once.
        let safe = ["-X", "acks=all", "-X", "enable.idempotence=true"];
        let arguments = [&["-P", "-t", topic, "-p", &partition, "-K:"], &safe[..]].concat();
        self.kcat(&arguments, lines.join("\n") + "\n").await?;
        Ok(lines)
    }

    /// All records of a topic, from the beginning to the end.
    ///
    /// # Errors
    /// When the consumer fails, or offsets of a partition have a gap.
    pub async fn consume(&self, topic: &str) -> Result<Vec<Record>> {
        let arguments = ["-C", "-q", "-e", "-t", topic, "-o", "beginning", "-f", "%p %o %k:%s\\n"];
        checked(&self.kcat(&arguments, String::new()).await?)
    }

    async fn kcat(&self, arguments: &[&str], input: String) -> Result<String> {
        let mut command = Command::new("kcat");
        command.args(["-b", &self.bootstrap, "-X", TIMEOUT_MS, "-m", "20"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        let run = move || -> Result<std::process::Output> {
            let mut child = command.spawn().context("kcat can't be started")?;
            child.stdin.take().context("kcat has no input")?.write_all(input.as_bytes())?;
            Ok(child.wait_with_output()?)
        };
        let output = tokio::task::spawn_blocking(run).await.context("kcat was not waited for")??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{what}: {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }
}
