//! `forebay consume`: a topic's records to standard output, one a line: partition, offset, key, value.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use forebay_broker_client::admin::OffsetSpec;
use forebay_broker_client::types::Offset;
use forebay_broker_client::{Admin, Client, ConsumeError, Consumed, Consumer, GroupConsumer, TopicPartition};
use forebay_broker_config::{Settings, parse_properties};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{all_done, config, consumer_settings};
use crate::args::{ConsumeArgs, Format};

/// From then on a member that waits to join says so.
const JOIN_WAIT_TOLD_AFTER: Duration = Duration::from_secs(3);
/// See [`patience`].
const PATIENCE: Duration = Duration::from_secs(5);
/// What shells say of a program that an interrupt ended.
const KILLED: i32 = 130;

pub(crate) async fn run(args: ConsumeArgs) -> anyhow::Result<()> {
    let settings = match &args.config {
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
            let settings = parse_properties(&text).with_context(|| file.display().to_string())?;
            consumer_settings::check(&settings).with_context(|| file.display().to_string())?;
            settings
        }
        None => Settings::new(),
    };
    let client = Client::connect(&args.remote.bootstrap, config()).await?;
    let ends = if args.follow { BTreeMap::new() } else { offsets(&client, &args.topic, OffsetSpec::Latest).await? };
    let mut printer = Printer { format: args.remote.output.format, left: args.count.unwrap_or(u64::MAX), ends };
    match args.group.clone().or_else(|| settings.get("group.id").cloned()) {
        Some(group) => as_member(client, &args, &group, &settings, &mut printer).await,
        None => alone(client, &args, &settings, &mut printer).await,
    }
}

async fn offsets(client: &Client, topic: &str, spec: OffsetSpec) -> anyhow::Result<BTreeMap<TopicPartition, Offset>> {
    let admin = Admin::new(client.clone());
    let topics = all_done(admin.describe_topics(&[topic]).await?, "topic")?;
    let partitions =
        topics.iter().flat_map(|(name, t)| t.partitions.iter().map(|p| TopicPartition::new(name, p.index)));
    let wanted: Vec<_> = partitions.map(|tp| (tp, spec)).collect();
    let listed = all_done(admin.list_offsets(&wanted).await?, "partition")?;
    Ok(listed.into_iter().map(|(tp, listed)| (tp, listed.offset)).collect())
}

async fn alone(client: Client, args: &ConsumeArgs, settings: &Settings, printer: &mut Printer) -> anyhow::Result<()> {
    let mut consumer = Consumer::new(&client, consumer_settings::fetch(settings));
    consumer.assign(offsets(&client, &args.topic, OffsetSpec::Earliest).await?);
    while args.follow || !printer.at_end(consumer.positions()) {
        if printer.print(consumer.poll().await?)?.is_some() {
            break;
        }
    }
    Ok(())
}

/// Reads as a member. What was printed is committed, up to and including the last record printed.
async fn as_member(
    client: Client,
    args: &ConsumeArgs,
    group: &str,
    settings: &Settings,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let mut consumer = GroupConsumer::new(&client, consumer_settings::member(settings, group, &args.topic));
    let mut stop = stop_wanted()?;
    let mut joined = false;
    let ended = loop {
        let poll = async {
            if std::mem::replace(&mut joined, true) { consumer.poll().await } else { first(&mut consumer, group).await }
        };
        let polled = tokio::select! {
            polled = poll => polled?,
            // All that was printed is committed by now.
            _ = stop.wait_for(|wanted| *wanted) => break BTreeMap::new(),
        };
        if let Some(last) = printer.print(polled)? {
            break cut_positions(consumer.positions(), &last);
        }
        tokio::select! {
            committed = consumer.commit() => committed?,
            () = patience(&mut stop) => bail!("group {group} did not take the offsets of what was printed last"),
        }
        if !args.follow && !consumer.positions().is_empty() && printer.at_end(consumer.positions()) {
            break BTreeMap::new();
        }
    };
    tokio::select! {
        left = consumer.leave() => left?,
        () = patience(&mut stop) => bail!("group {group} was not left: it waits for this member's session to end"),
    }
    if !ended.is_empty() {
        // A member's commit would cover what was fetched and not printed; without members the exact offsets can be committed.
        let offsets: Vec<_> = ended.into_iter().collect();
        all_done(Admin::new(client).commit_offsets(group, &offsets).await?, "partition")?;
    }
    Ok(())
}

