//! A broker's life in a cluster: sessions with the controller, stopping in order, preferred leaders.

use std::time::Duration;

use crate::reader::Reader;

/// How brokers and the controller deal with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MembershipSettings {
    /// `broker.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `controlled.shutdown.enable`.
    pub controlled_shutdown: bool,
    /// `controlled.shutdown.max.retries`.
    pub controlled_shutdown_retries: u32,
    /// `controlled.shutdown.retry.backoff.ms`.
    pub controlled_shutdown_backoff: Duration,
    /// `auto.leader.rebalance.enable`.
    pub rebalance_leaders: bool,
    /// `leader.imbalance.check.interval.seconds`.
    pub imbalance_check_interval: Duration,
    /// `leader.imbalance.per.broker.percentage`.
    pub imbalance_percentage: usize,
}

pub(super) fn membership(r: &mut Reader<'_>) -> MembershipSettings {
    let ms = |r: &Reader<'_>, name| Duration::from_millis(r.required(name));
    let settings = MembershipSettings {
        session_timeout: ms(r, "broker.session.timeout.ms"),
        heartbeat_interval: ms(r, "broker.heartbeat.interval.ms"),
        controlled_shutdown: r.flag("controlled.shutdown.enable"),
        controlled_shutdown_retries: r.required("controlled.shutdown.max.retries"),
        controlled_shutdown_backoff: ms(r, "controlled.shutdown.retry.backoff.ms"),
        rebalance_leaders: r.flag("auto.leader.rebalance.enable"),
        imbalance_check_interval: Duration::from_secs(r.required("leader.imbalance.check.interval.seconds")),
        imbalance_percentage: r.required("leader.imbalance.per.broker.percentage"),
    };
    if settings.heartbeat_interval * 2 > settings.session_timeout {
        let wanted = format!(
            "at most half of broker.session.timeout.ms={}, so that one may be lost",
            settings.session_timeout.as_millis()
        );
        r.refuse("broker.heartbeat.interval.ms", &settings.heartbeat_interval.as_millis().to_string(), wanted);
    }
    settings
}
