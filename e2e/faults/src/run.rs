//! One run: brokers up, load on, faults for a while, all mended, then the account.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use forebay_broker_client::TopicPartition;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::brokers::{Brokers, bootstrap};
use crate::check::check;
use crate::faults::{self, Held};
use crate::ledger::{Ledger, Partition, Read};
use crate::load::{self, LIBRDKAFKA, Load, Manner, OWN};
use crate::nemesis::{Kind, Nemesis};
use crate::node::Node;
use crate::report::{PartitionReport, Report};
use crate::{Args, readback};
use forebay_e2e_faults::network;

/// Load without faults, before the first and after the last.
const CALM: Duration = Duration::from_secs(3);
/// A group has read everything within this.
const GROUPS_END_WITHIN: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs; whether all is well.
pub(crate) async fn run(args: &Args) -> Result<bool> {
    let _lock = empty(&args.data)?;
    let data = args.data.canonicalize()?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let count = i32::from(args.brokers);
    println!("seed {seed}, {count} brokers, {} minutes; logs and report in {}", args.minutes, data.display());
    network::up(count)?;
    let mut brokers =
        Brokers::prepare(count, args.broker.as_deref().context("--broker is missing")?, &data, &args.config)?;
    brokers.start_all()?;
    brokers.all_serve().await?;
    let topics: Vec<&str> = if args.python.is_some() { vec![OWN, LIBRDKAFKA] } else { vec![OWN] };
    brokers.create_topics(&topics, args.partitions).await?;
    brokers.all_in_sync().await?;
    let ledger = Arc::new(Ledger::new());
    let manner = Manner { partitions: args.partitions, rate: args.rate, safe: !args.prove };
    let mut load = Load::start(&bootstrap(count), manner, args.python.as_deref(), &ledger)?;
    let mut report = Report { seed, brokers: count, ..Report::default() };
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        outcome = broken(args, seed, &mut brokers, &ledger, &topics, &mut report) => outcome?,
        _ = interrupt.recv() => bail!("interrupted"),
    }
    account(&mut brokers, &mut load, &ledger, &topics, args, &mut report).await;
    load.stop().await;
    finish(&mut brokers, &ledger, &topics, args, &mut report).await?;
    report.save(&data)?;
    println!("\n{}", report.markdown());
    if args.prove {
        println!("{}", if report.lost > 0 { "the loss was found, as it must be" } else { "NOT FOUND: the loss" });
        return Ok(report.lost > 0);
    }
    Ok(report.problems.is_empty())
}

fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()))
}

/// Holds the folder, and empties it.
fn empty(data: &Path) -> Result<File> {
    std::fs::create_dir_all(data).with_context(|| format!("can't create {}", data.display()))?;
    let file = data.join("lock");
    let lock = OpenOptions::new().create(true).append(true).open(&file)?;
    if lock.try_lock().is_err() {
        bail!("{} is in use by another run; wait for it, or use another --data", data.display());
    }
    for entry in std::fs::read_dir(data)? {
        let path = entry?.path();
        match path {
            path if path == file => {}
            path if path.is_dir() => std::fs::remove_dir_all(path)?,
            path => std::fs::remove_file(path)?,
        }
    }
    Ok(lock)
}

