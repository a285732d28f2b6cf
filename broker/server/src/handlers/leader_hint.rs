//! Who leads a partition that was asked for in the wrong place, and where that broker is (KIP-951): the client need not ask for metadata.
//!
//! What must hold: addresses are those of the listener the client came in by; a partition without a leader has no hint.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, PartitionIndex, Str, Uuid};

use crate::broker::Broker;

/// The leader as this broker knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaderHint {
    pub(super) leader: BrokerId,
    pub(super) epoch: LeaderEpoch,
}

/// Where a broker is.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: BrokerId,
    pub(super) host: Str,
    pub(super) port: i32,
    pub(super) rack: Option<Str>,
}

pub(super) fn find(broker: &Broker, name: &Str, id: Uuid, index: PartitionIndex) -> Option<LeaderHint> {
    let image = broker.metadata.image();
    let topic = if id == Uuid::ZERO { image.topic(name) } else { image.topic_by_id(id) };
    let partition = topic?.partition(index)?;
    Some(LeaderHint { leader: partition.leader?, epoch: partition.leader_epoch })
}

/// The leaders' addresses, each once.
pub(super) fn nodes(broker: &Broker, listener: &str, hints: &[LeaderHint]) -> Vec<Node> {
    if hints.is_empty() {
        return Vec::new();
    }
    let image = broker.metadata.image();
    let named = image.brokers().filter(|known| hints.iter().any(|hint| hint.leader == known.id));
    let node = named.filter_map(|known| {
        let endpoint = known.endpoint(listener)?;
        Some(Node {
            id: known.id,
            host: endpoint.host.as_str().into(),
            port: i32::from(endpoint.port),
            rack: known.rack.as_deref().map(Str::from),
        })
    });
    node.collect()
}
