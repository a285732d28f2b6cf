//! Where a broker is reached: what it said when it registered, and what was set since for listeners that only clients use.
//!
//! What must hold: an address that was set counts for as long as it is set, whatever the broker says at its next start; a listener that
//! the broker does not have gets no address by being named.

use super::{BrokerImage, Endpoint, Settings};

/// The broker's setting that changes addresses while it runs.
pub const ADVERTISED_LISTENERS: &str = "advertised.listeners";

/// The addresses that a broker's own settings name; nothing is expected of text that was never checked.
pub(super) fn set_in(settings: Option<&Settings>) -> Vec<Endpoint> {
    let text = settings.and_then(|settings| settings.get(ADVERTISED_LISTENERS)).map(String::as_str).unwrap_or_default();
    text.split(',').filter_map(|item| parse(item.trim())).collect()
}

fn parse(item: &str) -> Option<Endpoint> {
    let (listener, address) = item.split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Endpoint { listener: listener.to_ascii_uppercase(), host, port: port.parse().ok()? })
}

impl BrokerImage {
    /// Where it is reached on a listener; none while that is not known, or when it has no such listener.
    #[must_use]
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        let registered = self.endpoints.iter().find(|endpoint| endpoint.listener == listener)?;
        let set = self.set_endpoints.iter().find(|endpoint| endpoint.listener == listener);
        Some(set.unwrap_or(registered)).filter(|endpoint| !endpoint.host.is_empty())
    }

    /// Where it is reached, on each listener that has an address.
    pub fn reached(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().filter_map(|endpoint| self.endpoint(&endpoint.listener))
    }
}
