//! Produce requests of one connection on their way, in the order in which they are answered.
//!
//! What must hold: they are handed over in their order and answered in it, and none while one before it may still be passed on to another
//! broker, which may be this one soon: it would be overtaken, and an idempotent producer told that its sequence is broken; a client that sends faster than a disk takes it is held back by
//! TCP after a few requests, not when the memory for all clients is used up.

use std::collections::VecDeque;

use super::budget::Charge;
use super::lines::Line;
use crate::broker::Broker;
use crate::handlers::Finished;
use crate::handlers::produce::{self, PendingProduce};
use crate::handlers::request::RequestError;
use crate::handlers::setbacks::Setbacks;

/// What may wait for a disk thread (as much again may lie in the buffers that it came in): many times what makes a write worth its call,
/// and far less than clients send ahead.
const WAITING_BYTES_MAX: usize = 2 << 20;

pub(super) struct InFlight {
    requests: VecDeque<InFlightRequest>,
    requests_max: usize,
    /// So many at the end are not handed over yet.
    gathered: usize,
    /// What those hold that were left to the disk threads.
    waiting_bytes: usize,
    setbacks: Setbacks,
}

struct InFlightRequest {
    pending: PendingProduce,
    bytes: usize,
    waits: bool,
    _charge: Charge,
}

impl InFlight {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { requests: VecDeque::new(), requests_max, gathered: 0, waiting_bytes: 0, setbacks: Setbacks::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether one more may be read.
    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < self.requests_max && self.waiting_bytes < WAITING_BYTES_MAX
    }

    /// Takes in a request of a frame of so many bytes, for the next [`Self::hand_over`].
    pub(super) fn push(&mut self, pending: PendingProduce, bytes: usize, charge: Charge) {
        self.requests.push_back(InFlightRequest { pending, bytes, waits: false, _charge: charge });
        self.gathered += 1;
    }

    /// Hands over what was taken in since, unless that has to wait: then again after each answer.
    pub(super) async fn hand_over(&mut self, broker: &Broker, line: &Line) {
        let handed_before = self.requests.len() - self.gathered;
        let mut before = self.requests.range(..handed_before);
        if self.gathered == 0 || before.any(|request| request.pending.may_be_passed_on()) {
            return;
        }
        let gathered = self.requests.range_mut(handed_before..).map(|request| &mut request.pending);
        produce::hand_over(broker, line, gathered).await;
        for request in self.requests.range_mut(handed_before..).filter(|request| request.pending.waits_for_disk()) {
            request.waits = true;
            self.waiting_bytes += request.bytes;
        }
        self.gathered = 0;
    }

    /// Waits for the oldest request and takes it off the queue. Safe to cancel: taken only when finished.
    pub(super) async fn front(&mut self) -> Result<Finished, RequestError> {
        if let Some(front) = self.requests.front_mut() {
            front.pending.ready(&self.setbacks).await;
        }
        match self.requests.pop_front() {
            Some(front) => {
                front.pending.note_setbacks(&mut self.setbacks);
                self.waiting_bytes -= if front.waits { front.bytes } else { 0 };
                front.pending.finish()
            }
            None => std::future::pending().await,
        }
    }

    /// Whether [`Self::front`] would return at once: the oldest was handed over and has its answer.
    pub(super) async fn is_ready(&mut self) -> bool {
        let handed_over = self.requests.len() - self.gathered;
        match self.requests.front_mut().filter(|_| handed_over > 0) {
            Some(front) => front.pending.is_ready(&self.setbacks).await,
            None => false,
        }
    }
}
