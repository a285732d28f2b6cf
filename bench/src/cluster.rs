//! Several brokers of one make as one cluster on this machine: Forebay's as released, or Apache Kafka's from its published artifacts
//! (combined nodes, settings and heap as shipped). What they cost is read from /proc.
//!
//! What must hold: both makes get the same brokers, voters and topics; after an error no process is left.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forebay_broker_client::admin::{NewTopic, PartitionDescription, TopicDescription};
use forebay_broker_client::{Admin, Client, ClientConfig};
use forebay_broker_config::{Settings, add_cluster_settings, render_properties, voter_count};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::broker::until_works;
use crate::compare::Make;
use crate::compare::side::start_server;
use crate::failover::kafka_jars;

const STARTS_WITHIN: Duration = Duration::from_secs(120);
const SETTLES_WITHIN: Duration = Duration::from_secs(120);
const CLUSTER_ID: &str = "YmVuY2gtY2x1c3Rlci0wMQ";
/// Kafka's, as the server.properties that it ships has them, with its own topics on three brokers.
const SHIPPED: [(&str, &str); 13] = [
    ("process.roles", "broker,controller"),
    ("num.network.threads", "3"),
    ("num.io.threads", "8"),
    ("socket.send.buffer.bytes", "102400"),
    ("socket.receive.buffer.bytes", "102400"),
    ("socket.request.max.bytes", "104857600"),
    ("num.recovery.threads.per.data.dir", "2"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.min.isr", "2"),
    ("share.coordinator.state.topic.replication.factor", "3"),
    ("share.coordinator.state.topic.min.isr", "2"),
    ("log.retention.hours", "168"),
    ("log.segment.bytes", "1073741824"),
];

/// What all processes have used at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mib: f64,
    pub(crate) peak_mib: f64,
    /// How often a thread went to sleep and was woken again.
    pub(crate) wakeups: f64,
}

#[derive(Debug)]
struct Node {
    ports: Ports,
    child: Option<Child>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    kafka: u16,
    controller: u16,
    http: u16,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) make: Make,
    program: PathBuf,
    jars: String,
    folder: TempDir,
    nodes: Vec<Node>,
}

impl Cluster {
    /// Configures and starts all brokers, and waits until each knows all of them.
    pub(crate) async fn start(make: Make, brokers: usize, program: &Path, settings: &[(&str, &str)]) -> Result<Self> {
        let jars = if make == Make::Kafka { kafka_jars()? } else { String::new() };
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let nodes = free_ports(brokers)?.into_iter().map(|ports| Node { ports, child: None }).collect();
        let mut cluster = Self { make, program: program.to_path_buf(), jars, folder, nodes };
        for id in 0..brokers {
            std::fs::create_dir_all(cluster.path(id, "logs"))?;
            let mut all = cluster.settings(id);
            all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            std::fs::write(cluster.path(id, "server.properties"), render_properties(&all))?;
            if make == Make::Kafka {
                cluster.format(id)?;
            }
        }
        (0..brokers).try_for_each(|id| cluster.start_one(id))?;
        cluster.all_are_up().await.with_context(|| format!("{make}:\n{}", cluster.log_tails()))?;
        Ok(cluster)
    }

