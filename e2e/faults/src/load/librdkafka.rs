//! Load by librdkafka: a Python program beside, whose lines on standard output say what its clients were told.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_broker_client::TopicPartition;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{LIBRDKAFKA, Manner, group};
use crate::ledger::{Ledger, Read};

/// The program, carried by this one.
const PROGRAM: &str = include_str!("../../librdkafka.py");
const END_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Librdkafka {
    child: Child,
    orders: Option<ChildStdin>,
    flushed: Option<oneshot::Receiver<()>>,
    reader: JoinHandle<()>,
}

impl Librdkafka {
    pub(super) fn start(python: &Path, bootstrap: &str, manner: Manner, ledger: Arc<Ledger>) -> Result<Self> {
        let acks = if manner.safe { "all" } else { "1" };
        let mut child = Command::new(python)
            .args(["-c", PROGRAM, bootstrap, LIBRDKAFKA, &group(LIBRDKAFKA), &manner.partitions.to_string()])
            .args([&manner.rate.to_string(), acks])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // librdkafka writes there what its callbacks say as well
            .process_group(0)
            .spawn()
            .with_context(|| format!("can't start {}", python.display()))?;
        let (orders, output) = (child.stdin.take(), child.stdout.take().context("no output")?);
        let (said, flushed) = oneshot::channel();
        let reader = tokio::spawn(async move {
            let (mut lines, mut said) = (BufReader::new(output).lines(), Some(said));
            while let Ok(Some(line)) = lines.next_line().await {
                if line == "flushed" {
                    said.take().map(|said| said.send(()));
                } else if take(&line, &ledger).is_none() {
                    ledger.problem(format!("librdkafka's program said {line:?}"));
                }
            }
        });
        Ok(Self { child, orders, flushed: Some(flushed), reader })
    }

    pub(super) async fn stop_producing(&mut self) -> Result<()> {
        let orders = self.orders.as_mut().context("it has ended")?;
        orders.write_all(b"stop\n").await.context("librdkafka's program has ended")?;
        match self.flushed.take() {
            Some(flushed) => flushed.await.context("librdkafka's program ended before all was acknowledged"),
            None => bail!("librdkafka's program was stopped twice"),
        }
    }

    pub(super) async fn stop(mut self) {
        drop(self.orders.take()); // the end of its standard input ends it
        if tokio::time::timeout(END_WITHIN, self.child.wait()).await.is_err() {
            // It hangs in librdkafka; there is nothing left to hear from it.
            let _ = self.child.kill().await;
        }
        self.reader.abort();
    }
}

/// One line: `a` acknowledged, `c` consumed, `k` committed, `e` error, `x` what must never be.
fn take(line: &str, ledger: &Ledger) -> Option<()> {
    let (kind, rest) = line.split_once(' ')?;
    match kind {
        "e" => ledger.error(format!("librdkafka: {rest}")),
        "x" => ledger.problem(format!("librdkafka: {rest}")),
        _ => {
            let mut numbers = rest.split(' ').map(str::parse::<i64>);
            let tp = TopicPartition::new(LIBRDKAFKA, i32::try_from(numbers.next()?.ok()?).ok()?);
            let first = numbers.next()?.ok()?;
            match kind {
                "a" => ledger.acknowledged(&tp, u64::try_from(first).ok()?, 1, numbers.next()?.ok()?),
                "c" => {
                    let number = u64::try_from(numbers.next()?.ok()?).ok()?;
                    ledger.read(&tp, Read { offset: first, number });
                }
                "k" => ledger.committed(&tp, first),
                _ => return None,
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_entries() {
        let ledger = Ledger::new();
        for line in ["a 1 0 5", "c 1 0 5", "k 1 1", "e what a pity"] {
            assert!(take(line, &ledger).is_some(), "{line}");
        }
        assert!(take("a 1", &ledger).is_none());
        let (partitions, problems, errors) = ledger.take();
        let partition = &partitions[&TopicPartition::new(LIBRDKAFKA, 1)];
        assert_eq!((partition.acknowledged.len(), partition.read[0].number), (1, 5));
        assert!(problems.is_empty() && errors.contains_key("librdkafka: what a pity"));
    }
}
