//! The bounds a client keeps: how long it waits, how much it buffers.

use std::time::Duration;

/// Settings of a client. Every wait and every buffer has a bound here.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// What the client calls itself in requests.
    pub client_id: String,
    /// The most to wait for a TCP connection, name resolution included.
    pub connect_timeout: Duration,
    /// The most to wait for the answer to one request, beyond what the request itself asks the broker to wait.
    pub request_timeout: Duration,
    /// The most to go on retrying what can be retried: a moved leader, a coordinator that is loading.
    pub operation_timeout: Duration,
    /// The pause between two tries.
    pub retry_backoff: Duration,
    /// Requests that may wait for their answers on one connection.
    pub max_in_flight: usize,
    /// The largest answer taken.
    pub max_frame_bytes: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            client_id: "forebay".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            operation_timeout: Duration::from_secs(30),
            retry_backoff: Duration::from_millis(100),
            max_in_flight: 128,
            max_frame_bytes: 128 << 20,
        }
    }
}
