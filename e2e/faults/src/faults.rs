//! Begins faults and ends them again. What to begin was decided by `nemesis`.

use std::time::Duration;

use anyhow::Result;
use forebay_broker_client::Admin;
use forebay_broker_client::types::BrokerId;
use tokio::time::{Instant, timeout};

use crate::brokers::{Brokers, serves};
use crate::nemesis::{Fault, Kind};
use forebay_e2e_faults::network;

/// For a broker's answers.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// A fault that lasts.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) fault: Fault,
    pub(crate) until: Instant,
}

/// Begins a fault. None when it was over at once.
pub(crate) async fn begin(brokers: &mut Brokers, fault: Fault) -> Result<Option<Held>> {
    let until = Instant::now() + fault.hold;
    let id = fault.broker;
    match fault.kind {
        Kind::Kill => brokers.node(id)?.kill().await?,
        Kind::Stop => brokers.node(id)?.stop().await?,
        Kind::Pause => brokers.node(id)?.pause()?,
        Kind::CutOneWay | Kind::CutBothWays | Kind::Isolate => {
            fault.cuts.iter().try_for_each(|(from, to)| network::cut(*from, *to))?;
        }
        Kind::FillDisk => brokers.node(id)?.disk.fill()?,
        Kind::FreezeDisk => brokers.node(id)?.disk.freeze()?,
        Kind::SlowDisk => brokers.node(id)?.disk.slow(),
        Kind::WipeVolume => {
            let node = brokers.node(id)?;
            node.kill().await?;
            node.disk.wipe()?;
        }
        Kind::KillAll => {
            for node in &mut brokers.nodes {
                node.kill().await?;
            }
        }
        Kind::Roll => {
            roll(brokers).await?;
            return Ok(None);
        }
        Kind::MoveReplicas => {
            // A broker that another fault keeps from answering moves nothing, and is killed all the same.
            let _refused = timeout(ASK_WITHIN, move_replicas(brokers, id)).await;
        }
    }
    Ok(Some(Held { fault, until }))
}

/// Ends a fault; what it needs to heal comes by itself.
pub(crate) async fn end(brokers: &mut Brokers, fault: &Fault) -> Result<()> {
    let id = fault.broker;
    match fault.kind {
        Kind::Kill | Kind::Stop | Kind::WipeVolume => brokers.node(id)?.start(),
        Kind::Pause => brokers.node(id)?.resume(),
        Kind::CutOneWay | Kind::CutBothWays | Kind::Isolate => {
            fault.cuts.iter().try_for_each(|(from, to)| network::mend(*from, *to))
        }
        Kind::FillDisk => brokers.node(id)?.disk.free(),
        Kind::FreezeDisk => brokers.node(id)?.disk.thaw(),
        Kind::SlowDisk => {
            brokers.node(id)?.disk.fast().await;
            Ok(())
        }
        Kind::KillAll => brokers.start_all(),
        Kind::Roll => Ok(()),
        Kind::MoveReplicas => {
            let node = brokers.node(id)?;
            node.kill().await?;
            node.start()
        }
    }
}

/// Asks a broker to move each of its replicas to its other log dir.
async fn move_replicas(brokers: &mut Brokers, id: i32) -> Result<()> {
    let paths = brokers.node(id)?.disk.log_dirs().map(|path| path.display().to_string());
    let (admin, broker) = (Admin::new(brokers.client().clone()), BrokerId(id));
    let dirs = admin.describe_log_dirs(broker).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let other = |path: &str| paths.iter().find(|other| *other != path).cloned();
    let moves = dirs.iter().flat_map(|dir| {
        let there = dir.replicas.iter().filter(|replica| !replica.is_future);
        there.filter_map(|replica| Some((replica.partition.clone(), other(&dir.path)?)))
    });
    admin.alter_replica_log_dirs(broker, &moves.collect::<Vec<_>>()).await?;
    Ok(())
}

/// Each broker in turn as an operator does it: SIGTERM, start, wait until it serves and all is in sync again.
async fn roll(brokers: &mut Brokers) -> Result<()> {
    for id in 0..brokers.count() {
        let node = brokers.node(id)?;
        node.stop().await?;
        node.start()?;
        serves(node).await?;
        brokers.all_in_sync().await?;
    }
    Ok(())
}

/// How long until the first of them is over.
pub(crate) fn first_end(held: &[Held]) -> Option<Duration> {
    held.iter().map(|held| held.until.saturating_duration_since(Instant::now())).min()
}
