//! One connection of a fetcher, and what is under way on it.

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_client::{ClientConfig, Connection, RequestError};
use forebay_broker_wire::types::BrokerId;
use tokio::time::Instant;

use crate::broker::Broker;

/// The first pause after a failure; each one after it is twice as long.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Quiet partitions are asked for so much less often than `replica.fetch.wait.max.ms` says.
const QUIET_WAITS_TIMES: u32 = 10;
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Which of a fetcher's connections a partition is asked for on. A request costs as much as it names partitions; so the few that bring
/// records all the time do not drag along the many that are quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Busy,
    Quiet,
}

impl Pace {
    pub(super) const ALL: [Self; 2] = [Self::Busy, Self::Quiet];

    /// How long a request may wait at the leader. What is quiet is in sync and knows that all of it is safe: it is only to hear of new
    /// records, and these end the wait.
    pub(super) fn longest_wait(self, fetch_wait_max_ms: i32) -> Duration {
        let longest = Duration::from_millis(u64::try_from(fetch_wait_max_ms).unwrap_or(0));
        if self == Self::Quiet { longest * QUIET_WAITS_TIMES } else { longest }
    }
}

pub(super) struct Lane {
    connection: Option<Arc<Connection>>,
    /// Requests without an answer: the first waits at the leader, a second one brings in what is new.
    requests: usize,
    /// A second request was sent; the next one waits for both.
    hurried: bool,
    /// The source could not be reached: not before this.
    dial_at: Instant,
    pause: Duration,
}

impl Lane {
    pub(super) fn new() -> Self {
        Self { connection: None, requests: 0, hurried: false, dial_at: Instant::now(), pause: PAUSE_MIN }
    }

    fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.is_closed())
    }

    /// When to connect for what is ready, if that is to be done.
    pub(super) fn dial_at(&self) -> Option<Instant> {
        (!self.is_open() && self.requests == 0).then_some(self.dial_at)
    }

    pub(super) fn dialled(&mut self, connection: Connection) {
        self.connection = Some(Arc::new(connection));
    }

    /// Gives whether this is the first failure for a while.
    pub(super) fn failed(&mut self, pause_max: Duration) -> bool {
        let first = self.pause == PAUSE_MIN;
        self.connection = None;
        self.dial_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(pause_max);
        first
    }

    pub(super) fn hang_up(&mut self) {
        (self.connection, self.requests, self.hurried) = (None, 0, false);
    }

    /// Nothing is held against the source any more.
    pub(super) fn forgive(&mut self) {
        (self.dial_at, self.pause) = (Instant::now(), PAUSE_MIN);
    }

    /// Where a request may be sent now, and whether it may wait at the leader.
    pub(super) fn free(&self) -> Option<(Arc<Connection>, bool)> {
        let connection = self.connection.clone().filter(|connection| self.may_ask() && !connection.is_closed())?;
        Some((connection, self.requests == 0))
    }

    fn may_ask(&self) -> bool {
        self.requests == 0 || (self.requests == 1 && !self.hurried)
    }

    pub(super) fn sent(&mut self) {
        self.hurried = self.requests > 0;
        self.requests += 1;
    }

    pub(super) fn answered(&mut self, well: bool) {
        self.requests = self.requests.saturating_sub(1);
        self.hurried &= self.requests > 0;
        if well {
            self.pause = PAUSE_MIN;
        }
    }
}

pub(super) async fn connect(broker: Arc<Broker>, source: BrokerId, number: usize) -> Result<Connection, RequestError> {
    let address = broker.address_of(source)?;
    let timeout = Duration::from_millis(broker.config.replica.socket_timeout_ms);
    let config = ClientConfig {
        client_id: format!("replica-{}-fetcher-{number}", broker.id()),
        connect_timeout: timeout.min(CONNECT_WAIT_MAX),
        request_timeout: timeout,
        ..ClientConfig::default()
    };
    Ok(Connection::open(&address, &config).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_are_forgotten_when_it_is_forgiven() {
        let mut lane = Lane::new();
        let most = Duration::from_millis(70);
        assert!(lane.failed(most), "the first failure is told");
        let pauses: Vec<_> = (0..4)
            .map(|_| {
                assert!(!lane.failed(most));
                lane.pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [40, 70, 70, 70]);
        assert!(lane.dial_at().is_some_and(|at| at > Instant::now()));
        lane.forgive();
        assert!(lane.dial_at().is_some_and(|at| at <= Instant::now()));
        assert!(lane.failed(most));
    }

    #[test]
    fn what_is_quiet_is_asked_for_less_often() {
        let [busy, quiet] = Pace::ALL.map(|pace| pace.longest_wait(500).as_millis());
        assert_eq!((busy, quiet), (500, 5_000));
        assert_eq!(Pace::Quiet.longest_wait(-1), Duration::ZERO);
    }

    #[test]
    fn a_second_request_hurries_the_first_and_a_third_waits_for_both() {
        let mut lane = Lane::new();
        assert!(lane.may_ask());
        lane.sent();
        assert!(lane.may_ask(), "what is new need not wait");
        lane.sent();
        assert!(!lane.may_ask());
        lane.answered(true);
        assert!(!lane.may_ask(), "or the two would hurry each other for ever");
        lane.answered(true);
        assert!(lane.may_ask());
    }
}
