//! The 61 bytes before a batch's records, read and patched in place. The CRC covers everything from the attributes on: base offset and
//! leader epoch come before it and change without a new CRC; anything else that is patched gets one.

use super::{BatchError, Compression};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Bytes of a batch before its records.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the part that `batch_length` counts: base offset and the length itself.
pub const LENGTH_PREFIX_BYTES: usize = 12;

const BASE_OFFSET: usize = 0;
const BATCH_LENGTH: usize = 8;
const LEADER_EPOCH: usize = 12;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const MAX_TIMESTAMP: usize = 35;
const PRODUCER_ID: usize = 43;
const PRODUCER_EPOCH: usize = 51;
const BASE_SEQUENCE: usize = 53;
const RECORD_COUNT: usize = 57;

pub(super) const MAGIC_V2: i8 = 2;
pub(super) const COMPRESSION_BITS: i16 = 0b111;
pub(super) const LOG_APPEND_TIME_BIT: i16 = 1 << 3;
pub(super) const TRANSACTIONAL_BIT: i16 = 1 << 4;
pub(super) const CONTROL_BIT: i16 = 1 << 5;
pub(super) const DELETE_HORIZON_BIT: i16 = 1 << 6;

/// Whose clock a batch's timestamps are from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The broker's at the append: every record has the batch's max timestamp.
    LogAppendTime,
}

/// A batch's header. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; what a producer sends here is replaced at the append.
    pub base_offset: Offset,
    /// Bytes after the first twelve.
    pub batch_length: i32,
    /// Epoch of the leader that appended it.
    pub partition_leader_epoch: LeaderEpoch,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Flags; see the methods.
    pub attributes: i16,
    /// Last offset minus base offset. Stays when compaction removes records.
    pub last_offset_delta: i32,
    /// The first record's timestamp, or the delete horizon.
    pub base_timestamp_ms: i64,
    /// The highest timestamp of the records.
    pub max_timestamp_ms: i64,
    /// Who produced it; -1 if not idempotent.
    pub producer_id: ProducerId,
    /// The producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// The producer's sequence number for the first record; -1 if not idempotent.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which may end before the batch does. Magic, length, counts and compression have been
    /// checked then; the CRC has not.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let present = bytes.len();
        let short = BatchError::Incomplete { needed: HEADER_BYTES, present };
        // Older formats have their magic at the same place, so they can be named even if they are shorter.
        let magic = i8::from_be_bytes(read(bytes, MAGIC).ok_or(short)?);
        if magic != MAGIC_V2 {
            return Err(BatchError::UnsupportedMagic(magic));
        }
        let header = Self::fields(bytes).ok_or(short)?;
        header.check()?;
        Ok(header)
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            base_offset: Offset(i64::from_be_bytes(read(bytes, BASE_OFFSET)?)),
            batch_length: i32::from_be_bytes(read(bytes, BATCH_LENGTH)?),
            partition_leader_epoch: LeaderEpoch(i32::from_be_bytes(read(bytes, LEADER_EPOCH)?)),
            crc: u32::from_be_bytes(read(bytes, CRC)?),
            attributes: i16::from_be_bytes(read(bytes, ATTRIBUTES)?),
            last_offset_delta: i32::from_be_bytes(read(bytes, LAST_OFFSET_DELTA)?),
            base_timestamp_ms: i64::from_be_bytes(read(bytes, BASE_TIMESTAMP)?),
            max_timestamp_ms: i64::from_be_bytes(read(bytes, MAX_TIMESTAMP)?),
            producer_id: ProducerId(i64::from_be_bytes(read(bytes, PRODUCER_ID)?)),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(read(bytes, PRODUCER_EPOCH)?)),
            base_sequence: i32::from_be_bytes(read(bytes, BASE_SEQUENCE)?),
            record_count: i32::from_be_bytes(read(bytes, RECORD_COUNT)?),
        })
    }

    fn check(&self) -> Result<(), BatchError> {
        if usize::try_from(self.batch_length).is_ok_and(|length| length >= HEADER_BYTES - LENGTH_PREFIX_BYTES) {
            let counts_fit = self.last_offset_delta >= 0
                && (0..=i64::from(self.last_offset_delta) + 1).contains(&i64::from(self.record_count));
            if !counts_fit || self.base_offset.checked_add(i64::from(self.last_offset_delta)).is_none() {
                return Err(BatchError::InvalidCount {
                    base_offset: self.base_offset.0,
                    record_count: self.record_count,
                    last_offset_delta: self.last_offset_delta,
                });
            }
            let compression = self.attributes & COMPRESSION_BITS;
            Compression::from_id(compression).map(|_| ()).ok_or(BatchError::UnknownCompression(compression))
        } else {
            Err(BatchError::InvalidLength(self.batch_length))
        }
    }

    /// Reads the header and checks that `batch` is exactly one batch, whole, with the CRC that its header says.
    pub fn validate(batch: &[u8]) -> Result<Self, BatchError> {
        let header = Self::parse(batch)?;
        let needed = header.total_bytes();
        if batch.len() != needed {
            return Err(BatchError::Incomplete { needed, present: batch.len() });
        }
        let computed = crc_of(batch);
        if computed == header.crc { Ok(header) } else { Err(BatchError::CrcMismatch { stored: header.crc, computed }) }
    }

    /// Bytes of the whole batch.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        LENGTH_PREFIX_BYTES + usize::try_from(self.batch_length).unwrap_or(0)
    }

    /// Offset of the last record, removed ones included.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0 + i64::from(self.last_offset_delta))
    }

    /// Offset of what follows the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// The producer's sequence number for the last record; numbers wrap to 0 after `i32::MAX`. -1 if not idempotent.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let last = (i64::from(self.base_sequence) + i64::from(self.last_offset_delta)) % (i64::from(i32::MAX) + 1);
        i32::try_from(last).unwrap_or(i32::MAX)
    }

    /// How the records are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        Compression::from_id(self.attributes & COMPRESSION_BITS).unwrap_or_default()
    }

    /// Whose clock the timestamps are from.
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the records belong to a transaction.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether it holds a marker for brokers and clients rather than people's records.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Whether the base timestamp is the time after which compaction may drop the batch's tombstones.
    #[must_use]
    pub const fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_BIT != 0
    }

    /// Whether a producer with an id wrote it.
    #[must_use]
    pub const fn has_producer_id(&self) -> bool {
        self.producer_id.0 >= 0
    }

    /// The header as bytes, CRC as it stands in it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        write(&mut bytes, BASE_OFFSET, self.base_offset.0.to_be_bytes());
        write(&mut bytes, BATCH_LENGTH, self.batch_length.to_be_bytes());
        write(&mut bytes, LEADER_EPOCH, self.partition_leader_epoch.0.to_be_bytes());
        write(&mut bytes, MAGIC, MAGIC_V2.to_be_bytes());
        write(&mut bytes, CRC, self.crc.to_be_bytes());
        write(&mut bytes, ATTRIBUTES, self.attributes.to_be_bytes());
        write(&mut bytes, LAST_OFFSET_DELTA, self.last_offset_delta.to_be_bytes());
        write(&mut bytes, BASE_TIMESTAMP, self.base_timestamp_ms.to_be_bytes());
        write(&mut bytes, MAX_TIMESTAMP, self.max_timestamp_ms.to_be_bytes());
        write(&mut bytes, PRODUCER_ID, self.producer_id.0.to_be_bytes());
        write(&mut bytes, PRODUCER_EPOCH, self.producer_epoch.0.to_be_bytes());
        write(&mut bytes, BASE_SEQUENCE, self.base_sequence.to_be_bytes());
        write(&mut bytes, RECORD_COUNT, self.record_count.to_be_bytes());
        bytes
    }
}

