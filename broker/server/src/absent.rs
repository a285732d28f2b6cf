//! Brokers whose connection broke just now: their process may be gone, and then others will lead in a moment what they lead.
//!
//! What must hold: it is a guess, so whoever waits for it to be settled waits a short time at most; a broker that is reached again is no
//! longer suspected.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_broker_machines::metadata::{MetadataImage, PartitionImage};
use forebay_broker_wire::types::BrokerId;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::broker::Broker;

/// A dead broker is fenced sooner; also the controller, when it was that which died.
const SUSPECTED_FOR: Duration = Duration::from_millis(500);

/// Who is suspected.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    until: Mutex<BTreeMap<BrokerId, Instant>>,
    found: watch::Sender<()>,
}

impl Absent {
    /// A connection to it that was in use has broken.
    pub(crate) fn lost(&self, id: BrokerId) {
        self.lost_at(id, Instant::now());
    }

    fn lost_at(&self, id: BrokerId, now: Instant) {
        self.until.lock().insert(id, now + SUSPECTED_FOR);
    }

    /// It was reached.
    pub(crate) fn found(&self, id: BrokerId) {
        if self.until.lock().remove(&id).is_some() {
            self.found.send_replace(());
        }
    }

    /// Until when it is suspected.
    pub(crate) fn until(&self, id: BrokerId) -> Option<Instant> {
        self.until.lock().get(&id).copied().filter(|until| *until > Instant::now())
    }

    fn is_nobody(&self) -> bool {
        let mut until = self.until.lock();
        let now = Instant::now();
        until.retain(|_, until| *until > now);
        until.is_empty()
    }
}

/// Waits while one of these partitions is led by a broker that is suspected: who is told its name would knock in vain, and librdkafka
/// would look for another leader only after a second. `partitions` names them in an image.
pub(crate) async fn await_leaders(
    broker: &Broker,
    partitions: impl Fn(&MetadataImage, &mut dyn FnMut(&PartitionImage)),
) {
    if broker.absent.is_nobody() {
        return;
    }
    let mut versions = broker.metadata.subscribe();
    let mut found = broker.absent.found.subscribe();
    loop {
        versions.mark_unchanged();
        found.mark_unchanged();
        let mut until = None;
        partitions(&broker.metadata.image(), &mut |partition| {
            until = until.max(partition.leader.and_then(|leader| broker.absent.until(leader)));
        });
        let Some(until) = until else { return };
        tokio::select! {
            changed = versions.changed() => if changed.is_err() { return },
            _ = found.changed() => {}
            () = sleep_until(until) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_suspected_until_it_is_reached_and_never_for_long() {
        let (absent, id) = (Absent::default(), BrokerId(3));
        assert!(absent.is_nobody());
        absent.lost(id);
        assert!(absent.until(id).is_some() && absent.until(BrokerId(4)).is_none() && !absent.is_nobody());
        absent.found(id);
        assert!(absent.until(id).is_none() && absent.is_nobody());
        absent.lost_at(id, Instant::now() - SUSPECTED_FOR);
        assert!(absent.until(id).is_none() && absent.is_nobody());
    }
}
