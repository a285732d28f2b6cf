//! The controller's work, where the quorum's leader is: fences and unfences brokers, looks after those whose connections broke, gives
//! preferred leaders their partitions back.
//!
//! What must hold: what this broker decides as the controller is decided here or not at all: it is never handed to another one, whose
//! memory of the brokers is newer. Nothing wakes a broker that is alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_machines::metadata::{BrokerLife, Command, ElectionKind, MetadataImage, Settings};
use futures::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::balance::{self, Unable};
use super::session_machine::{Action, Found, Why};
use crate::broker::Broker;
use crate::metadata::elections;
use crate::quorum::{Address, ControllerReply, Leadership};

/// Waited after something could not be done.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Acts whenever this broker is the controller, until `stop` is cancelled.
pub(crate) async fn run(broker: Arc<Broker>, stop: CancellationToken) {
    let mut leadership = broker.metadata.leadership();
    let mut former = None;
    loop {
        let now = *leadership.borrow_and_update();
        if !now.here {
            former = now.leader.filter(|leader| *leader != broker.id()).or(former);
            let stopping = tokio::select! {
                () = stop.cancelled() => true,
                changed = leadership.changed() => changed.is_err(),
            };
            if stopping {
                return;
            }
            continue;
        }
        let term = now.term;
        tracing::info!(term, "this broker is the controller");
        let former = former.take().zip(broker.metadata.quorum().leader_silent_for());
        broker.sessions.begin(&broker.metadata.image(), former);
        tokio::select! {
            () = stop.cancelled() => return broker.sessions.end(),
            () = Term { broker: &broker, probes: JoinSet::new(), balance_at: None }.act() => {}
            () = over(leadership.clone(), term) => tracing::info!(term, "this broker is the controller no more"),
        }
        broker.sessions.end();
    }
}

async fn over(mut leadership: watch::Receiver<Leadership>, term: u64) {
    // Without its sender the broker is stopping.
    let _stopping = leadership.wait_for(|now| !now.here || now.term != term).await;
}

/// One term as the controller.
struct Term<'a> {
    broker: &'a Arc<Broker>,
    probes: JoinSet<(BrokerLife, Found)>,
    /// When it is looked whether preferred leaders can have their partitions back.
    balance_at: Option<Instant>,
}

impl Term<'_> {
    async fn act(mut self) {
        let mut versions = self.broker.metadata.subscribe();
        versions.mark_changed();
        loop {
            if versions.has_changed().unwrap_or(false) {
                versions.mark_unchanged();
                self.want_balance();
            }
            let image = self.broker.metadata.image();
            let mut commands = self.commands_due(&image);
            if self.balance_at.is_some_and(|at| at <= Instant::now()) {
                self.balance_at = None;
                let unable = self.broker.sessions.unable();
                commands.extend(balance_command(&image, &unable, self.broker.config.membership.imbalance_percentage));
            }
            if !commands.is_empty() {
                let done = join_all(commands.into_iter().map(|command| self.decide(command))).await;
                // What changes nothing would be due again at once.
                let changed = self.broker.metadata.image().version() > image.version();
                if done.contains(&false) || !changed {
                    sleep(TRY_AGAIN).await;
                }
                continue;
            }
            let session_over = self.broker.sessions.deadline(&image).map(Instant::from_std);
            let wake = session_over.into_iter().chain(self.balance_at).min();
            tokio::select! {
                changed = versions.changed() => match changed {
                    Ok(()) => versions.mark_changed(),
                    Err(_stopping) => return,
                },
                () = self.broker.sessions.changed.notified() => {}
                Some(Ok((life, found))) = self.probes.join_next() => self.broker.sessions.probed(life, found),
                () = until(wake) => {}
            }
        }
    }

    fn commands_due(&mut self, image: &MetadataImage) -> Vec<Command> {
        let mut commands = Vec::new();
        for action in self.broker.sessions.due(image) {
            match action {
                Action::Probe(life) => self.probe(life, image),
                Action::Fence { life, why } => {
                    let why = match why {
                        Why::Dead => "its process is gone",
                        Why::Silent => "its session is over",
                        Why::Hung => "its disk hangs",
                    };
                    tracing::warn!(broker = life.broker_id.0, epoch = life.broker_epoch, "broker is fenced: {why}");
                    commands.push(Command::FenceBroker(life));
                }
                Action::Unfence(life) => {
                    tracing::info!(broker = life.broker_id.0, epoch = life.broker_epoch, "broker is unfenced");
                    commands.push(Command::UnfenceBroker(life));
                }
            }
        }
        commands.extend(self.relieve(image));
        commands
    }

    /// Has others lead and keep in sync what can't be written to.
    fn relieve(&self, image: &MetadataImage) -> Option<Command> {
        let config = &self.broker.config;
        let rules = |image: &MetadataImage, own: &Settings| elections(config, image, own);
        let partitions = self.broker.sessions.still_relied_on(image, &rules);
        if partitions.is_empty() {
            return None;
        }
        let lives = partitions.iter().flat_map(|partition| &partition.replicas);
        let brokers: BTreeSet<i32> = lives.map(|(life, _)| life.broker_id.0).collect();
        tracing::warn!(
            ?brokers,
            "{} partitions are left to brokers that can write to them: disks have failed, hang or are full",
            partitions.len()
        );
        Some(Command::ReplicasUnable { partitions })
    }

    /// Looks whether the broker's process is there.
    fn probe(&mut self, life: BrokerLife, image: &MetadataImage) {
        let address = self.broker.config.quorum.as_ref().and_then(|quorum| {
            let endpoints = &image.broker(life.broker_id)?.endpoints;
            let endpoint = endpoints.iter().find(|endpoint| endpoint.listener == quorum.listener.name)?;
            Some(Address { host: endpoint.host.clone(), port: endpoint.port })
        });
        let quorum = Arc::clone(self.broker.metadata.quorum());
        self.probes.spawn(async move {
            let gone = match address {
                Some(address) => quorum.nobody_listens(life.broker_id, &address).await,
                None => false,
            };
            (life, if gone { Found::Nobody } else { Found::Perhaps })
        });
    }

    fn want_balance(&mut self) {
        let membership = &self.broker.config.membership;
        let alone = self.broker.metadata.image().brokers().len() < 2;
        if membership.rebalance_leaders && !alone && self.balance_at.is_none() {
            self.balance_at = Some(Instant::now() + membership.imbalance_check_interval);
        }
    }

    /// Whether it was decided.
    async fn decide(&self, command: Command) -> bool {
        match self.broker.metadata.answer_submit(command).await {
            ControllerReply::Submitted { reply, .. } => {
                tracing::debug!(?reply, "decided");
                true
            }
            other => {
                tracing::warn!(answer = ?other, "the controller could not have something decided");
                false
            }
        }
    }
}

fn balance_command(image: &MetadataImage, unable: &Unable, percentage: usize) -> Option<Command> {
    let partitions = balance::to_return(image, unable, percentage);
    if partitions.is_empty() {
        return None;
    }
    tracing::info!(partitions = partitions.len(), "preferred leaders get their partitions back");
    Some(Command::ElectLeaders { kind: ElectionKind::Preferred, partitions: Some(partitions) })
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
