//! All brokers of a run: started, looked at, waited for.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_broker_client::admin::{NewTopic, TopicDescription};
use forebay_broker_client::types::ErrorCode;
use forebay_broker_client::{Admin, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::load;
use crate::node::{KAFKA_PORT, Node};
use forebay_e2e_faults::network::Peer;

/// A broker serves within this, its logs checked.
const SERVES_WITHIN: Duration = Duration::from_secs(60);
/// All replicas are in sync within this, once nothing is broken.
const HEALS_WITHIN: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(50);
const ASK_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Brokers {
    pub(crate) nodes: Vec<Node>,
    client: Client,
}

impl Brokers {
    /// Makes disks and configurations.
    pub(crate) fn prepare(count: i32, program: &Path, data: &Path, config: &[String]) -> Result<Self> {
        let nodes = (0..count).map(|id| Node::prepare(id, count, program, data, config));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let client = load::client(&bootstrap(count));
        Ok(Self { nodes, client })
    }

    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.nodes.len()).unwrap_or(i32::MAX)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn node(&mut self, id: i32) -> Result<&mut Node> {
        self.nodes.iter_mut().find(|node| node.id == id).with_context(|| format!("no broker {id}"))
    }

    pub(crate) fn start_all(&mut self) -> Result<()> {
        self.nodes.iter_mut().filter(|node| !node.runs()).try_for_each(Node::start)
    }

    /// Waits until every broker says that it serves.
    pub(crate) async fn all_serve(&self) -> Result<()> {
        for node in &self.nodes {
            serves(node).await?;
        }
        Ok(())
    }

    /// Makes the topics, with as many replicas as a cluster of this size should have.
    pub(crate) async fn create_topics(&self, names: &[&str], partitions: u16) -> Result<()> {
        let admin = Admin::new(self.client.clone());
        let replication_factor = i16::try_from(self.count().min(3)).unwrap_or(3);
        let configs: [(String, String); 1] = [("retention.ms".to_owned(), "-1".to_owned())];
        let topic = |name: &&str| NewTopic {
            name: (*name).to_owned(),
            partitions: i32::from(partitions),
            replication_factor,
            configs: configs.clone().into(),
            ..NewTopic::default()
        };
        let topics: Vec<NewTopic> = names.iter().map(topic).collect();
        let begin = Instant::now();
        // A cluster that has just formed may not yet have unfenced all of its brokers.
        loop {
            let outcome = async {
                for (name, created) in admin.create_topics(&topics, false).await? {
                    // Made by an earlier try whose answer was lost: nobody else makes topics here.
                    if !matches!(&created, Err(refused) if refused.code == ErrorCode::TopicAlreadyExists) {
                        created.with_context(|| format!("topic {name}"))?;
                    }
                }
                anyhow::Ok(())
            };
            match outcome.await {
                Ok(()) => return Ok(()),
                Err(error) if begin.elapsed() > SERVES_WITHIN => return Err(error),
                Err(_) => sleep(ASK_EVERY).await,
            }
        }
    }

    /// What is not in sync now; empty when all is.
    pub(crate) async fn out_of_sync(&self) -> Result<Vec<String>> {
        let topics = Admin::new(self.client.clone()).list_topics().await?;
        let described = topics.into_values().collect::<Result<Vec<TopicDescription>, _>>()?;
        let mut behind = Vec::new();
        for topic in &described {
            for partition in topic.partitions.iter().filter(|p| p.leader.is_none() || p.isr.len() < p.replicas.len()) {
                let leader = partition.leader.map_or("none".to_owned(), |id| id.to_string());
                let of = partition.replicas.len();
                behind.push(format!(
                    "{}-{}: leader {leader}, {} of {of} in sync",
                    topic.name,
                    partition.index,
                    partition.isr.len()
                ));
            }
        }
        Ok(behind)
    }

    /// Waits until every replica is in sync; gives how long it took.
    pub(crate) async fn all_in_sync(&self) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            let told = match self.out_of_sync().await {
                Ok(behind) if behind.is_empty() => return Ok(begin.elapsed()),
                Ok(behind) => format!("{} partitions are not in sync: {}", behind.len(), behind.join("; ")),
                Err(error) => format!("nobody says what is in sync: {error:#}"),
            };
            if begin.elapsed() > HEALS_WITHIN {
                bail!("{} s after the last fault {told}", HEALS_WITHIN.as_secs());
            }
            sleep(ASK_EVERY).await;
        }
    }

    /// SIGTERM to all, one after the other.
    pub(crate) async fn stop_all(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        for node in self.nodes.iter_mut().filter(|node| node.runs()) {
            if let Err(error) = node.stop().await {
                problems.push(format!("{error:#}"));
            }
        }
        problems
    }
}

/// Where clients begin.
pub(crate) fn bootstrap(count: i32) -> String {
    let address = |id| format!("{}:{KAFKA_PORT}", Peer::Broker(id).address());
    (0..count).map(address).collect::<Vec<_>>().join(",")
}

/// Waits until a broker says that it is ready.
pub(crate) async fn serves(node: &Node) -> Result<()> {
    let begin = Instant::now();
    loop {
        if timeout(ASK_WITHIN, is_ready(&node.http())).await.is_ok_and(|ready| ready.unwrap_or(false)) {
            return Ok(());
        }
        if begin.elapsed() > SERVES_WITHIN {
            bail!("broker {} is not ready after {} s: see {}", node.id, SERVES_WITHIN.as_secs(), node.log.display());
        }
        sleep(ASK_EVERY).await;
    }
}

async fn is_ready(address: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}
