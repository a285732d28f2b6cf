//! One broker of either make on this machine: Forebay's as released, or Apache Kafka's from its published artifacts (a combined node,
//! settings and heap as shipped). What it costs is read from /proc.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use forebay_broker_client::admin::NewTopic;
use forebay_broker_client::{Admin, Client, ClientConfig};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use tempfile::TempDir;

use crate::broker::until_works;
use crate::failover::{JAVA, kafka_jars};

const STARTS_WITHIN: Duration = Duration::from_secs(120);
const CLUSTER_ID: &str = "YmVuY2gtb25lLWJyb2tlcg";
/// Kafka's, as the server.properties that it ships has them.
const SHIPPED: &str = "num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\nsocket.receive.buffer.bytes=102400\n\
    socket.request.max.bytes=104857600\nnum.recovery.threads.per.data.dir=2\noffsets.topic.replication.factor=1\n\
    transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nshare.coordinator.state.topic.replication.factor=1\n\
    share.coordinator.state.topic.min.isr=1\nlog.retention.hours=168\nlog.segment.bytes=1073741824\n";

/// Whose broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Make {
    Forebay,
    Kafka,
}

impl std::fmt::Display for Make {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Forebay => "Forebay",
            Self::Kafka => "Kafka",
        })
    }
}

/// What a process has used at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mib: f64,
    pub(crate) peak_mib: f64,
}

#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) make: Make,
    program: PathBuf,
    jars: String,
    folder: TempDir,
    address: String,
    child: Option<Child>,
}

impl Side {
    /// Configures a broker with an empty data folder; it does not run yet.
    pub(crate) fn prepare(make: Make, program: &Path, settings: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let free = || -> Result<u16> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
        let (kafka, other) = (free()?, free()?);
        let logs = folder.path().join("logs");
        std::fs::create_dir(&logs)?;
        let mut properties = format!(
            "node.id=1\nlog.dirs={}\nadvertised.listeners=PLAINTEXT://127.0.0.1:{kafka}\n{}\n",
            logs.display(),
            settings.join("\n")
        );
        properties += &match make {
            Make::Forebay => {
                format!("listeners=PLAINTEXT://127.0.0.1:{kafka}\nforebay.http.listener=127.0.0.1:{other}\n")
            }
            Make::Kafka => format!(
                "process.roles=broker,controller\nlisteners=PLAINTEXT://127.0.0.1:{kafka},CONTROLLER://127.0.0.1:{other}\n\
                 controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{other}\n{SHIPPED}"
            ),
        };
        std::fs::write(folder.path().join("server.properties"), properties)?;
        let jars = if make == Make::Kafka { kafka_jars()? } else { String::new() };
        let address = format!("127.0.0.1:{kafka}");
        let side = Self { make, program: program.to_path_buf(), jars, folder, address, child: None };
        if make == Make::Kafka {
            side.format()?;
        }
        Ok(side)
    }

    fn format(&self) -> Result<()> {
        let mut command = Command::new("java");
        command.args(["-cp", &self.jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
        let output = command.arg(self.folder.path().join("server.properties")).output().context("can't start java")?;
        if !output.status.success() {
            bail!("kafka-storage format: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Starts the process; it may not listen yet.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.child = Some(start_server(self.make, &self.program, &self.jars, self.folder.path())?);
        Ok(())
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn up(&mut self) -> Result<()> {
        self.start()?;
        self.admin().await.map(drop)
    }

    pub(crate) async fn admin(&self) -> Result<Admin> {
        let connect = async || Client::connect(&self.address, ClientConfig::default()).await;
        let client = until_works(STARTS_WITHIN, connect).await;
        Ok(Admin::new(client.with_context(|| format!("{}; the end of its log:\n{}", self.make, self.log_tail()))?))
    }

    pub(crate) async fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<()> {
        let topic = NewTopic {
            name: name.to_owned(),
            partitions,
            replication_factor: 1,
            configs: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..NewTopic::default()
        };
        let admin = self.admin().await?;
        until_works(STARTS_WITHIN, async || {
            for (_, created) in admin.create_topics(std::slice::from_ref(&topic), false).await? {
                created?;
            }
            anyhow::Ok(())
        })
        .await
    }

    pub(crate) async fn delete_topic(&self, name: &str) -> Result<()> {
        for (_, deleted) in self.admin().await?.delete_topics(&[name]).await? {
            deleted?;
        }
        Ok(())
    }

    /// SIGTERM or SIGKILL; comes back when it is gone, and says how long that took.
    pub(crate) fn end(&mut self, signal: Signal) -> Result<Duration> {
        let Some(mut child) = self.child.take() else { return Ok(Duration::ZERO) };
        let began = Instant::now();
        kill_process(Pid::from_raw(child.id().cast_signed()).context("no process id")?, signal)?;
        child.wait()?;
        Ok(began.elapsed())
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the broker does not run")?.id())
    }

    fn proc(&self, file: &str) -> Result<String> {
        let id = self.pid()?;
        let path = format!("/proc/{id}/{file}");
        std::fs::read_to_string(&path).with_context(|| format!("can't read {path}"))
    }

    /// Lets the peak of its memory count from now on.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        let id = self.pid()?;
        Ok(std::fs::write(format!("/proc/{id}/clear_refs"), "5")?)
    }

    /// CPU of all its threads, and its memory.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let status = self.proc("status")?;
        let mib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
        };
        let cpu_seconds = crate::broker::cpu_seconds(&self.proc("stat")?).context("can't read the CPU time")?;
        Ok(Usage { cpu_seconds, resident_mib: mib("VmRSS:"), peak_mib: mib("VmHWM:") })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // After an error; nothing is left to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a broker on its folder, which has its `server.properties` and gets its `server.log`.
pub(crate) fn start_server(make: Make, program: &Path, jars: &str, folder: &Path) -> Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("server.log"))?;
    let config = folder.join("server.properties");
    let mut command = match make {
        Make::Forebay => {
            let mut command = Command::new(program);
            command.arg("--config").arg(config);
            command
        }
        Make::Kafka => {
            let mut command = Command::new("java");
            command.args(JAVA).args(["-cp", jars, "kafka.Kafka"]).arg(config);
            command
        }
    };
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("can't start {make}"))
}
