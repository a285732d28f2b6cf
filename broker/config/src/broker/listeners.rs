//! Listeners: where the broker listens, what clients and brokers are told, and which listener is for whom.
//!
//! What must hold: nobody is told an address that stands for all interfaces; where other brokers fetch is known from the start.

use crate::ConfigError;
use crate::reader::Reader;
use crate::values::items;

const FORM: &str = "NAME://host:port, such as PLAINTEXT://0.0.0.0:9092";
const REACHABLE: &str = "an address that clients can connect to, not all interfaces";
const ADVERTISED: &str = "advertised.listeners";
const WITHOUT_ADDRESS: &str = "forebay.listeners.without.address";

/// One `NAME://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The listener's name.
    pub name: String,
    /// Empty for all interfaces.
    pub host: String,
    /// 0 to have one chosen.
    pub port: u16,
}

/// What `advertised.listeners` may be set to while a broker runs: whole addresses, each listener once.
///
/// # Errors
/// The item that is wrong, and what would be right.
pub fn parse_advertised(value: &str) -> Result<Vec<Listener>, ConfigError> {
    let mut told: Vec<Listener> = Vec::new();
    for item in items(value) {
        let refuse = |wanted: &str| ConfigError::Invalid {
            name: ADVERTISED.to_owned(),
            value: item.to_owned(),
            wanted: wanted.to_owned(),
        };
        let listener = parse(item).ok_or_else(|| refuse(FORM))?;
        if is_all_interfaces(&listener) || listener.port == 0 {
            return Err(refuse("a host and a port that clients can connect to"));
        }
        if told.iter().any(|other| other.name == listener.name) {
            return Err(refuse("a listener of a name that is not used twice"));
        }
        told.push(listener);
    }
    Ok(told)
}

pub(super) fn read(r: &mut Reader<'_>, name: &'static str) -> Vec<Listener> {
    let mut listeners: Vec<Listener> = Vec::new();
    for item in r.list(name) {
        match parse(item) {
            Some(listener) if listeners.iter().all(|other| other.name != listener.name) => listeners.push(listener),
            Some(_) => r.refuse(name, item, "a listener of a name that is not used twice"),
            None => r.refuse(name, item, FORM),
        }
    }
    listeners
}

pub(super) fn parse(item: &str) -> Option<Listener> {
    let (name, address) = item.split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    word.then_some(Listener { name: name.to_ascii_uppercase(), host: host.to_owned(), port: port.parse().ok()? })
}

/// `advertised.listeners`, each of which is a listener.
pub(super) fn told(r: &mut Reader<'_>, listeners: &[Listener]) -> Vec<Listener> {
    let given = read(r, ADVERTISED);
    for listener in &given {
        check_is_one(r, ADVERTISED, &listener.name, listeners);
    }
    given
}

fn check_is_one(r: &mut Reader<'_>, setting: &str, name: &str, listeners: &[Listener]) {
    if listeners.iter().all(|other| other.name != name) {
        let names: Vec<&str> = listeners.iter().map(|other| other.name.as_str()).collect();
        r.refuse(setting, name, format!("one of the listeners {}", names.join(", ")));
    }
}

/// The listeners whose address comes later. Brokers must know from the start where to fetch, so it is never theirs.
pub(super) fn without_address(r: &mut Reader<'_>, listeners: &[Listener], inter_broker: &str) -> Vec<String> {
    let names: Vec<String> = r.list(WITHOUT_ADDRESS).into_iter().map(str::to_ascii_uppercase).collect();
    for name in &names {
        if name == inter_broker {
            r.refuse(
                WITHOUT_ADDRESS,
                name,
                "a listener other than the one that brokers use (inter.broker.listener.name)",
            );
        } else {
            check_is_one(r, WITHOUT_ADDRESS, name, listeners);
        }
    }
    names
}

pub(super) fn advertised(
    r: &mut Reader<'_>,
    listeners: &[Listener],
    told: &[Listener],
    later: &[String],
) -> Vec<Listener> {
    let mut advertised = Vec::with_capacity(listeners.len());
    for listener in listeners {
        let given = told.iter().find(|other| other.name == listener.name);
        let chosen = match given {
            None if later.contains(&listener.name) => {
                advertised.push(Listener { name: listener.name.clone(), host: String::new(), port: 0 });
                continue;
            }
            given => given.unwrap_or(listener),
        };
        if is_all_interfaces(chosen) {
            let value = format!("{}://{}:{}", chosen.name, chosen.host, chosen.port);
            r.refuse(ADVERTISED, &value, REACHABLE);
        }
        advertised.push(chosen.clone());
    }
    advertised
}

pub(super) fn is_all_interfaces(listener: &Listener) -> bool {
    matches!(listener.host.as_str(), "" | "0.0.0.0" | "::")
}

pub(super) fn check_protocols(r: &mut Reader<'_>, listeners: &[Listener]) {
    let map: Vec<(&str, &str)> =
        r.list("listener.security.protocol.map").into_iter().filter_map(|pair| pair.split_once(':')).collect();
    for listener in listeners {
        let protocol =
            map.iter().find(|(name, _)| name.eq_ignore_ascii_case(&listener.name)).map_or(&*listener.name, |(_, p)| p);
        if protocol != "PLAINTEXT" {
            r.refuse("listener.security.protocol.map", protocol, format!("PLAINTEXT for listener {}", listener.name));
        }
    }
}

pub(super) fn inter_broker(r: &mut Reader<'_>, listeners: &[Listener]) -> String {
    let first = listeners.first().map(|listener| listener.name.clone()).unwrap_or_default();
    let Some(name) = r.given("inter.broker.listener.name") else { return first };
    if listeners.iter().all(|listener| !listener.name.eq_ignore_ascii_case(name)) {
        r.refuse("inter.broker.listener.name", name, "the name of one of the listeners");
    }
    name.to_ascii_uppercase()
}
