//! The metadata quorum's settings: who votes, and where this broker listens to the others.
//!
//! Without `controller.quorum.voters` a broker is a cluster of its own and has no controller listener.

use super::listeners::{Listener, is_all_interfaces, parse};
use crate::reader::Reader;

/// Votes that may be had: an even number survives no more losses than the odd number below it.
const VOTERS: [usize; 3] = [1, 3, 5];
const VOTERS_WANTED: &str = "1, 3 or 5 voters as id@host:port between commas";

/// How a broker takes part in the metadata quorum of a cluster of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumSettings {
    /// `controller.quorum.voters`, by id.
    pub voters: Vec<QuorumVoter>,
    /// The listener that `controller.listener.names` names.
    pub listener: Listener,
    /// Where the others reach it.
    pub advertised: Listener,
}

/// A broker that votes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuorumVoter {
    /// Its `node.id`.
    pub broker_id: i32,
    /// Its controller listener's host; resolved at each dial.
    pub host: String,
    /// Its controller listener's port.
    pub port: u16,
}

/// Takes the controller listener out of `listeners`; none in a cluster of one broker.
impl QuorumSettings {
    /// Whether other brokers than this one vote.
    #[must_use]
    pub fn names_others(&self, broker_id: i32) -> bool {
        self.voters.iter().any(|voter| voter.broker_id != broker_id)
    }
}

pub(super) fn quorum(
    r: &mut Reader<'_>,
    broker_id: i32,
    listeners: &mut Vec<Listener>,
    advertised: &[Listener],
) -> Option<QuorumSettings> {
    let voters = voters(r);
    r.given("controller.quorum.voters")?;
    let names: Vec<String> = r.list("controller.listener.names").into_iter().map(str::to_ascii_uppercase).collect();
    if r.given("forebay.cluster.id").is_none() {
        r.missing(
            "forebay.cluster.id",
            "the same on every broker of controller.quorum.voters, which else can't know each other",
        );
    }
    let found = match names.as_slice() {
        [name] => listeners.iter().position(|listener| listener.name == *name),
        _ => {
            r.refuse("controller.listener.names", &names.join(","), "one name");
            return None;
        }
    };
    let Some(found) = found else {
        let wanted = format!("also a listener {0}, such as {0}://0.0.0.0:9093 (controller.listener.names)", names[0]);
        let text = r.text("listeners").unwrap_or_default();
        r.refuse("listeners", text, wanted);
        return None;
    };
    let listener = listeners.remove(found);
    let own = voters.iter().find(|voter| voter.broker_id == broker_id);
    let told = advertised.iter().find(|other| other.name == listener.name).cloned();
    let own = own.map(|voter| Listener { name: listener.name.clone(), host: voter.host.clone(), port: voter.port });
    let advertised = told.or(own).unwrap_or_else(|| listener.clone());
    if r.errors.is_empty() && is_all_interfaces(&advertised) {
        let value = format!("{}://{}:{}", advertised.name, advertised.host, advertised.port);
        r.refuse(
            "advertised.listeners",
            &value,
            "an address that the other brokers can connect to, not all interfaces",
        );
    }
    if listeners.is_empty() {
        r.refuse("listeners", &listener.name, "also a listener for clients, such as PLAINTEXT://0.0.0.0:9092");
    }
    Some(QuorumSettings { voters, listener, advertised })
}

fn voters(r: &mut Reader<'_>) -> Vec<QuorumVoter> {
    const NAME: &str = "controller.quorum.voters";
    let mut voters: Vec<QuorumVoter> = Vec::new();
    let text = r.given(NAME).unwrap_or_default();
    for item in r.list(NAME) {
        match parse_voter(item) {
            Some(voter) if voters.iter().all(|other| other.broker_id != voter.broker_id) => voters.push(voter),
            Some(_) => r.refuse(NAME, item, "a voter of an id that is not used twice"),
            None => r.refuse(NAME, item, "id@host:port, such as 0@broker-0:9093"),
        }
    }
    if !text.is_empty() && r.errors.is_empty() && !VOTERS.contains(&voters.len()) {
        r.refuse(NAME, text, VOTERS_WANTED);
    }
    voters.sort();
    voters
}

fn parse_voter(item: &str) -> Option<QuorumVoter> {
    let (id, address) = item.split_once('@')?;
    let Listener { host, port, .. } = parse(&format!("VOTER://{address}"))?;
    let broker_id = id.trim().parse().ok().filter(|id| *id >= 0)?;
    (port > 0 && !host.is_empty()).then_some(QuorumVoter { broker_id, host, port })
}
