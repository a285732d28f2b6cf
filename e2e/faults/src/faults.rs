//! Begins faults and ends them again. What to begin was decided by `nemesis`.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use crate::brokers::{Brokers, serves};
use crate::nemesis::{Fault, Kind};
use forebay_e2e_faults::network;

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
    }
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
