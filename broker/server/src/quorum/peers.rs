//! Who the other brokers are and how they are greeted: what every connection needs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_broker_config::QuorumVoter;
use forebay_broker_wire::types::BrokerId;
use parking_lot::Mutex;

use super::link::{Link, LinkError};
use super::protocol::{Hello, PROTOCOL_VERSION};
use super::types::{Address, VoterId};

/// A peer that stays away is named in the log again after this.
const COMPLAIN_AGAIN: Duration = Duration::from_secs(60);

/// This broker's view of the others.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) hello: Hello,
    /// `controller.quorum.voters`, without this broker.
    voters: BTreeMap<BrokerId, Address>,
    complained: Mutex<BTreeMap<VoterId, (String, Instant)>>,
}

impl Peers {
    pub(super) fn new(cluster_id: String, own: VoterId, voters: &[QuorumVoter]) -> Self {
        let others = voters.iter().filter(|voter| voter.broker_id != own.broker.0);
        let address = |voter: &QuorumVoter| Address { host: voter.host.clone(), port: voter.port };
        Self {
            hello: Hello { protocol: PROTOCOL_VERSION, cluster_id, from: own },
            voters: others.map(|voter| (BrokerId(voter.broker_id), address(voter))).collect(),
            complained: Mutex::default(),
        }
    }

    /// The other brokers that vote, as the configuration has them.
    pub(super) fn voters(&self) -> impl Iterator<Item = (BrokerId, &Address)> {
        self.voters.iter().map(|(id, address)| (*id, address))
    }

    /// Where a broker is: the configuration is newer than what the log says.
    pub(super) fn address_of(&self, broker: BrokerId, known: &Address) -> Address {
        self.voters.get(&broker).unwrap_or(known).clone()
    }

    pub(super) async fn dial(&self, address: &Address) -> Result<Link, LinkError> {
        Link::dial(address, &self.hello).await
    }

    /// Says in the log why a member is not reached: once for each reason, and again from time to time.
    pub(super) fn complain(&self, target: VoterId, error: &LinkError) {
        let text = error.to_string();
        let mut complained = self.complained.lock();
        if complained.get(&target).is_some_and(|(said, at)| *said == text && at.elapsed() < COMPLAIN_AGAIN) {
            return;
        }
        match error {
            LinkError::Refused { .. } => tracing::warn!(broker = target.broker.0, "metadata quorum: {text}"),
            _ => tracing::info!(broker = target.broker.0, "metadata quorum: {text}"),
        }
        complained.insert(target, (text, Instant::now()));
    }
}