/// Turns true with Ctrl-C or SIGTERM; at the second one the process ends where it is.
fn stop_wanted() -> anyhow::Result<watch::Receiver<bool>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (wanted, stop) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if wanted.send_replace(true) {
                std::process::exit(KILLED);
            }
        }
    });
    Ok(stop)
}

/// Whoever wants it to stop waits no longer than this for the group.
async fn patience(stop: &mut watch::Receiver<bool>) {
    // Without a sender nobody can want it any more.
    if stop.wait_for(|wanted| *wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(PATIENCE).await;
}

/// The first poll, which joins: whoever waits is told for what.
async fn first(consumer: &mut GroupConsumer, group: &str) -> Result<Vec<Consumed>, ConsumeError> {
    let poll = consumer.poll();
    tokio::pin!(poll);
    tokio::select! {
        polled = &mut poll => polled,
        () = tokio::time::sleep(JOIN_WAIT_TOLD_AFTER) => {
            eprintln!("waiting to join group {group}: its coordinator, the leader of a partition of __consumer_offsets, or other members keep it waiting");
            poll.await
        }
    }
}

/// Where each partition stands when records from `last` on were not printed.
fn cut_positions(
    positions: &BTreeMap<TopicPartition, Offset>,
    unprinted: &BTreeMap<TopicPartition, Offset>,
) -> BTreeMap<TopicPartition, Offset> {
    positions.iter().map(|(tp, offset)| (tp.clone(), unprinted.get(tp).copied().unwrap_or(*offset))).collect()
}

/// Prints records until enough were printed.
struct Printer {
    format: Format,
    left: u64,
    /// Where the partitions ended at the start.
    ends: BTreeMap<TopicPartition, Offset>,
}

/// A record as JSON; bytes that are not UTF-8 are replaced.
#[derive(Serialize)]
struct Line<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    timestamp_ms: i64,
    key: Option<String>,
    value: Option<String>,
}

impl Printer {
    /// Whether all partitions that the reader has are read as far as they were at the start.
    fn at_end(&self, positions: &BTreeMap<TopicPartition, Offset>) -> bool {
        self.left == 0 || positions.iter().all(|(tp, at)| self.ends.get(tp).is_none_or(|end| at >= end))
    }

    /// Prints; when enough were printed, gives the first offset of each partition that was not.
    fn print(&mut self, records: Vec<Consumed>) -> anyhow::Result<Option<BTreeMap<TopicPartition, Offset>>> {
        let mut out = std::io::stdout().lock();
        let mut unprinted = BTreeMap::new();
        for record in records {
            if self.left == 0 {
                unprinted.entry(record.partition).or_insert(record.offset);
                continue;
            }
            self.left -= 1;
            let text = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map(|b| String::from_utf8_lossy(b).into_owned());
            let (key, value) = (text(&record.key), text(&record.value));
            let written = match self.format {
                Format::Table => {
                    let (key, value) = (key.as_deref().unwrap_or("-"), value.as_deref().unwrap_or("-"));
                    writeln!(out, "{} {} {key} {value}", record.partition.partition, record.offset)
                }
                Format::Json => {
                    let line = Line {
                        topic: &record.partition.topic,
                        partition: record.partition.partition,
                        offset: record.offset.0,
                        timestamp_ms: record.timestamp_ms,
                        key,
                        value,
                    };
                    writeln!(out, "{}", serde_json::to_string(&line)?)
                }
            };
            match written {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.left = 0,
                other => other?,
            }
        }
        Ok((self.left == 0).then_some(unprinted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(partition: i32, offset: i64) -> Consumed {
        Consumed {
            partition: TopicPartition::new("t", partition),
            offset: Offset(offset),
            timestamp_ms: 0,
            key: None,
            value: None,
        }
    }

    #[test]
    fn what_is_not_printed_is_not_committed() {
        let mut printer = Printer { format: Format::Json, left: 2, ends: BTreeMap::new() };
        let unprinted = printer.print(vec![record(0, 5), record(0, 6), record(0, 7), record(1, 3)]).unwrap().unwrap();
        let positions =
            BTreeMap::from([(TopicPartition::new("t", 0), Offset(8)), (TopicPartition::new("t", 1), Offset(4))]);
        let committed = cut_positions(&positions, &unprinted);
        assert_eq!(committed[&TopicPartition::new("t", 0)], Offset(7));
        assert_eq!(committed[&TopicPartition::new("t", 1)], Offset(3));
    }
}
