//! What the cluster consists of: brokers, topics, partitions, configuration, producer ids.
//!
//! A command and the present image give records and a reply ([`decide`]); records give the next image ([`MetadataImage::apply`]).
//! The records are the durable state: replaying all of them, or a snapshot and what follows it, gives the same image.

mod controller;
mod endpoints;
mod image;
mod names;
mod placement;
mod records;

pub use controller::{
    AlterConfigsError, AlterPartitionError, AlteredPartition, BrokerLife, BrokerLifeError, BrokerRegistration, Command,
    ConfigChange, ConfigOperation, ConfigRules, Context, CreatePartitionsError, CreateTopicError, CreatedTopic,
    DeleteTopicError, DeletedTopic, ElectLeadersError, Election, ElectionKind, ElectionRules, Inability, Logs,
    NewPartitions, NewTopic, Outcome, PRODUCER_ID_BLOCK_SIZE, PartitionProposal, ProducerIdBlock, ReassignError,
    Reassignment, RegisterError, Reply, TopicReference, UnableReplicas, UnregisterError, alter_partition, broker_back,
    broker_gone, broker_leaving, decide, replicas_unable,
};
pub use endpoints::ADVERTISED_LISTENERS;
pub use image::{BrokerImage, MetadataImage, PartitionImage, ReplayError, TopicImage};
pub use names::{CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, is_internal, name_fault};
pub use records::{
    BrokerRecord, ConfigRecord, ConfigResource, Endpoint, PartitionRecord, Record, RecordError, TopicRecord,
    decode_record, encode_record,
};

/// Configuration by setting name.
pub type Settings = std::collections::BTreeMap<String, String>;

#[cfg(test)]
mod broker_tests;
#[cfg(test)]
mod tests;
