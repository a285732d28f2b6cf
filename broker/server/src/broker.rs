//! The composition root: everything a broker consists of, and the order in which it starts and stops.

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_config::BrokerConfig;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::net::budget::ByteBudget;
use crate::net::listener::{Admission, Limits};

/// One running broker. Handlers and tasks share it; it never changes shape.
pub struct Broker {
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) limits: Limits,
    pub(crate) budget: ByteBudget,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Metrics,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) shutdown: CancellationToken,
}

impl Broker {
    pub(crate) fn cluster_id(&self) -> &str {
        self.config.cluster_id.as_deref().unwrap_or_default()
    }
}

fn limits(config: &BrokerConfig) -> Limits {
    let network = &config.network;
    let bytes = |setting: Option<u32>| setting.and_then(|bytes| usize::try_from(bytes).ok());
    Limits {
        request_max_bytes: network.socket_request_max_bytes,
        connections_max: network.max_connections,
        connections_per_ip_max: network.max_connections_per_ip,
        idle_max: Duration::from_millis(network.connections_max_idle_ms),
        send_buffer_bytes: bytes(network.socket_send_buffer_bytes),
        receive_buffer_bytes: bytes(network.socket_receive_buffer_bytes),
        backlog: network.socket_listen_backlog_size,
    }
}
