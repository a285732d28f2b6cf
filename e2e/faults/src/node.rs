//! One broker process in its network namespace, on its disk: started, killed, stopped, frozen. A death that nobody ordered is noticed.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use crate::disk::Disk;
use forebay_e2e_faults::network::{self, Peer};

/// How long a clean stop may take: longer than a controlled shutdown may.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// A broker that ended by itself is started again after this.
const RESTART_AFTER: Duration = Duration::from_secs(2);
pub(crate) const KAFKA_PORT: u16 = 9092;
const CONTROLLER_PORT: u16 = 9093;
const HTTP_PORT: u16 = 9644;
/// The first three brokers vote; of five or more the first five.
fn voters(brokers: i32) -> i32 {
    if brokers >= 5 { 5 } else { brokers.min(3) }
}

/// The broker with one id.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: i32,
    program: PathBuf,
    config: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) disk: Disk,
    child: Option<Child>,
    /// When it ended by itself.
    died_at: Option<Instant>,
}

impl Node {
    /// Makes its disk and writes its configuration; it does not run yet.
    pub(crate) fn prepare(id: i32, brokers: i32, program: &Path, data: &Path, extra: &[String]) -> Result<Self> {
        let folder = data.join(format!("broker-{id}"));
        std::fs::create_dir_all(&folder).with_context(|| format!("can't create {}", folder.display()))?;
        let disk = Disk::make(&folder)?;
        let config = folder.join("broker.properties");
        std::fs::write(&config, properties(id, brokers, &disk.log_dirs(), extra))?;
        let log = folder.join("broker.log");
        Ok(Self { id, program: program.to_path_buf(), config, log, disk, child: None, died_at: None })
    }

    pub(crate) fn http(&self) -> String {
        format!("{}:{HTTP_PORT}", Peer::Broker(self.id).address())
    }

    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Starts the process; it may not serve yet.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.died_at = None;
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = Command::new("nsenter")
            .arg(format!("--net={}", network::path(self.id)))
            .arg("--")
            .arg(&self.program)
            .arg("--config")
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0) // Ctrl-C is for this program, which then ends them
            .spawn()
            .with_context(|| format!("can't start broker {}", self.id))?;
        self.child = Some(child);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.as_ref().and_then(Child::id).and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.with_context(|| format!("broker {} does not run", self.id))?;
        kill_process(pid, signal).with_context(|| format!("can't signal broker {}", self.id))
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        if let Some(mut child) = self.child.take() {
            child.wait().await?;
        }
        Ok(())
    }

    /// SIGTERM; whether it went within its time and said that all is well.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let Ok(status) = timeout(STOP_WITHIN, child.wait()).await else {
            child.kill().await?;
            bail!("broker {} did not stop within {} s of SIGTERM", self.id, STOP_WITHIN.as_secs());
        };
        let status = status?;
        if !status.success() {
            bail!("broker {} ended with {status} after SIGTERM", self.id);
        }
        Ok(())
    }

    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// What it ended with, when it ended though nobody told it to.
    pub(crate) fn died(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        self.died_at = Some(Instant::now());
        Some(format!("broker {} ended by itself with {status}: see {}", self.id, self.log.display()))
    }

    /// Whether it has ended by itself, long enough ago.
    pub(crate) fn waits_for_restart(&mut self) -> bool {
        let waits = self.died_at.is_some_and(|at| at.elapsed() >= RESTART_AFTER);
        if waits {
            self.died_at = None;
        }
        waits
    }

    /// Lines of its log that no broker should ever write.
    pub(crate) fn panics(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let bad = log.lines().filter(|line| line.contains("panicked"));
        bad.map(|line| format!("broker {}: {line}", self.id)).collect()
    }
}

fn properties(id: i32, brokers: i32, log_dirs: &[PathBuf], extra: &[String]) -> String {
    let address = Peer::Broker(id).address();
    let mut lines = vec![
        format!("node.id={id}"),
        format!("forebay.http.listener={address}:{HTTP_PORT}"),
        format!("log.dirs={}", log_dirs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")),
        // So slow that replicas are still on their way when something happens to their broker.
        "replica.alter.log.dirs.io.max.bytes.per.second=2000000".to_owned(),
        "default.replication.factor=".to_owned() + &brokers.min(3).to_string(),
        "offsets.topic.replication.factor=".to_owned() + &brokers.min(3).to_string(),
        // Few, so that each broker coordinates some group soon.
        "offsets.topic.num.partitions=6".to_owned(),
        // Producers ask for their topics while those are being made.
        "auto.create.topics.enable=false".to_owned(),
    ];
    let kafka = format!("PLAINTEXT://{address}:{KAFKA_PORT}");
    if brokers == 1 {
        lines.push(format!("listeners={kafka}"));
        lines.push(format!("advertised.listeners={kafka}"));
    } else {
        let controller = format!("CONTROLLER://{address}:{CONTROLLER_PORT}");
        lines.push(format!("listeners={kafka},{controller}"));
        lines.push(format!("advertised.listeners={kafka},{controller}"));
        let voter = |id| format!("{id}@{}:{CONTROLLER_PORT}", Peer::Broker(id).address());
        lines.push(format!(
            "controller.quorum.voters={}",
            (0..voters(brokers)).map(voter).collect::<Vec<_>>().join(",")
        ));
        lines.push("forebay.cluster.id=ZmF1bHRzLWNsdXN0ZXItMQ".to_owned());
        lines.push("min.insync.replicas=2".to_owned());
    }
    lines.extend(extra.iter().cloned());
    lines.join("\n") + "\n"
}