    async fn all_are_up(&self) -> Result<()> {
        for node in &self.nodes {
            let address = format!("127.0.0.1:{}", node.ports.kafka);
            let quick = || ClientConfig { operation_timeout: Duration::ZERO, ..ClientConfig::default() };
            until_works(STARTS_WITHIN, async || {
                let known = Admin::connect(&address, quick()).await?.describe_cluster().await?.brokers.len();
                ensure!(known == self.nodes.len(), "{address} knows {known} brokers");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    pub(crate) fn bootstrap(&self) -> String {
        let address = |node: &Node| format!("127.0.0.1:{}", node.ports.kafka);
        self.nodes.iter().map(address).collect::<Vec<_>>().join(",")
    }

    fn path(&self, id: usize, name: &str) -> PathBuf {
        self.folder.path().join(format!("broker-{id}")).join(name)
    }

    fn settings(&self, id: usize) -> Settings {
        let Ports { kafka, controller, http } = self.nodes[id].ports;
        let (kafka, controllers) =
            (format!("PLAINTEXT://127.0.0.1:{kafka}"), format!("CONTROLLER://127.0.0.1:{controller}"));
        let mut settings = Settings::from([
            ("node.id".to_owned(), id.to_string()),
            ("listeners".to_owned(), format!("{kafka},{controllers}")),
            ("log.dirs".to_owned(), self.path(id, "logs").display().to_string()),
            ("controller.listener.names".to_owned(), "CONTROLLER".to_owned()),
            ("offsets.topic.replication.factor".to_owned(), "3".to_owned()),
        ]);
        let voters = voter_count(i32::try_from(self.nodes.len()).unwrap_or(i32::MAX));
        let address = |id: i32| {
            let node = usize::try_from(id).ok().and_then(|id| self.nodes.get(id));
            node.map_or_else(String::new, |node| format!("127.0.0.1:{}", node.ports.controller))
        };
        add_cluster_settings(&mut settings, voters, CLUSTER_ID, address);
        match self.make {
            Make::Forebay => {
                settings.insert("advertised.listeners".to_owned(), format!("{kafka},{controllers}"));
                settings.insert("forebay.http.listener".to_owned(), format!("127.0.0.1:{http}"));
            }
            Make::Kafka => {
                settings.insert("advertised.listeners".to_owned(), kafka);
                settings.extend(SHIPPED.map(|(name, value)| (name.to_owned(), value.to_owned())));
                settings.remove("forebay.cluster.id");
                if id >= usize::try_from(voters).unwrap_or(usize::MAX) {
                    settings.insert("process.roles".to_owned(), "broker".to_owned());
                    settings.insert("listeners".to_owned(), settings["advertised.listeners"].clone());
                }
            }
        }
        settings
    }

    fn format(&self, id: usize) -> Result<()> {
        let mut command = Command::new("java");
        command.args(["-cp", &self.jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
        let output = command.arg(self.path(id, "server.properties")).output().context("can't start java")?;
        ensure!(output.status.success(), "kafka-storage format: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn start_one(&mut self, id: usize) -> Result<()> {
        let started = start_server(self.make, &self.program, &self.jars, &self.path(id, ""))?;
        self.nodes[id].child = Some(started);
        Ok(())
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::new(Client::new(&self.bootstrap(), ClientConfig::default()))
    }

    /// Makes a topic and waits until all its replicas are in sync.
    pub(crate) async fn create_topic(&self, topic: NewTopic) -> Result<()> {
        let admin = self.admin();
        until_works(STARTS_WITHIN, async || {
            for (_, created) in admin.create_topics(std::slice::from_ref(&topic), false).await? {
                created?;
            }
            anyhow::Ok(())
        })
        .await?;
        self.wait_for(&topic.name, "not all replicas are in sync", in_sync).await
    }

    /// Waits until a topic looks as wanted.
    pub(crate) async fn wait_for(
        &self,
        topic: &str,
        otherwise: &str,
        is_so: impl Fn(&TopicDescription) -> bool,
    ) -> Result<()> {
        let (admin, began) = (self.admin(), Instant::now());
        loop {
            if admin.describe_topics(&[topic]).await?.remove(topic).is_some_and(|found| found.is_ok_and(|t| is_so(&t)))
            {
                return Ok(());
            }
            ensure!(began.elapsed() < SETTLES_WITHIN, "{} {topic}: {otherwise}", self.make);
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn delete_topic(&self, name: &str) -> Result<()> {
        for (_, deleted) in self.admin().delete_topics(&[name]).await? {
            deleted?;
        }
        Ok(())
    }

    fn process(&self, id: usize) -> Result<u32> {
        let child = self.nodes[id].child.as_ref().context("the broker does not run")?;
        Ok(child.id())
    }

    /// Lets the peaks of memory count from now on.
    pub(crate) fn forget_peaks(&self) -> Result<()> {
        for id in 0..self.nodes.len() {
            std::fs::write(format!("/proc/{}/clear_refs", self.process(id)?), "5")?;
        }
        Ok(())
    }

    /// Of each broker.
    pub(crate) fn usages(&self) -> Result<Vec<Usage>> {
        (0..self.nodes.len()).map(|id| usage_of(self.process(id)?)).collect()
    }

    /// CPU of all of them.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        Ok(self.usages()?.iter().map(|usage| usage.cpu_seconds).sum())
    }

    /// The ends of all logs, for errors.
    pub(crate) fn log_tails(&self) -> String {
        let tail = |id| {
            let log = std::fs::read_to_string(self.path(id, "server.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!("broker {id}:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        (0..self.nodes.len()).map(tail).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().filter_map(|node| node.child.as_mut()) {
            // Nothing is measured any more.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Every partition has a leader, and all its replicas are in sync.
pub(crate) fn in_sync(topic: &TopicDescription) -> bool {
    let whole = |partition: &PartitionDescription| {
        partition.leader.is_some() && partition.isr.len() == partition.replicas.len()
    };
    !topic.partitions.is_empty() && topic.partitions.iter().all(whole)
}

/// Held together until all are known, so that none comes twice.
fn free_ports(brokers: usize) -> Result<Vec<Ports>> {
    let held: Vec<_> = (0..brokers * 3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let ports: Vec<u16> =
        held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<std::io::Result<_>>()?;
    let (three, _) = ports.as_chunks::<3>();
    Ok(three
        .iter()
        .map(|[kafka, controller, http]| Ports { kafka: *kafka, controller: *controller, http: *http })
        .collect())
}

/// What a process has used so far.
pub(crate) fn usage_of(process: u32) -> Result<Usage> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let read = |file: &Path| std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()));
    let (stat, status) = (read(&folder.join("stat"))?, read(&folder.join("status"))?);
    let mut wakeups = 0.0;
    for thread in std::fs::read_dir(folder.join("task"))? {
        // A thread may have ended since.
        let status = std::fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        wakeups += number(&status, "voluntary_ctxt_switches:").unwrap_or_default();
    }
    Ok(Usage {
        cpu_seconds: crate::broker::cpu_seconds(&stat).context("can't read the CPU time")?,
        resident_mib: number(&status, "VmRSS:").context("can't read the memory")? / 1024.0,
        peak_mib: number(&status, "VmHWM:").context("can't read the peak of memory")? / 1024.0,
        wakeups,
    })
}

fn number(status: &str, name: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
