//! Producers and consumers that go on whatever happens, and write in the ledger what they were told. Our own client has topic `own`,
//! librdkafka (by confluent-kafka) has topic `librdkafka`; each has a group of two members that commit what they have read.

mod commits;
mod librdkafka;
pub(crate) mod own;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use forebay_broker_client::{Client, ClientConfig};
use tokio::task::JoinSet;

use crate::ledger::Ledger;
use librdkafka::Librdkafka;

pub(crate) const OWN: &str = "own";
pub(crate) const LIBRDKAFKA: &str = "librdkafka";
/// A group is called after its topic.
pub(crate) fn group(topic: &str) -> String {
    format!("faults-{topic}")
}

/// What has been sent is acknowledged within this once all faults are over.
const DRAIN_WITHIN: Duration = Duration::from_secs(90);

/// How clients behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) partitions: u16,
    /// Records a second and partition.
    pub(crate) rate: u32,
    /// acks=all and idempotence; otherwise acks=1.
    pub(crate) safe: bool,
}

/// All clients of a run.
#[derive(Debug)]
pub(crate) struct Load {
    stop_producing: Arc<AtomicBool>,
    producers: JoinSet<()>,
    /// Consumers and whoever looks at commits.
    readers: JoinSet<()>,
    librdkafka: Option<Librdkafka>,
}

/// Our client, impatient: it goes on to another broker soon.
pub(crate) fn client(bootstrap: &str) -> Client {
    let config = ClientConfig {
        client_id: "faults".to_owned(),
        connect_timeout: Duration::from_secs(1),
        request_timeout: Duration::from_secs(3),
        operation_timeout: Duration::from_secs(20),
        retry_backoff: Duration::from_millis(20),
        ..ClientConfig::default()
    };
    Client::new(bootstrap, config)
}

impl Load {
    /// Starts all of them.
    pub(crate) fn start(
        bootstrap: &str,
        manner: Manner,
        python: Option<&std::path::Path>,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let stop_producing = Arc::new(AtomicBool::new(false));
        let (mut producers, mut readers) = (JoinSet::new(), JoinSet::new());
        for partition in 0..i32::from(manner.partitions) {
            let stop = Arc::clone(&stop_producing);
            producers.spawn(own::produce(client(bootstrap), partition, manner, stop, Arc::clone(ledger)));
        }
        for _ in 0..2 {
            readers.spawn(own::consume(client(bootstrap), Arc::clone(ledger)));
        }
        let mut topics = vec![OWN];
        let librdkafka = match python {
            Some(python) => {
                topics.push(LIBRDKAFKA);
                Some(Librdkafka::start(python, bootstrap, manner, Arc::clone(ledger))?)
            }
            None => None,
        };
        for topic in topics {
            readers.spawn(commits::look(client(bootstrap), topic, Arc::clone(ledger)));
        }
        Ok(Self { stop_producing, producers, readers, librdkafka })
    }

    /// Ends producing; whatever is on its way must be acknowledged soon.
    pub(crate) async fn stop_producing(&mut self) -> Result<()> {
        self.stop_producing.store(true, Ordering::Relaxed);
        let all = async {
            while self.producers.join_next().await.is_some() {}
            if let Some(librdkafka) = &mut self.librdkafka {
                librdkafka.stop_producing().await?;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(DRAIN_WITHIN, all).await {
            Ok(outcome) => outcome,
            Err(_) => {
                bail!("producers still wait for acknowledgements {} s after the last fault", DRAIN_WITHIN.as_secs())
            }
        }
    }

    /// Ends the consumers.
    pub(crate) async fn stop(mut self) {
        self.readers.shutdown().await;
        self.producers.shutdown().await;
        if let Some(librdkafka) = self.librdkafka {
            librdkafka.stop().await;
        }
    }
}
