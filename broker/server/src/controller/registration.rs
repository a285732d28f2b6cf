//! A broker registers: at its start, and again when the controller has given its life up although the process goes on.

use std::time::Duration;

use anyhow::Context;
use forebay_broker_machines::metadata::{BrokerRegistration, Command, Logs, RegisterError, Reply};
use forebay_broker_storage::LogName;
use forebay_broker_wire::types::PartitionIndex;
use tokio::time::sleep;

use crate::broker::Broker;
use crate::metadata::SubmitError;

/// Waited before a registration that was refused is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);

impl Broker {
    /// Registers this life of the broker, as soon as there is a leader to do it.
    pub(crate) async fn register(&self) -> anyhow::Result<()> {
        let clean = self.partitions.dirs.iter().all(|dir| dir.log_dir.was_clean());
        // With one log dir it is plain what is lost when that is another one.
        let several = self.partitions.dirs.len() + self.failed_dirs.len() > 1;
        let found = several.then(|| by_topic(&self.partitions.logs_found()));
        let vanished: Vec<_> = self.partitions.dirs.iter().flat_map(|dir| dir.log_dir.missing_logs()).collect();
        self.register_as(clean, found, by_topic(vanished.iter())).await
    }

    /// The process goes on, and its logs are what they were.
    pub(super) async fn register_again(&self) {
        if let Err(error) = self.register_as(true, None, Logs::new()).await {
            tracing::error!("{error:#}");
            sleep(TRY_AGAIN).await;
        }
    }

    async fn register_as(&self, clean_shutdown: bool, logs: Option<Logs>, vanished_logs: Logs) -> anyhow::Result<()> {
        let directories = self.partitions.dirs.iter().map(|dir| dir.log_dir.identity().directory_id);
        let failed = self.failed_dirs.iter().filter_map(|dir| dir.directory_id);
        let registration = BrokerRegistration {
            broker_id: self.id(),
            cluster_id: self.cluster_id().to_owned(),
            rack: self.config.rack.clone(),
            endpoints: self.endpoints().to_vec(),
            directories: directories.chain(failed).collect(),
            logs,
            vanished_logs,
            incarnation: self.incarnation,
            clean_shutdown,
        };
        loop {
            match self.metadata.submit(Command::RegisterBroker(registration.clone())).await {
                Ok((Reply::Registered(Ok(broker_epoch)), _)) => {
                    tracing::info!(
                        broker = self.id().0,
                        cluster = self.cluster_id(),
                        epoch = broker_epoch,
                        "registered"
                    );
                    self.set_broker_epoch(broker_epoch);
                    return Ok(());
                }
                // Until the controller has found out that the process which had those disks is gone.
                Ok((Reply::Registered(Err(error @ RegisterError::Duplicate { .. })), _)) => {
                    tracing::warn!(%error, "this broker is not registered yet");
                    sleep(TRY_AGAIN).await;
                }
                Ok((Reply::Registered(Err(error)), _)) => {
                    return Err(error).context("this broker could not be registered");
                }
                Ok((other, _)) => anyhow::bail!("registering this broker was answered by {other:?}"),
                Err(error @ SubmitError::NotDurable { .. }) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "this broker is not registered yet; where that lasts: docs/runbooks/ForebayBrokerDown.md");
                    sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    /// Says that it is ready, and waits until it can be relied on.
    pub(crate) async fn be_relied_on(&self) -> anyhow::Result<()> {
        self.ready.send_replace(true);
        let mut versions = self.metadata.subscribe();
        loop {
            versions.mark_unchanged();
            let image = self.metadata.image();
            if image.broker(self.id()).is_some_and(|known| !known.fenced && known.epoch == self.broker_epoch()) {
                return Ok(());
            }
            tokio::select! {
                changed = versions.changed() => changed.context("the metadata ended")?,
                () = self.shutdown.cancelled() => return Ok(()),
            }
        }
    }
}

fn by_topic<'a>(names: impl IntoIterator<Item = &'a LogName>) -> Logs {
    let mut logs = Logs::new();
    for log in names {
        logs.entry(log.topic.clone()).or_default().push(PartitionIndex(log.partition));
    }
    logs
}
