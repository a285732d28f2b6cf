//! The controller's memory of the brokers, shared by those who hear of them and the task that acts on it. Empty where this broker is not
//! the controller: whoever asks then is told so.

use std::time::{Duration, Instant};

use forebay_broker_machines::metadata::{BrokerLife, MetadataImage, UnableReplicas};
use forebay_broker_wire::types::BrokerId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::balance::Unable;
use super::protocol::{Heartbeat, HeartbeatAnswer};
use super::session_machine::{Action, Elections, Found, Machine};

/// Sessions of brokers.
#[derive(Debug)]
pub(crate) struct Sessions {
    own: BrokerId,
    session_timeout: Duration,
    zero: Instant,
    machine: Mutex<Option<Machine>>,
    /// Something is due, perhaps.
    pub(super) changed: Notify,
}

impl Sessions {
    pub(crate) fn new(own: BrokerId, session_timeout: Duration) -> Self {
        Self { own, session_timeout, zero: Instant::now(), machine: Mutex::default(), changed: Notify::new() }
    }

    /// `former` is the controller before this one, and for how long it was silent.
    pub(super) fn begin(&self, image: &MetadataImage, former: Option<(BrokerId, Duration)>) {
        let mut machine = Machine::new(self.own, self.session_timeout, image, self.zero.elapsed());
        if let Some((id, silence)) = former {
            machine.was_silent(id, silence);
        }
        *self.machine.lock() = Some(machine);
    }

    pub(super) fn end(&self) {
        *self.machine.lock() = None;
    }

    /// A broker says that it is there. None if this is not the controller.
    pub(crate) fn heartbeat(&self, beat: &Heartbeat, image: &MetadataImage) -> Option<HeartbeatAnswer> {
        let answer = self.machine.lock().as_mut()?.heartbeat(beat, image, self.zero.elapsed());
        let named = [&beat.offline, &beat.full, &beat.low];
        let unwell = beat.hung || named.iter().any(|named| !named.is_empty());
        if answer == HeartbeatAnswer::Fenced || unwell {
            self.changed.notify_one();
        }
        Some(answer)
    }

    /// A connection of a broker has closed.
    pub(crate) fn connection_closed(&self, id: BrokerId) {
        if let Some(machine) = self.machine.lock().as_mut() {
            machine.want_probe(id);
            self.changed.notify_one();
        }
    }

    pub(super) fn probed(&self, life: BrokerLife, found: Found) {
        if let Some(machine) = self.machine.lock().as_mut() {
            machine.probed(life, found);
        }
    }

    pub(super) fn due(&self, image: &MetadataImage) -> Vec<Action> {
        self.machine.lock().as_mut().map(|machine| machine.due(image, self.zero.elapsed())).unwrap_or_default()
    }

    pub(super) fn still_relied_on(&self, image: &MetadataImage, elections: &Elections<'_>) -> Vec<UnableReplicas> {
        self.machine.lock().as_ref().map(|machine| machine.still_relied_on(image, elections)).unwrap_or_default()
    }

    /// Replicas that can't be written to, as far as they have been named.
    pub(super) fn unable(&self) -> Unable {
        self.machine.lock().as_ref().map(Machine::unable).unwrap_or_default()
    }

    pub(super) fn deadline(&self, image: &MetadataImage) -> Option<Instant> {
        self.machine.lock().as_ref()?.deadline(image).map(|deadline| self.zero + deadline)
    }
}