/// Gives a batch its place in the log. The CRC does not cover these fields and stays.
pub fn set_base_offset_and_leader_epoch(
    batch: &mut [u8],
    base_offset: Offset,
    epoch: LeaderEpoch,
) -> Result<(), BatchError> {
    require_header(batch)?;
    write(batch, BASE_OFFSET, base_offset.0.to_be_bytes());
    write(batch, LEADER_EPOCH, epoch.0.to_be_bytes());
    Ok(())
}

/// Gives all records of a whole batch the broker's time, and the batch a new CRC.
pub fn set_log_append_time(batch: &mut [u8], timestamp_ms: i64) -> Result<(), BatchError> {
    let needed = BatchHeader::parse(batch)?.total_bytes();
    let present = batch.len();
    if present != needed {
        return Err(BatchError::Incomplete { needed, present });
    }
    let attributes = read(batch, ATTRIBUTES).map_or(0, i16::from_be_bytes);
    write(batch, ATTRIBUTES, (attributes | LOG_APPEND_TIME_BIT).to_be_bytes());
    write(batch, MAX_TIMESTAMP, timestamp_ms.to_be_bytes());
    seal(batch);
    Ok(())
}

/// Writes the CRC of a whole batch into its header.
pub(super) fn seal(batch: &mut [u8]) {
    let crc = crc_of(batch);
    write(batch, CRC, crc.to_be_bytes());
}

fn crc_of(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(ATTRIBUTES..).unwrap_or_default())
}

fn require_header(batch: &[u8]) -> Result<(), BatchError> {
    match batch.len() {
        HEADER_BYTES.. => Ok(()),
        present => Err(BatchError::Incomplete { needed: HEADER_BYTES, present }),
    }
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Callers have checked that a header is there.
fn write<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}
