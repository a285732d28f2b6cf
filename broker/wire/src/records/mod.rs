//! Record batches, format 2: the only one Kafka 4 still writes. A batch is kept and sent exactly as its producer made it; only fields in
//! its 61-byte header are read, and a few patched, in place. Records are decoded where they must be (compaction, time lookup, clients)
//! and then bounded: compressed bytes never become more memory than the caller allows.

mod batch;
mod builder;
mod compression;
mod error;
mod header;
mod plain;
mod record;
mod snappy;

pub use batch::{Batch, Batches, batches};
pub use builder::{BatchBuilder, NewRecord};
pub use compression::Compression;
pub use error::{BatchError, BuildError, RecordError};
pub use header::{BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES, TimestampType};
pub use header::{set_base_offset_and_leader_epoch, set_log_append_time};
pub use plain::PlainRecords;
pub use record::{Record, RecordHeader, RecordIter};

#[cfg(test)]
mod tests;
