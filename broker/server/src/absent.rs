//! Brokers whose connection broke just now: their process may be gone, and then others will lead in a moment what they lead.
//!
//! Also: brokers that have been fenced just now, which Metadata goes on naming for a moment. A client that is told in one answer of a new
//! leader and that the old one is no broker any more may lose its way between the two: librdkafka then waits for up to a second.
//!
//! What must hold: it is a guess, so whoever waits for it to be settled waits a short time at most; a broker that is reached again is no
//! longer suspected.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_broker_machines::metadata::{MetadataImage, PartitionImage};
use forebay_broker_wire::types::BrokerId;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::broker::Broker;

/// A dead broker is fenced sooner; also the controller, when it was that which died.
const SUSPECTED_FOR: Duration = Duration::from_millis(500);

/// So long after it was fenced a broker is still named.
const NAMED_FOR: Duration = Duration::from_secs(2);

/// Who is suspected, and who was fenced just now.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    until: Mutex<BTreeMap<BrokerId, Instant>>,
    found: watch::Sender<()>,
    named: Mutex<Named>,
}

#[derive(Debug, Default)]
struct Named {
    live: BTreeSet<BrokerId>,
    /// Until when they are named.
    fenced: BTreeMap<BrokerId, Instant>,
}

impl Named {
    fn look(&mut self, live: BTreeSet<BrokerId>, now: Instant) {
        let gone = self.live.difference(&live).map(|id| (*id, now + NAMED_FOR));
        self.fenced.extend(gone);
        self.fenced.retain(|id, until| *until > now && !live.contains(id));
        self.live = live;
    }
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

    /// Compares the brokers at work with those of the image before.
    pub(crate) fn look(&self, image: &MetadataImage) {
        self.named.lock().look(image.live_brokers().map(|broker| broker.id).collect(), Instant::now());
    }

    /// Those that are named although they are fenced.
    pub(crate) fn still_named(&self, image: &MetadataImage) -> Vec<BrokerId> {
        self.look(image);
        self.named.lock().fenced.keys().copied().collect()
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
    #[test]
    fn a_fenced_broker_is_named_for_a_moment_more_and_not_beside_itself() {
        let of = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<BTreeSet<_>>();
        let (mut named, now) = (Named::default(), Instant::now());
        named.look(of(&[1, 2, 3]), now);
        named.look(of(&[1, 3]), now);
        assert_eq!(named.fenced.keys().copied().collect::<BTreeSet<_>>(), of(&[2]));
        named.look(of(&[1, 2, 3]), now);
        assert!(named.fenced.is_empty(), "it is back");
        named.look(of(&[1]), now);
        named.look(of(&[1]), now + NAMED_FOR / 2);
        assert_eq!(named.fenced.len(), 2);
        named.look(of(&[1]), now + NAMED_FOR);
        assert!(named.fenced.is_empty());
    }
}
