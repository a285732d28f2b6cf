//! Three brokers of one make, each in its network namespace: Forebay's, or Apache Kafka's from its published artifacts (combined
//! nodes, settings as shipped).

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use forebay_broker_config::{Settings, add_cluster_settings, render_properties, voter_count};
use forebay_e2e_faults::network::{self, Peer};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

const KAFKA_PORT: u16 = 9092;
const CONTROLLER_PORT: u16 = 9093;
/// 22 characters that both take for a cluster's id.
const CLUSTER_ID: &str = "ZmFpbG92ZXItY2x1c3Rlcg";
/// Java's, as Kafka's own start script has them.
pub(crate) const JAVA: [&str; 7] = [
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Djava.awt.headless=true",
];

/// Whose brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Make {
    Forebay,
    Kafka,
}

impl std::fmt::Display for Make {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forebay => "Forebay",
            Self::Kafka => "Kafka",
        })
    }
}

#[derive(Debug)]
struct Node {
    id: i32,
    child: Option<Child>,
}

#[derive(Debug)]
pub(super) struct Cluster {
    make: Make,
    program: PathBuf,
    /// Kafka's jars.
    jars: String,
    folder: TempDir,
    nodes: Vec<Node>,
}

impl Cluster {
    /// Configures and starts all brokers; they may not serve yet.
    pub(super) fn start(make: Make, brokers: i32, program: &Path) -> Result<Self> {
        let jars = if make == Make::Kafka { kafka_jars()? } else { String::new() };
        let nodes = (0..brokers).map(|id| Node { id, child: None }).collect();
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let mut cluster = Self { make, program: program.to_path_buf(), jars, folder, nodes };
        for id in cluster.ids() {
            let logs = cluster.path(id, "logs");
            std::fs::create_dir_all(&logs)?;
            std::fs::write(cluster.path(id, "server.properties"), render_properties(&cluster.settings(id, &logs)))?;
            if make == Make::Kafka {
                cluster.format(id)?;
            }
        }
        cluster.ids().into_iter().try_for_each(|id| cluster.start_one(id))?;
        Ok(cluster)
    }

    pub(super) fn make(&self) -> Make {
        self.make
    }

    pub(super) fn ids(&self) -> Vec<i32> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    pub(super) fn bootstrap(&self) -> String {
        let address = |id| format!("{}:{KAFKA_PORT}", Peer::Broker(id).address());
        self.ids().into_iter().map(address).collect::<Vec<_>>().join(",")
    }

    fn path(&self, id: i32, name: &str) -> PathBuf {
        self.folder.path().join(format!("broker-{id}")).join(name)
    }

    fn settings(&self, id: i32, logs: &Path) -> Settings {
        let address = Peer::Broker(id).address();
        let (kafka, controller) =
            (format!("PLAINTEXT://{address}:{KAFKA_PORT}"), format!("CONTROLLER://{address}:{CONTROLLER_PORT}"));
        let mut settings = Settings::from([
            ("node.id".to_owned(), id.to_string()),
            ("listeners".to_owned(), format!("{kafka},{controller}")),
            ("log.dirs".to_owned(), logs.display().to_string()),
            ("controller.listener.names".to_owned(), "CONTROLLER".to_owned()),
            ("offsets.topic.replication.factor".to_owned(), "3".to_owned()),
        ]);
        let brokers = i32::try_from(self.nodes.len()).unwrap_or(i32::MAX);
        let address_of = |id| format!("{}:{CONTROLLER_PORT}", Peer::Broker(id).address());
        add_cluster_settings(&mut settings, voter_count(brokers), CLUSTER_ID, address_of);
        let mut set = |name: &str, value: String| drop(settings.insert(name.to_owned(), value));
        match self.make {
            Make::Forebay => {
                set("advertised.listeners", format!("{kafka},{controller}"));
                set("forebay.http.listener", format!("{address}:9644"));
            }
            Make::Kafka => {
                set("advertised.listeners", kafka);
                set("process.roles", "broker,controller".to_owned());
                set("inter.broker.listener.name", "PLAINTEXT".to_owned());
                let map = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT";
                set("listener.security.protocol.map", map.to_owned());
                settings.remove("forebay.cluster.id");
            }
        }
        settings
    }

    fn format(&self, id: i32) -> Result<()> {
        let config = self.path(id, "server.properties");
        let output = std::process::Command::new("java")
            .args(["-cp", &self.jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"])
            .arg(config)
            .output()
            .context("can't start java")?;
        if !output.status.success() {
            bail!("kafka-storage format: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    fn node(&mut self, id: i32) -> Result<&mut Node> {
        self.nodes.iter_mut().find(|node| node.id == id).with_context(|| format!("no broker {id}"))
    }

    /// Starts one broker again.
    pub(super) fn start_one(&mut self, id: i32) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.path(id, "server.log"))?;
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", network::path(id))).arg("--");
        let config = self.path(id, "server.properties");
        match self.make {
            Make::Forebay => command.arg(&self.program).arg("--config").arg(config),
            Make::Kafka => command.arg("java").args(JAVA).args(["-cp", &self.jars, "kafka.Kafka"]).arg(config),
        };
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("can't start broker {id}"))?;
        self.node(id)?.child = Some(child);
        Ok(())
    }

    async fn signal(&mut self, id: i32, signal: Signal) -> Result<()> {
        let mut child = self.node(id)?.child.take().with_context(|| format!("broker {id} does not run"))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        kill_process(pid.with_context(|| format!("broker {id} has ended by itself"))?, signal)?;
        child.wait().await?;
        Ok(())
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self, id: i32) -> Result<()> {
        self.signal(id, Signal::KILL).await
    }

    /// SIGTERM; comes back when it is gone.
    pub(super) async fn stop(&mut self, id: i32) -> Result<()> {
        self.signal(id, Signal::TERM).await
    }

    /// The ends of all logs, for errors.
    pub(super) fn log_tails(&self) -> String {
        let tail = |id| {
            let log = std::fs::read_to_string(self.path(id, "server.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!("broker {id}:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        self.ids().into_iter().map(tail).collect::<Vec<_>>().join("\n")
    }

    /// Kills all, as nothing is measured any more, and waits until their addresses are free.
    pub(super) async fn end(mut self) -> Result<()> {
        for node in &mut self.nodes {
            if let Some(child) = &mut node.child {
                child.kill().await?;
            }
        }
        Ok(())
    }
}

/// The jars of Apache Kafka's broker, gathered once from its published artifacts.
pub(crate) fn kafka_jars() -> Result<String> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/compat/tools");
    let output = std::process::Command::new(tools).arg("jars").stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("e2e/compat/tools jars: {}", output.status);
    }
    Ok(format!("{}/*", String::from_utf8_lossy(&output.stdout).trim()))
}
