//! The types that the quorum is made of: who votes, what an entry says, what applying it gives.
//!
//! What must hold: a voter is a broker with one particular disk, so that a broker whose disk was lost never votes under the identity
//! that had the lost log.

use std::fmt;
use std::str::FromStr;

use forebay_broker_machines::metadata::Record;
use forebay_broker_wire::types::{BrokerId, Uuid};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One log of the quorum: a broker, and the directory that holds the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VoterId {
    pub(crate) broker: BrokerId,
    pub(crate) directory: Uuid,
}

impl fmt::Display for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.broker.0, self.directory)
    }
}

impl FromStr for VoterId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}': must be a broker id, '@' and a directory id");
        let (broker, directory) = text.split_once('@').ok_or_else(wrong)?;
        let broker = broker.parse().map_err(|_error| wrong())?;
        Ok(Self { broker: BrokerId(broker), directory: directory.parse().map_err(|_error| wrong())? })
    }
}

impl Serialize for VoterId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VoterId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
impl From<u64> for VoterId {
    fn from(number: u64) -> Self {
        Self { broker: BrokerId(i32::try_from(number).unwrap()), directory: Uuid([1; 16]) }
    }
}

/// Where a broker's controller listener is. Names are resolved at each dial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What was decided together: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Change {
    /// The version of the image that the decision was made on. On any other it does not count.
    pub(crate) based_on_version: i64,
    pub(crate) records: Vec<Record>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records on version {}", self.records.len(), self.based_on_version)
    }
}

/// What came of a committed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Applied {
    /// False when the image was another than the one that the change was decided on.
    pub(crate) accepted: bool,
    /// The image's version after it.
    pub(crate) version: i64,
}

openraft::declare_raft_types!(
    /// openraft with our types; one leader a term, so that a log id is Kafka's epoch and offset.
    pub(crate) Types:
        D = Change,
        R = Applied,
        NodeId = VoterId,
        Node = Address,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, VoterId>,
        AsyncRuntime = openraft_rt_tokio::TokioRuntime,
);

pub(crate) type LogId = openraft::alias::LogIdOf<Types>;
pub(crate) type Vote = openraft::alias::VoteOf<Types>;
pub(crate) type Entry = openraft::alias::EntryOf<Types>;
pub(crate) type Membership = openraft::Membership<VoterId, Address>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<Types>;
pub(crate) type Snapshot = openraft::alias::SnapshotOf<Types, bytes::Bytes>;

/// The id of an entry.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(openraft::vote::leader_id_std::CommittedLeaderId::new(term), index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_is_text_that_reads_back() {
        let voter = VoterId { broker: BrokerId(3), directory: Uuid([7; 16]) };
        assert_eq!(voter.to_string().parse(), Ok(voter));
        assert_eq!(serde_json::from_str::<VoterId>(&serde_json::to_string(&voter).unwrap()).unwrap(), voter);
        assert!("3".parse::<VoterId>().is_err());
        assert!("x@AQEBAQEBAQEBAQEBAQEBAQ".parse::<VoterId>().is_err());
    }
}