/// The time of faults.
async fn broken(
    args: &Args,
    seed: u64,
    brokers: &mut Brokers,
    ledger: &Ledger,
    topics: &[&str],
    report: &mut Report,
) -> Result<()> {
    sleep(CALM).await;
    if args.prove {
        return lose(brokers, ledger, topics, args.partitions, report).await;
    }
    let kinds = if args.faults.is_empty() { Kind::all(brokers.count()) } else { args.faults.clone() };
    let every = Duration::from_secs_f64(args.fault_every_seconds);
    let mut nemesis = Nemesis::new(seed, kinds, brokers.count(), every, args.overlap);
    let ends = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
    let (mut held, mut next_at) = (Vec::<Held>::new(), Instant::now());
    while Instant::now() < ends {
        end_what_is_over(brokers, ledger, &mut held).await?;
        notice_deaths(brokers, ledger);
        if Instant::now() >= next_at {
            next_at = Instant::now() + every;
            let is_free = |id: &i32| held.iter().all(|held| held.fault.broker != *id);
            let running = brokers.nodes.iter().filter(|node| node.runs()).map(|node| node.id);
            let free: Vec<i32> = running.filter(is_free).collect();
            // A cluster in which a broker has just lost its disk must not lose another.
            let calm = held.is_empty() && brokers.out_of_sync().await.is_ok_and(|behind| behind.is_empty());
            if let Some(fault) = nemesis.next(&free, calm) {
                say(ledger, &format!("{fault}"));
                *report.faults.entry(fault.kind.to_string()).or_default() += 1;
                match faults::begin(brokers, fault).await {
                    Ok(begun) => held.extend(begun),
                    Err(error) => {
                        ledger.problem(format!("{error:#}"));
                        start_again(brokers, &held)?; // what it left half done
                    }
                }
            }
        }
        let pause = faults::first_end(&held).unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
        sleep(pause.max(Duration::from_millis(1))).await;
    }
    for held in held {
        say(ledger, &format!("end of {}", held.fault));
        faults::end(brokers, &held.fault).await?;
    }
    brokers.start_all()
}

/// Starts the brokers that don't run, though no fault holds them.
fn start_again(brokers: &mut Brokers, held: &[Held]) -> Result<()> {
    let is_held = |id: i32| held.iter().any(|held| held.fault.broker == id);
    brokers.nodes.iter_mut().filter(|node| !node.runs() && !is_held(node.id)).try_for_each(Node::start)
}

async fn end_what_is_over(brokers: &mut Brokers, ledger: &Ledger, held: &mut Vec<Held>) -> Result<()> {
    let now = Instant::now();
    let (over, rest): (Vec<Held>, Vec<Held>) = held.drain(..).partition(|held| held.until <= now);
    *held = rest;
    for held in over {
        say(ledger, &format!("end of {}", held.fault));
        faults::end(brokers, &held.fault).await?;
    }
    Ok(())
}

/// A broker that ends by itself is a problem, each time; it is started again, as whoever runs it would do.
fn notice_deaths(brokers: &mut Brokers, ledger: &Ledger) {
    for node in &mut brokers.nodes {
        if let Some(death) = node.died() {
            ledger.problem(death);
        }
        if node.waits_for_restart()
            && let Err(error) = node.start()
        {
            ledger.problem(format!("{error:#}"));
        }
    }
}

fn say(ledger: &Ledger, text: &str) {
    println!("{:7.1} s  {:9} acknowledged  {text}", ledger.elapsed().as_secs_f64(), ledger.count());
}

/// Loses acknowledged records for certain: a leader alone takes some with acks=1, and then loses its disk.
async fn lose(
    brokers: &mut Brokers,
    ledger: &Ledger,
    topics: &[&str],
    partitions: u16,
    report: &mut Report,
) -> Result<()> {
    use network::Peer;
    let count = brokers.count();
    let cuts: Vec<(Peer, Peer)> =
        (1..count).flat_map(|id| [(0, id), (id, 0)]).map(|(a, b)| (Peer::Broker(a), Peer::Broker(b))).collect();
    cuts.iter().try_for_each(|(from, to)| network::cut(*from, *to))?;
    sleep(Duration::from_secs(2)).await;
    let node = brokers.node(0)?;
    node.kill().await?;
    node.disk.wipe()?;
    say(ledger, "broker 0 took records alone, and has lost its disk");
    *report.faults.entry(Kind::WipeVolume.to_string()).or_default() += 1;
    cuts.iter().try_for_each(|(from, to)| network::mend(*from, *to))?;
    brokers.node(0)?.start()?;
    brokers.all_serve().await?;
    if count == 1 {
        brokers.create_topics(topics, partitions).await?; // they were on the lost disk
    }
    sleep(CALM).await;
    Ok(())
}

