//! Entries as they are on disk: one record batch with one record each, so that an entry's index is its offset and its term the batch's
//! leader epoch, and Kafka's tools show the log.
//!
//! This is a disk format, as the records in `machines` are: an entry of a newer version or an unknown kind is refused, never skipped.

use bytes::Bytes;
use forebay_broker_wire::records::{Batch, BatchBuilder, NewRecord};
use forebay_broker_wire::types::{LeaderEpoch, Offset};
use openraft::EntryPayload;
use serde::{Deserialize, Serialize};

use super::types::{Change, Entry, Membership, log_id};

/// Entries of this version and those before it can be read.
const VERSION: u16 = 1;
/// The most that one entry may hold; it is not compressed.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Why an entry can't be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryError {
    /// Written by a newer program.
    #[error("metadata entry of version {version}: this program reads versions up to {VERSION}; start a newer one")]
    Version { version: u16 },
    /// Not an entry.
    #[error("metadata entry '{text}': {source}")]
    Form { text: String, source: serde_json::Error },
    /// A batch that is damaged, or more than an entry.
    #[error("{0}")]
    Batch(String),
    /// A term or index that Kafka's format has no room for.
    #[error("metadata entry {term}-{index}: must have a term of 31 bits and an index of 63")]
    Number { term: u64, index: u64 },
}

#[derive(Serialize, Deserialize)]
struct Value {
    version: u16,
    #[serde(flatten)]
    payload: Payload,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Payload {
    /// A leader begins.
    Blank,
    /// Who votes and who listens, from here on.
    Membership { membership: Membership },
    /// What was decided.
    Change(Change),
}

/// The batch for the log.
pub(super) fn encode(entry: &Entry, now_ms: i64) -> Result<Bytes, EntryError> {
    let payload = match &entry.payload {
        EntryPayload::Blank => Payload::Blank,
        EntryPayload::Normal(change) => Payload::Change(change.clone()),
        EntryPayload::Membership(membership) => Payload::Membership { membership: membership.clone() },
    };
    let (term, index) = (entry.log_id.leader_id.term, entry.log_id.index);
    let number = || EntryError::Number { term, index };
    let epoch = LeaderEpoch(i32::try_from(term).map_err(|_error| number())?);
    let offset = Offset(i64::try_from(index).map_err(|_error| number())?);
    let value = serde_json::to_vec(&Value { version: VERSION, payload })
        .map_err(|source| EntryError::Form { text: format!("{:?}", entry.log_id), source })?;
    let batch = |error: &dyn std::fmt::Display| EntryError::Batch(error.to_string());
    let mut builder = BatchBuilder::new(offset).leader_epoch(epoch);
    let record = NewRecord { timestamp_ms: now_ms, key: None, value: Some(&value), headers: &[] };
    builder.push(&record).map_err(|error| batch(&error))?;
    builder.build().map_err(|error| batch(&error))
}

/// The entry that a batch of the log holds.
pub(super) fn decode(batch: &Batch) -> Result<Entry, EntryError> {
    let header = &batch.header;
    let failed =
        |error: &dyn std::fmt::Display| EntryError::Batch(format!("batch at offset {}: {error}", header.base_offset));
    batch.check_crc().map_err(|error| failed(&error))?;
    if header.record_count != 1 {
        return Err(failed(&format!("has {} records, an entry has one", header.record_count)));
    }
    let number = EntryError::Number { term: 0, index: 0 };
    let (Ok(term), Ok(index)) = (u64::try_from(header.partition_leader_epoch.0), u64::try_from(header.base_offset.0))
    else {
        return Err(number);
    };
    let mut records = batch.records(ENTRY_BYTES_MAX).map_err(|error| failed(&error))?;
    let record = records.next().ok_or_else(|| failed(&"has no record"))?.map_err(|error| failed(&error))?;
    let payload = match decode_value(&record.value.unwrap_or_default())? {
        Payload::Blank => EntryPayload::Blank,
        Payload::Membership { membership } => EntryPayload::Membership(membership),
        Payload::Change(change) => EntryPayload::Normal(change),
    };
    Ok(Entry { log_id: log_id(term, index), payload })
}

fn decode_value(bytes: &[u8]) -> Result<Payload, EntryError> {
    #[derive(Deserialize)]
    struct Version {
        version: u16,
    }
    let failed =
        |source| EntryError::Form { text: String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned(), source };
    let Version { version } = serde_json::from_slice(bytes).map_err(failed)?;
    if version > VERSION {
        return Err(EntryError::Version { version });
    }
    serde_json::from_slice::<Value>(bytes).map(|value| value.payload).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use forebay_broker_machines::metadata::Record;
    use forebay_broker_wire::records::batches;
    use forebay_broker_wire::types::{BrokerId, Uuid};

    use super::super::types::{Address, VoterId};
    use super::*;

    fn check_read_back(payload: EntryPayload<Change, VoterId, Address>) -> String {
        let entry = Entry { log_id: log_id(7, 42), payload };
        let bytes = encode(&entry, 5).unwrap();
        let batch = batches(&bytes).next().unwrap().unwrap();
        assert_eq!((batch.header.base_offset, batch.header.partition_leader_epoch), (Offset(42), LeaderEpoch(7)));
        assert_eq!(decode(&batch).unwrap(), entry);
        let record = batch.records(1 << 20).unwrap().next().unwrap().unwrap();
        String::from_utf8(record.value.unwrap().to_vec()).unwrap()
    }

    #[test]
    fn an_entry_on_disk_can_be_read_by_people_and_gives_the_same_entry() {
        assert_eq!(check_read_back(EntryPayload::Blank), r#"{"version":1,"kind":"blank"}"#);
        let change = Change { based_on_version: 3, records: vec![Record::ProducerIds { next_producer_id: 9 }] };
        assert_eq!(
            check_read_back(EntryPayload::Normal(change)),
            r#"{"version":1,"kind":"change","basedOnVersion":3,"records":[{"type":"producerIds","nextProducerId":9}]}"#
        );
        let voter = VoterId { broker: BrokerId(0), directory: Uuid([1; 16]) };
        let nodes = BTreeMap::from([(voter, Address { host: "a".to_owned(), port: 9093 })]);
        let membership = Membership::new(vec![BTreeSet::from([voter])], nodes).unwrap();
        assert_eq!(
            check_read_back(EntryPayload::Membership(membership)),
            r#"{"version":1,"kind":"membership","membership":{"configs":[["0@AQEBAQEBAQEBAQEBAQEBAQ"]],"nodes":{"0@AQEBAQEBAQEBAQEBAQEBAQ":{"host":"a","port":9093}}}}"#
        );
    }

    #[test]
    fn an_entry_of_a_newer_program_or_of_an_unknown_kind_is_refused() {
        let error = decode_value(br#"{"version":2,"kind":"shiny"}"#).err().unwrap().to_string();
        assert_eq!(error, "metadata entry of version 2: this program reads versions up to 1; start a newer one");
        assert!(decode_value(br#"{"version":1,"kind":"shiny"}"#).is_err());
        assert!(decode_value(br#"{"version":1,"type":"topic","name":"t"}"#).is_err());
    }
}
