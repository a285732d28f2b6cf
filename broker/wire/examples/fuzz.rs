//! The fuzzer that needs no special toolchain: damaged golden messages through every decoder, damaged batches through the record
//! reader, for a given time. A run is told by its seed, an execution by its number in the run, and can be repeated alone.
//!
//! It fails on a panic, on a message that is read but can't be written and read again the same, and on memory: the process's peak of
//! *virtual* memory sees an allocation for a length from the wire even when nobody touches it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Parser;
use forebay_broker_wire::fuzzing::{AnyMessage, Corpus, Random, mutate, with_right_length_and_crc};
use forebay_broker_wire::records::batches;

/// The largest input.
const MAX_INPUT_BYTES: usize = 16 * 1024;
/// What the record reader may decompress to.
const RECORDS_LIMIT_BYTES: usize = 1 << 20;
/// Executions between two looks at the memory.
const MEMORY_CHECK_EVERY: u64 = 256;
/// What decoding inputs of at most [`MAX_INPUT_BYTES`] may add to the peak: a few megabytes, and what the allocator keeps.
const MESSAGES_MEMORY_BYTES: u64 = 64 << 20;
/// A zstd frame may ask for a window of 128 MiB (what level 22 uses); it is reserved, and only what is written to is memory.
const RECORDS_MEMORY_BYTES: u64 = 320 << 20;

/// What to fuzz, and for how long.
#[derive(Debug, Parser)]
struct Args {
    #[arg(long, value_enum)]
    target: Target,
    #[arg(long)]
    seconds: u64,
    #[arg(long)]
    seed: u64,
    /// Repeat this execution of the run only
    #[arg(long)]
    only: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Messages,
    Records,
}

/// What became of the inputs.
#[derive(Debug, Default)]
struct Counts {
    executions: u64,
    accepted: u64,
    slowest: Duration,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let corpus = Corpus::load()?;
    if let Some(execution) = args.only {
        return execute(&args, &corpus, execution, &mut Counts::default());
    }
    let begin = Instant::now();
    let before = peak_bytes()?;
    let mut counts = Counts::default();
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        let first = counts.executions;
        for execution in first..first + MEMORY_CHECK_EVERY {
            execute(&args, &corpus, execution, &mut counts)?;
        }
        let grown = peak_bytes()?.saturating_sub(before);
        let allowed = if args.target == Target::Messages { MESSAGES_MEMORY_BYTES } else { RECORDS_MEMORY_BYTES };
        ensure!(
            grown <= allowed,
            "virtual memory peaked {grown} bytes above the start within executions {first}-{} of seed {}, allowed are {allowed}",
            counts.executions - 1,
            args.seed
        );
    }
    println!(
        "{:?}: {} executions in {} s, {} accepted, slowest {} us, peak of virtual memory +{} KiB, seed {}",
        args.target,
        counts.executions,
        begin.elapsed().as_secs(),
        counts.accepted,
        counts.slowest.as_micros(),
        peak_bytes()?.saturating_sub(before) >> 10,
        args.seed
    );
    Ok(())
}

fn execute(args: &Args, corpus: &Corpus, execution: u64, counts: &mut Counts) -> Result<()> {
    let mut random = Random::new(args.seed, execution);
    let begin = Instant::now();
    let (what, input, outcome) = match args.target {
        Target::Messages => {
            let sample = random.pick(&corpus.messages);
            let other = &random.pick(&corpus.messages).bytes;
            // Mostly the version the bytes are of, at times another one.
            let version = if random.below(8) == 0 { random.interesting_version() } else { sample.version };
            let input = mutate(&mut random, &sample.bytes, other, MAX_INPUT_BYTES);
            let outcome = catch_unwind(AssertUnwindSafe(|| message(&sample.codec, &input, version)));
            (format!("{} v{version}", sample.codec.name), input, outcome)
        }
        Target::Records => {
            let batch = random.pick(&corpus.batches);
            let other = random.pick(&corpus.batches);
            let input = mutate(&mut random, batch, other, MAX_INPUT_BYTES);
            let input = if random.below(8) == 0 { input } else { with_right_length_and_crc(&input) };
            let outcome = catch_unwind(AssertUnwindSafe(|| records(&input)));
            ("record batch".to_owned(), input, outcome)
        }
    };
    counts.executions += 1;
    counts.slowest = counts.slowest.max(begin.elapsed());
    let failed = match outcome {
        Ok(Ok(accepted)) => {
            counts.accepted += u64::from(accepted);
            return Ok(());
        }
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => "panicked".to_owned(),
    };
    let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    bail!("{what}: {failed} (seed {} execution {execution}): {hex}", args.seed);
}

/// Whether the bytes are a message. If they are, what we write for it must be read as the same message.
fn message(codec: &AnyMessage, input: &Bytes, version: i16) -> Result<bool> {
    let Ok(recoded) = (codec.recode)(input.clone(), version) else { return Ok(false) };
    let written = recoded.encoded.context("what was read can't be written")?;
    let again = (codec.recode)(written.clone(), version).context("what was written can't be read")?;
    ensure!(again.trailing_bytes == 0, "what was written has bytes too many");
    ensure!(again.encoded.as_ref() == Ok(&written), "what was written is read as another message");
    Ok(true)
}

/// Whether the bytes are batches with records that can all be read.
fn records(input: &Bytes) -> Result<bool> {
    let mut all = true;
    for batch in batches(input) {
        let Ok(batch) = batch else { return Ok(false) };
        all &= batch.check_crc().is_ok();
        match batch.records(RECORDS_LIMIT_BYTES) {
            Ok(mut records) => all &= records.all(|record| record.is_ok()),
            Err(_) => all = false,
        }
    }
    Ok(all)
}

/// The most virtual memory the process has had.
fn peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("read the process's memory")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).context("no VmPeak")?;
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().context("VmPeak")?;
    Ok(kib << 10)
}
