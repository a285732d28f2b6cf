//! One broker as a child process: started, watched until it serves, started again when it dies, stopped cleanly.
//!
//! A child never outlives `up`: its standard input is a pipe from here, and it stops when the pipe ends, however `up` ended.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use forebay_broker_config::status::{BrokerState as Reported, BrokerStatus};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::settings::Ports;
use crate::http;

/// The first argument of a broker that stops when its standard input ends.
pub(crate) const FOLLOW_STDIN: &str = "--follow-stdin";

/// How often a broker that starts is asked whether it serves.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Progress of a long start is told so often; a short one needs no telling.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long a clean stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// A broker that ran so long starts again without a pause.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// What is shown of a log whose broker never served.
const LOG_TAIL_BYTES: u64 = 2_000;

/// One broker to run.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    pub(crate) id: i32,
    /// Its properties file.
    pub(crate) config: PathBuf,
    /// Where its output goes.
    pub(crate) log: PathBuf,
    pub(crate) ports: Ports,
}

/// What a broker is doing, as seen from here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: Option<u32>,
    pub(crate) serves: bool,
    pub(crate) restarts: u32,
    /// Why it can't run at all: it died before it served for the first time.
    pub(crate) failed: Option<String>,
}

/// How to end: `gently` asks the broker to stop, `now` kills it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    pub(crate) gently: CancellationToken,
    pub(crate) now: CancellationToken,
}

impl Stop {
    /// Kills; also one that has not been asked to stop yet.
    pub(crate) fn at_once(&self) {
        self.now.cancel();
        self.gently.cancel();
    }
}

/// Keeps a broker running until told to stop. Ends early when it never came to serve.
pub(crate) async fn supervise(broker: Broker, seen: watch::Sender<Seen>, stop: Stop) {
    let mut deaths_in_a_row = 0;
    loop {
        let began = Instant::now();
        let how = run_once(&broker, &seen, &stop).await;
        seen.send_modify(|s| s.pid = None);
        let died = match how {
            Ok(Ended::Stopped) => return,
            Ok(Ended::Died(status)) => format!("broker {} died ({})", broker.id, described(status)),
            Err(error) => format!("broker {} can't be started: {error:#}", broker.id),
        };
        if !seen.borrow().serves {
            let failed = format!("{died}; the end of {}:\n{}", broker.log.display(), tail(&broker.log));
            seen.send_modify(|s| s.failed = Some(failed));
            return;
        }
        deaths_in_a_row = if began.elapsed() >= STEADY_AFTER { 0 } else { deaths_in_a_row + 1 };
        let pause = pause_after(deaths_in_a_row);
        eprintln!("{died}; starting it again in {:.1} s", pause.as_secs_f64());
        seen.send_modify(|s| s.restarts += 1);
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.gently.cancelled() => return,
        }
    }
}

/// The pause before a broker is started again: it doubles with each death in a row, up to half a minute.
fn pause_after(deaths_in_a_row: u32) -> Duration {
    match deaths_in_a_row {
        0 => Duration::ZERO,
        n => Duration::from_millis(500 * (1 << (n - 1).min(6))).min(Duration::from_secs(30)),
    }
}

fn described(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[derive(Debug)]
enum Ended {
    Stopped,
    Died(ExitStatus),
}

async fn run_once(broker: &Broker, seen: &watch::Sender<Seen>, stop: &Stop) -> anyhow::Result<Ended> {
    let mut child = spawn(broker)?;
    let _pipe = child.stdin.take(); // waiting for a child closes its standard input, which would stop it
    let pid = child.id().context("it ended at once")?;
    seen.send_modify(|s| s.pid = Some(pid));
    tokio::select! {
        status = child.wait() => return Ok(Ended::Died(status?)),
        () = stop.gently.cancelled() => {}
        never = serve(broker, pid, seen) => match never {},
    }
    end(broker, &mut child, pid, stop).await?;
    Ok(Ended::Stopped)
}

fn spawn(broker: &Broker) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("can't find this program")?;
    let open = || OpenOptions::new().create(true).append(true).open(&broker.log);
    let log = open().with_context(|| format!("can't open {}", broker.log.display()))?;
    let child = Command::new(program)
        .args(["broker", FOLLOW_STDIN, "--config"])
        .arg(&broker.config)
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Its own process group: Ctrl-C goes to `up` alone, which then stops its brokers in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

/// Tells when the broker serves, and how far it is until then; then waits for ever.
async fn serve(broker: &Broker, pid: u32, seen: &watch::Sender<Seen>) -> std::convert::Infallible {
    let began = Instant::now();
    let (mut told, mut told_at) = (String::new(), began);
    loop {
        // Another process may answer on the port while ours fails to bind it.
        if let Some(status) = http::status(&broker.ports.http_address()).await.ok().filter(|s| s.pid == pid) {
            if status.state == Reported::Running {
                break;
            }
            let progress = progress(broker.id, &status);
            if !progress.is_empty() && progress != told && told_at.elapsed() >= TELL_EVERY {
                eprintln!("{progress}");
                (told, told_at) = (progress, Instant::now());
            }
        }
        sleep(ASK_EVERY).await;
    }
    eprintln!("broker {} serves on {} after {} ms", broker.id, broker.ports.address(), began.elapsed().as_millis());
    seen.send_modify(|s| s.serves = true);
    std::future::pending().await
}

fn progress(id: i32, status: &BrokerStatus) -> String {
    match status.recovery {
        Some(recovery) if status.state == Reported::Recovering && recovery.partitions_total == 0 => {
            format!("broker {id} waits for the others")
        }
        Some(recovery) if status.state == Reported::Recovering => {
            format!("broker {id} checks its logs: {} of {}", recovery.partitions_done, recovery.partitions_total)
        }
        _ => String::new(),
    }
}

async fn end(broker: &Broker, child: &mut Child, pid: u32, stop: &Stop) -> anyhow::Result<()> {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::TERM).with_context(|| format!("can't stop broker {}", broker.id))?;
    }
    tokio::select! {
        status = timeout(STOP_WITHIN, child.wait()) => match status {
            Ok(status) => {
                let status = status?;
                if !status.success() {
                    eprintln!("broker {} stopped with {}", broker.id, described(status));
                }
                return Ok(());
            }
            Err(_) => eprintln!("broker {} did not stop within {} s; killing it", broker.id, STOP_WITHIN.as_secs()),
        },
        () = stop.now.cancelled() => eprintln!("killing broker {}", broker.id),
    }
    child.kill().await.with_context(|| format!("can't kill broker {}", broker.id))
}

fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    };
    read().unwrap_or_else(|error| format!("(can't be read: {error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute_and_begin_anew_after_a_steady_run() {
        let pauses: Vec<u128> = (0..9).map(|n| pause_after(n).as_millis()).collect();
        assert_eq!(pauses, [0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    }
}
