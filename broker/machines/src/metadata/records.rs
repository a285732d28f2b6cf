//! The metadata records as they are on disk: JSON values of ordinary record batches, each with a version and a type.
//!
//! This is a disk format. A record of a version or type that is not known is refused, never skipped: half a picture of the cluster
//! is worse than none. A field with a default may be added, and a type; any other change needs the next version.

use forebay_broker_wire::types::Uuid;
use serde::{Deserialize, Serialize};

/// The version written, and the newest read.
const VERSION: u16 = 1;

/// One change to the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Record {
    /// A snapshot begins: what went before is forgotten.
    Snapshot {
        /// The image's version before the records that follow.
        image_version: i64,
    },
    /// The cluster has this id.
    Cluster {
        /// 22 characters of url-safe base64.
        cluster_id: String,
    },
    /// A broker is, and is reached so.
    Broker(BrokerRecord),
    /// A broker is no more, and will not come again.
    BrokerRemoved {
        /// `node.id`.
        broker_id: i32,
    },
    /// A topic is; its partitions follow.
    Topic(TopicRecord),
    /// A topic and its partitions are no more.
    TopicRemoved {
        /// The topic.
        topic_id: Uuid,
    },
    /// A partition is, or has changed.
    Partition(PartitionRecord),
    /// A setting has this value, or none of its own any more.
    Config(ConfigRecord),
    /// Producer ids below this one have been given out.
    ProducerIds {
        /// The first id of the next block.
        next_producer_id: i64,
    },
}

/// A broker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrokerRecord {
    /// `node.id`.
    pub broker_id: i32,
    /// Grows with each registration.
    pub broker_epoch: i64,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// Where it is reached, by listener.
    pub endpoints: Vec<Endpoint>,
    /// The ids of its log dirs.
    pub directories: Vec<Uuid>,
    /// One life of its process.
    #[serde(default)]
    pub incarnation: Uuid,
    /// Not to be relied on: it leads nothing.
    #[serde(default)]
    pub fenced: bool,
    /// About to stop: it is to lead nothing, and to be in no ISR.
    #[serde(default)]
    pub in_controlled_shutdown: bool,
}

/// Where a broker is reached on one listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    /// The listener's name.
    pub listener: String,
    /// The advertised host.
    pub host: String,
    /// The advertised port.
    pub port: u16,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopicRecord {
    /// Never used again, even for a topic of the same name.
    pub topic_id: Uuid,
    /// The name.
    pub name: String,
}

/// A partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartitionRecord {
    /// The topic.
    pub topic_id: Uuid,
    /// From 0, without gaps.
    pub partition: i32,
    /// The preferred leader first.
    pub replicas: Vec<i32>,
    /// Those in sync.
    pub in_sync_replicas: Vec<i32>,
    /// The leader; -1 while there is none.
    pub leader: i32,
    /// Grows with each leader.
    pub leader_epoch: i32,
    /// Grows with each change.
    pub partition_epoch: i32,
    /// Replicas that a reassignment adds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adding_replicas: Vec<i32>,
    /// Replicas that a reassignment removes once the added ones are in sync.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removing_replicas: Vec<i32>,
    /// Out of sync, but with all that was acknowledged (KIP-966).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eligible_leader_replicas: Vec<i32>,
    /// As these, but their broker has crashed since: the end may be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crashed_replicas: Vec<i32>,
    /// Their log was lost with its disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_replicas: Vec<i32>,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigRecord {
    /// Whose.
    pub resource: ConfigResource,
    /// Kafka's name of the setting.
    pub name: String,
    /// None: the next weaker layer counts again.
    pub value: Option<String>,
}

/// Whose a setting is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ConfigResource {
    /// A topic's, by name.
    Topic(String),
    /// A broker's, by id.
    Broker(i32),
    /// All brokers'.
    Cluster,
}

/// Why a stored record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer program.
    #[error("metadata record of version {version}: this program reads versions up to {VERSION}; start a newer one")]
    Version {
        /// The record's.
        version: u16,
    },
    /// Not a record of ours.
    #[error("metadata record '{text}': {source}")]
    Form {
        /// Its beginning.
        text: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A record that could not be written.
    #[error("metadata record {record}: {source}")]
    Encode {
        /// Its type.
        record: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Version {
    version: u16,
}

/// The record as bytes for the disk.
///
/// # Errors
/// The record has no JSON form.
pub fn encode_record(record: &Record) -> Result<Vec<u8>, RecordError> {
    let failed = |source| RecordError::Encode { record: format!("{record:?}"), source };
    let mut object = serde_json::to_value(record).map_err(failed)?;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("version".to_owned(), VERSION.into());
    }
    serde_json::to_vec(&object).map_err(failed)
}

/// The record that bytes from the disk hold.
///
/// # Errors
/// The bytes are not a record, or one of a newer program.
pub fn decode_record(bytes: &[u8]) -> Result<Record, RecordError> {
    let failed = |source| RecordError::Form {
        text: String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned(),
        source,
    };
    let mut object: serde_json::Value = serde_json::from_slice(bytes).map_err(failed)?;
    let Version { version } = Version::deserialize(&object).map_err(failed)?;
    if version > VERSION {
        return Err(RecordError::Version { version });
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("version");
    }
    serde_json::from_value(object).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_on_disk_can_be_read_by_people() {
        let record = Record::Topic(TopicRecord { topic_id: Uuid([1; 16]), name: "orders".to_owned() });
        let text = String::from_utf8(encode_record(&record).unwrap()).unwrap();
        assert_eq!(text, r#"{"name":"orders","topicId":"AQEBAQEBAQEBAQEBAQEBAQ","type":"topic","version":1}"#);
    }

    #[test]
    fn a_record_of_a_newer_program_is_refused_with_both_versions() {
        let error = decode_record(br#"{"type":"shiny","version":2}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "metadata record of version 2: this program reads versions up to 1; start a newer one"
        );
    }

    #[test]
    fn a_record_that_is_not_known_is_refused_rather_than_skipped() {
        assert!(decode_record(br#"{"type":"shiny","version":1}"#).is_err());
        assert!(
            decode_record(br#"{"type":"topicRemoved","topicId":"AQEBAQEBAQEBAQEBAQEBAQ","more":1,"version":1}"#)
                .is_err()
        );
        assert!(decode_record(b"not json").is_err());
    }
}
