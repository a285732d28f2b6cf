//! Producing and consuming from pods, with a client that is not ours, and comparing what came back.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use serde_json::Value;

use crate::{Pod, Story};

/// One program's run takes no longer, image and start included.
const RUN_LIMIT_SECONDS: u64 = 60;

/// A record as consumed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// `key:value` as it was produced.
    pub line: String,
}

/// A topic as a client sees it: the cluster's brokers by id, and the topic's partitions.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// Address of each broker by its id.
    pub brokers: BTreeMap<i64, String>,
    /// Partitions; `None` when there is no such topic.
    pub partitions: Option<usize>,
}

/// A partition as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// The broker that leads it; -1 for none.
    pub leader: i64,
    /// How many replicas it has.
    pub replicas: usize,
    /// How many of them are in sync.
    pub in_sync: usize,
}

/// A client that uses one cluster's bootstrap Service.
#[derive(Debug, Clone, Copy)]
pub struct Kafka<'a> {
    story: &'a Story,
    cluster: &'a str,
}

impl Story {
    /// Clients of a Cluster in this namespace.
    pub fn kafka<'a>(&'a self, cluster: &'a str) -> Kafka<'a> {
        Kafka { story: self, cluster }
    }
}

impl Kafka<'_> {
    /// What clients put in `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        format!("{}-bootstrap:9092", self.cluster)
    }

    /// Produces `key-N:value-N` for each number, with acks=all; `partition` as kcat's `-p`, or by key.
    ///
    /// # Errors
    /// When the producer fails.
    pub async fn produce(
        &self,
        topic: &str,
        numbers: std::ops::Range<usize>,
        partition: Option<i32>,
    ) -> Result<Vec<String>> {
        let lines: Vec<String> = numbers.map(|number| format!("key-{number}:value-{number}")).collect();
        let maps: Api<ConfigMap> = self.story.api();
        let metadata = ObjectMeta { generate_name: Some("records-".to_owned()), ..ObjectMeta::default() };
        let data = [("lines".to_owned(), lines.join("\n") + "\n")].into();
        let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        let map = maps.create(&PostParams::default(), &map).await?.name_any();
        let (bootstrap, partition) = (self.bootstrap(), partition.unwrap_or(-1).to_string());
        // Idempotent: a record that is sent again, as its leader was lost, is there once.
        let safe = ["-X", "acks=all", "-X", "enable.idempotence=true"];
        let what = ["-P", "-b", &bootstrap, "-t", topic, "-p", &partition, "-K:", "-l", "/records/lines"];
        let arguments = [&what[..3], &safe, &what[3..]].concat();
        Pod::kcat(&arguments).with_config_map(&map, "/records").run(self.story, RUN_LIMIT_SECONDS).await?;
        Ok(lines)
    }

    /// All records of a topic, from the beginning to the end.
    ///
    /// # Errors
    /// When the consumer fails, or offsets of a partition have a gap.
    pub async fn consume(&self, topic: &str) -> Result<Vec<Record>> {
        let bootstrap = self.bootstrap();
        let arguments = ["-C", "-q", "-e", "-b", &bootstrap, "-t", topic, "-o", "beginning", "-f", "%p %o %k:%s\\n"];
        let printed = Pod::kcat(&arguments).run_again(self.story, RUN_LIMIT_SECONDS).await?;
        checked(&printed)
    }

    /// What a client's metadata request tells.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn see(&self, topic: &str) -> Result<Seen> {
        let metadata = self.metadata().await?;
        let broker = |broker: &Value| Some((broker["id"].as_i64()?, broker["name"].as_str()?.to_owned()));
        let brokers = metadata["brokers"].as_array().into_iter().flatten().filter_map(broker).collect();
        let mut topics = metadata["topics"].as_array().into_iter().flatten();
        let found = topics.find(|found| found["topic"] == topic);
        Ok(Seen { brokers, partitions: found.and_then(|found| found["partitions"].as_array()).map(Vec::len) })
    }

    /// Who leads a topic's partitions, and how many replicas are in sync.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        let metadata = self.metadata().await?;
        let found = metadata["topics"].as_array().into_iter().flatten().find(|found| found["topic"] == topic);
        let partitions = found.and_then(|found| found["partitions"].as_array()).into_iter().flatten();
        let count = |value: &Value| value.as_array().map_or(0, Vec::len);
        let one = |partition: &Value| Partition {
            leader: partition["leader"].as_i64().unwrap_or(-1),
            replicas: count(&partition["replicas"]),
            in_sync: count(&partition["isrs"]),
        };
        Ok(partitions.map(one).collect())
    }

    /// The brokers, each with how many replicas it has of all topics.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn replicas(&self) -> Result<BTreeMap<i64, usize>> {
        let metadata = self.metadata().await?;
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let ids =
            |brokers: &Value| items(brokers).into_iter().filter_map(|broker| broker["id"].as_i64()).collect::<Vec<_>>();
        let mut counts: BTreeMap<i64, usize> = ids(&metadata["brokers"]).into_iter().map(|id| (id, 0)).collect();
        let partitions = items(&metadata["topics"]).into_iter().flat_map(|topic| items(&topic["partitions"]));
        for id in partitions.flat_map(|partition| ids(&partition["replicas"])) {
            *counts.entry(id).or_default() += 1;
        }
        Ok(counts)
    }

    async fn metadata(&self) -> Result<Value> {
        let bootstrap = self.bootstrap();
        let printed = Pod::kcat(&["-L", "-J", "-b", &bootstrap]).run_again(self.story, RUN_LIMIT_SECONDS).await?;
        serde_json::from_str(&printed).with_context(|| format!("not JSON: {printed}"))
    }
}

/// Records as kcat printed them, by partition and offset.
///
/// # Errors
/// When a line is none, or offsets of a partition have a gap.
pub(crate) fn checked(printed: &str) -> Result<Vec<Record>> {
    let records: Result<Vec<Record>> = printed.lines().map(parse).collect();
    let mut records = records?;
    records.sort();
    let mut next: BTreeMap<i32, i64> = BTreeMap::new();
    for record in &records {
        let expected = next.entry(record.partition).or_default();
        ensure!(record.offset == *expected, "partition {}: {} comes after {expected}", record.partition, record.offset);
        *expected += 1;
    }
    Ok(records)
}

fn parse(line: &str) -> Result<Record> {
    let mut fields = line.splitn(3, ' ');
    let mut field = || fields.next().with_context(|| format!("{line:?} is no record"));
    let (partition, offset) = (field()?.parse()?, field()?.parse()?);
    Ok(Record { partition, offset, line: field()?.to_owned() })
}

/// The lines of some records, sorted, to be compared with what was produced.
pub fn lines(records: &[Record]) -> Vec<String> {
    let mut lines: Vec<String> = records.iter().map(|record| record.line.clone()).collect();
    lines.sort();
    lines
}

/// What was produced, sorted in the same way.
pub fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}
