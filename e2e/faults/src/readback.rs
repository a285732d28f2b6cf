//! What the logs hold in the end: read from the leaders as any consumer does, and from every replica's files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use forebay_broker_client::admin::OffsetSpec;
use forebay_broker_client::types::Offset;
use forebay_broker_client::{Admin, Client, Consumer, FetchConfig, TopicPartition};
use forebay_broker_wire::records::batches;
use tokio::time::{Duration, Instant};

use crate::ledger::Read;
use crate::load::own::number;

/// The most to wait for all records.
const READ_WITHIN: Duration = Duration::from_secs(300);

/// Where each partition ends.
pub(crate) async fn ends(client: &Client, topics: &[&str], partitions: u16) -> Result<BTreeMap<TopicPartition, i64>> {
    let of_topic = |topic: &&str| (0..i32::from(partitions)).map(|p| TopicPartition::new(topic, p)).collect::<Vec<_>>();
    let asked: Vec<_> = topics.iter().flat_map(of_topic).map(|tp| (tp, OffsetSpec::Latest)).collect();
    let listed = Admin::new(client.clone()).list_offsets(&asked).await?;
    listed.into_iter().map(|(tp, listed)| Ok((tp, listed?.offset.0))).collect()
}

/// Every record of these partitions, from the first to the end.
pub(crate) async fn from_leaders(
    client: &Client,
    ends: &BTreeMap<TopicPartition, i64>,
) -> Result<BTreeMap<TopicPartition, Vec<Read>>> {
    let mut logs: BTreeMap<TopicPartition, Vec<Read>> = ends.keys().map(|tp| (tp.clone(), Vec::new())).collect();
    let mut consumer = Consumer::new(client, FetchConfig::default());
    consumer.assign(ends.keys().map(|tp| (tp.clone(), Offset(0))).collect());
    let begin = Instant::now();
    while ends.iter().any(|(tp, end)| consumer.positions().get(tp).is_none_or(|position| position.0 < *end)) {
        if begin.elapsed() > READ_WITHIN {
            bail!("not all records can be read within {} s: at {:?}", READ_WITHIN.as_secs(), consumer.positions());
        }
        for record in consumer.poll().await? {
            let number = number(&record).with_context(|| format!("a strange key in {}", record.partition))?;
            let read = Read { offset: record.offset.0, number };
            if let Some(log) = logs.get_mut(&record.partition) {
                log.push(read);
            }
        }
    }
    Ok(logs)
}

/// What identifies a stored batch: base offset, leader epoch, CRC over the rest.
type Stored = (i64, i32, u32);

/// Compares all replicas' files, batch by batch. Only while no broker runs. Gives the differences, and how many replicas were compared.
pub(crate) fn compare_replicas(log_dirs: &[(i32, PathBuf)], topics: &[&str]) -> Result<(Vec<String>, usize)> {
    let mut replicas = BTreeMap::<String, Vec<(i32, Vec<Stored>)>>::new();
    for (broker, dir) in log_dirs {
        for entry in std::fs::read_dir(dir).with_context(|| format!("can't read {}", dir.display()))? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_partition = |topic: &&str| {
                name.strip_prefix(*topic)
                    .and_then(|rest| rest.strip_prefix('-'))
                    .is_some_and(|p| p.parse::<u16>().is_ok())
            };
            if topics.iter().any(is_partition) {
                let log = stored(&path)?;
                replicas.entry(name).or_default().push((*broker, log));
            }
        }
    }
    let count = replicas.values().map(Vec::len).sum();
    let mut differences = Vec::new();
    for (partition, logs) in &replicas {
        let Some(((first, reference), others)) = logs.split_first() else { continue };
        for (broker, log) in others.iter().filter(|(_, log)| log != reference) {
            let same = log.iter().zip(reference).take_while(|(a, b)| a == b).count();
            let at = |log: &[Stored]| log.get(same).map_or("its end".to_owned(), |batch| format!("{batch:?}"));
            differences.push(format!(
                "{partition}: brokers {first} and {broker} differ after {same} batches: {} and {}",
                at(reference),
                at(log)
            ));
        }
    }
    Ok((differences, count))
}

/// All batches of a partition's folder.
fn stored(folder: &Path) -> Result<Vec<Stored>> {
    let mut segments: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            segments.push(path);
        }
    }
    segments.sort(); // the name is the first offset, with leading zeros
    let mut all = Vec::new();
    for segment in segments {
        let bytes = Bytes::from(std::fs::read(&segment).with_context(|| format!("can't read {}", segment.display()))?);
        for batch in batches(&bytes) {
            let batch = batch.with_context(|| format!("{} holds what is no batch", segment.display()))?;
            batch.check_crc().with_context(|| format!("{}", segment.display()))?;
            all.push((batch.header.base_offset.0, batch.header.partition_leader_epoch.0, batch.header.crc));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_broker_wire::records::{BatchBuilder, NewRecord};

    fn write(folder: &Path, values: &[&str]) -> PathBuf {
        let partition = folder.join("own-0");
        std::fs::create_dir_all(&partition).unwrap();
        let mut bytes = Vec::new();
        for (value, offset) in values.iter().zip(0..) {
            let mut builder = BatchBuilder::new(Offset(offset));
            let record = NewRecord { timestamp_ms: 1, key: None, value: Some(value.as_bytes()), headers: &[] };
            builder.push(&record).unwrap();
            bytes.extend_from_slice(&builder.build().unwrap());
        }
        std::fs::write(partition.join("00000000000000000000.log"), bytes).unwrap();
        folder.to_path_buf()
    }

    #[test]
    fn replicas_that_differ_are_named_with_the_place() {
        let folder = std::env::temp_dir().join(format!("forebay-faults-readback-{}", std::process::id()));
        let zero = write(&folder.join("0"), &["a", "b", "c"]);
        let one = write(&folder.join("1"), &["a", "b", "c"]);
        let (same, count) = compare_replicas(&[(0, zero.clone()), (1, one)], &["own"]).unwrap();
        assert_eq!((same.len(), count), (0, 2));
        let one = write(&folder.join("1"), &["a", "x"]);
        let (differences, _) = compare_replicas(&[(0, zero), (1, one)], &["own"]).unwrap();
        assert!(differences[0].starts_with("own-0: brokers 0 and 1 differ after 1 batches"), "{differences:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
