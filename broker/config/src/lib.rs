//! Broker and topic configuration: one table of definitions that the operator writes by, the broker reads by, DescribeConfigs
//! answers from and `docs/reference/config.md` is generated from, so that the four cannot drift apart.
//!
//! Names, types and units are Kafka's; Forebay's own settings start with `forebay.`. Nothing here does I/O: text in, typed values
//! or errors that name the setting, the value and what would be right out.

mod broker;
mod cluster;
mod definitions;
mod errors;
mod properties;
mod reader;
mod reference;
pub mod status;
mod suggest;
mod topic;
mod values;

pub use broker::{
    BrokerConfig, GroupSettings, Listener, LogSettings, MembershipSettings, NetworkSettings, OffsetsSettings,
    QuorumSettings, QuorumVoter, ReplicaSettings, Threads, ThreadsInForce, broker_id_from_name, parse_advertised,
};
pub use cluster::{add_cluster_settings, check_broker_count, voter_count};
pub use definitions::{Definition, Dynamic, Kind, Scope, Unit, Valid, broker_definitions, find, topic_definitions};
pub use errors::{ConfigError, ConfigErrors};
pub use properties::{parse_properties, render_properties};
pub use reference::reference_page;
pub use suggest::nearest;
pub use topic::{
    CleanupPolicy, CompressionType, Entry, Layers, Source, Synonym, TimestampType, TopicConfig, describe_broker,
    describe_topic, effective_value,
};
pub use values::{check_value, validate_broker, validate_topic};

/// Settings by name, as somebody wrote them; ordered so that what is rendered from them is stable.
pub type Settings = std::collections::BTreeMap<String, String>;
