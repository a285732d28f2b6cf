//! Reading what is long out of memory, beside clients that want the newest: how much later these get it.
//!
//! The broker may have so little memory (a control group of its own, page cache included) that the old data can't lie in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::setpriority_process;

use super::latency::{Latency, measure};
use super::samples::{Metric, Wanted};
use super::side::{Make, Side};
use super::throughput::{light, produce_tuned};
use super::{Bench, client, counting};

/// 8 GB in records of 1 KB.
const OLD_RECORDS: u64 = 8_000_000;
/// A JVM's heap of 1 GB and some page cache fit; the old data do not.
const MEMORY_BYTES: u64 = 3 << 29;
const OLD: &str = "old";
const PARTITIONS: i32 = 4;
const RATE: u64 = 2_000;
const SECONDS: u64 = 20;

const ALONE: &str = "nobody reads old data";
const BESIDE: &str = "a consumer reads old data";
/// What a consumer needs for itself is not the broker's: on another machine it would not be in the way of those who are timed.
const NICE: i32 = 19;
const BESIDE_COUNTING: &str = "who only counts reads old data";
const fn latency(name: &'static str) -> Metric {
    Metric { name, unit: "ms", wanted: Wanted::AtMost(1.0) }
}
const END_TO_END: Metric = latency("end to end, 99 %");
const ACKNOWLEDGED: Metric = latency("acknowledged, 99 %");
const RISE_END_TO_END: Metric =
    Metric { name: "end to end, 99 %: beside ÷ alone", unit: "×", wanted: Wanted::OwnAtMost(1.5) };
const RISE_ACKNOWLEDGED: Metric =
    Metric { name: "acknowledged, 99 %: beside ÷ alone", unit: "×", wanted: Wanted::OwnAtMost(1.5) };

pub(super) async fn reader(bench: &mut Bench<'_>) -> Result<()> {
    let (steady, fast) = (client("latency")?, client("throughput")?);
    let records = bench.scaled(OLD_RECORDS);
    let seconds = bench.scaled(SECONDS).max(8);
    for make in bench.makes() {
        let mut side = Side::prepare(make, &bench.options.common.broker, &[])?;
        side.up().await?;
        let _group = Group::with(side.pid()?, MEMORY_BYTES)?;
        side.create_topic(OLD, 1, &[]).await?;
        produce_tuned(&fast, &side, OLD, records)?;
        for round in 1..=bench.options.rounds {
            let alone = tail(&steady, &side, seconds, round, "alone").await?;
            add(bench, ALONE, make, round, &alone)?;
            for case in [BESIDE, BESIDE_COUNTING] {
                let counts = case == BESIDE_COUNTING;
                let reader =
                    if counts { Reader::count(&side, records) } else { Reader::consume(&fast, &side, records)? };
                let beside = tail(&steady, &side, seconds, round, if counts { "counting" } else { "beside" }).await?;
                reader.stop()?;
                add(bench, case, make, round, &beside)?;
                bench.samples.add(case, make, round, RISE_END_TO_END, beside.e2e_p99_ms / alone.e2e_p99_ms)?;
                bench.samples.add(case, make, round, RISE_ACKNOWLEDGED, beside.ack_p99_ms / alone.ack_p99_ms)?;
            }
        }
    }
    Ok(())
}

fn add(bench: &mut Bench<'_>, case: &str, make: Make, round: u32, found: &Latency) -> Result<()> {
    bench.samples.add(case, make, round, END_TO_END, found.e2e_p99_ms)?;
    bench.samples.add(case, make, round, ACKNOWLEDGED, found.ack_p99_ms)
}

async fn tail(program: &Path, side: &Side, seconds: u64, round: u32, name: &str) -> Result<Latency> {
    let topic = format!("tail-{name}-{round}");
    side.create_topic(&topic, PARTITIONS, &[]).await?;
    let found = measure(program, side, &topic, RATE, seconds)?;
    side.delete_topic(&topic).await?;
    Ok(found)
}

/// Reads the old data from their beginning, again and again.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Reader {
    fn count(side: &Side, records: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, address) = (Arc::clone(&stop), side.address().to_owned());
        let thread = std::thread::spawn(move || {
            setpriority_process(None, NICE)?;
            let go_on = || !stopped.load(Ordering::Relaxed);
            while go_on() {
                counting::read_while(&address, OLD, records, go_on)?;
            }
            Ok(())
        });
        Self { stop, thread }
    }

    fn consume(program: &Path, side: &Side, records: u64) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let alone = light(program, side, OLD, records);
        let mut command = Command::new("nice");
        command.arg(format!("-n{NICE}")).arg(program).args(alone.get_args());
        command.args(["-C", "-o", "beginning"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().context("can't start the reader")?;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if child.try_wait()?.is_some() {
                    child = command.spawn()?;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            child.kill()?;
            child.wait()?;
            Ok(())
        });
        Ok(Self { stop, thread })
    }

    fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the thread of the reader panicked")?
    }
}

/// A control group of one process (needs root).
struct Group(PathBuf);

impl Group {
    /// Version 1 has a folder for each resource, version 2 one for all.
    fn with(process: u32, memory_bytes: u64) -> Result<Self> {
        let version_1 = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = if version_1.is_dir() {
            (version_1, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let folder = root.join(format!("forebay-bench-{process}"));
        std::fs::create_dir(&folder)
            .with_context(|| format!("can't limit memory: {} (needs root)", folder.display()))?;
        let group = Self(folder);
        for (file, value) in [(limit, memory_bytes), ("cgroup.procs", u64::from(process))] {
            let path = group.0.join(file);
            std::fs::write(&path, value.to_string()).with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The process goes back to where all are; a group with a process in it can't be removed.
        if let (Some(root), Ok(processes)) = (self.0.parent(), std::fs::read_to_string(self.0.join("cgroup.procs"))) {
            for process in processes.lines() {
                let _ = std::fs::write(root.join("cgroup.procs"), process);
            }
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}