/// All is mended: waits until it heals, ends the load, and sees whether groups come to the end.
async fn account(
    brokers: &mut Brokers,
    load: &mut Load,
    ledger: &Ledger,
    topics: &[&str],
    args: &Args,
    report: &mut Report,
) {
    let begin = Instant::now();
    if let Err(error) = brokers.all_serve().await {
        ledger.problem(format!("{error:#}"));
    }
    match brokers.all_in_sync().await {
        Ok(_) => report.healed_after_ms = milliseconds(begin.elapsed()),
        Err(error) => ledger.problem(format!("{error:#}")),
    }
    sleep(CALM).await;
    report.seconds = ledger.elapsed().as_secs();
    ledger.ends();
    if let Err(error) = load.stop_producing().await {
        ledger.problem(format!("{error:#}"));
    }
    if args.prove {
        return; // groups whose records are gone have no end to come to
    }
    say(ledger, "nothing more is sent");
    if let Err(error) = groups_end(brokers, ledger, topics, args.partitions).await {
        ledger.problem(format!("{error:#}"));
    }
}

async fn groups_end(brokers: &Brokers, ledger: &Ledger, topics: &[&str], partitions: u16) -> Result<()> {
    let ends = readback::ends(brokers.client(), topics, partitions).await?;
    let begin = Instant::now();
    loop {
        let next = ledger.next_to_read();
        let behind: Vec<String> = ends
            .iter()
            .filter(|(tp, end)| next.get(tp).is_none_or(|next| next < *end))
            .map(|(tp, end)| format!("{tp} at {} of {end}", next.get(tp).copied().unwrap_or(0)))
            .collect();
        if behind.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > GROUPS_END_WITHIN {
            let group = load::group("*");
            bail!("{group} did not come to the end within {} s: {}", GROUPS_END_WITHIN.as_secs(), behind.join(", "));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Reads all logs, from leaders and on disk, and compares.
async fn finish(
    brokers: &mut Brokers,
    ledger: &Ledger,
    topics: &[&str],
    args: &Args,
    report: &mut Report,
) -> Result<()> {
    let logs = match read_all(brokers, topics, args.partitions).await {
        Ok(logs) => logs,
        Err(error) => {
            ledger.problem(format!("the logs can't be read: {error:#}"));
            BTreeMap::new()
        }
    };
    notice_deaths(brokers, ledger);
    brokers.stop_all().await.into_iter().for_each(|problem| ledger.problem(problem));
    let log_dirs = brokers.nodes.iter().flat_map(|node| node.disk.log_dirs().map(|path| (node.id, path)));
    let log_dirs: Vec<_> = log_dirs.collect();
    let (differences, compared) = readback::compare_replicas(&log_dirs, topics)?;
    report.replicas_compared = compared;
    let (partitions, mut problems, errors) = ledger.take();
    problems.extend(differences);
    problems.extend(brokers.nodes.iter().flat_map(Node::panics));
    report.problems = problems;
    report.client_errors = errors;
    tell(partitions, &logs, report);
    Ok(())
}

async fn read_all(brokers: &Brokers, topics: &[&str], partitions: u16) -> Result<BTreeMap<TopicPartition, Vec<Read>>> {
    let ends = readback::ends(brokers.client(), topics, partitions).await?;
    readback::from_leaders(brokers.client(), &ends).await
}

fn tell(
    partitions: BTreeMap<TopicPartition, Partition>,
    logs: &BTreeMap<TopicPartition, Vec<Read>>,
    report: &mut Report,
) {
    for (tp, partition) in partitions {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let told = PartitionReport {
            acknowledged: count(partition.acknowledged.len()),
            read: count(partition.read.len()),
            longest_unavailability_ms: milliseconds(partition.longest_gap),
            longest_unavailability_at_ms: milliseconds(partition.longest_gap_at),
            // What could not be read is a problem of its own.
            verdict: logs.get(&tp).map(|log| check(&partition, log)).unwrap_or_default(),
        };
        report.add(tp.to_string(), told);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
