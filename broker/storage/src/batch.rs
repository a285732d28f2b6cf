//! The 61-byte header of a record batch (v2), as storage reads it.

/// Bytes of a batch header.
pub(crate) const HEADER_BYTES: usize = 61;
/// Bytes before the part that the length field counts.
pub(crate) const LENGTH_PREFIX_BYTES: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) base_offset: i64,
    pub(crate) batch_length: i32,
    pub(crate) partition_leader_epoch: i32,
    pub(crate) magic: i8,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) records_count: i32,
}

fn be<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl BatchHeader {
    pub(crate) fn parse(b: &[u8]) -> Option<Self> {
        if b.len() < HEADER_BYTES {
            return None;
        }
        Some(Self {
            base_offset: i64::from_be_bytes(be(b, 0)),
            batch_length: i32::from_be_bytes(be(b, 8)),
            partition_leader_epoch: i32::from_be_bytes(be(b, 12)),
            magic: i8::from_be_bytes(be(b, 16)),
            crc: u32::from_be_bytes(be(b, 17)),
            attributes: i16::from_be_bytes(be(b, 21)),
            last_offset_delta: i32::from_be_bytes(be(b, 23)),
            base_timestamp: i64::from_be_bytes(be(b, 27)),
            max_timestamp: i64::from_be_bytes(be(b, 35)),
            producer_id: i64::from_be_bytes(be(b, 43)),
            producer_epoch: i16::from_be_bytes(be(b, 51)),
            base_sequence: i32::from_be_bytes(be(b, 53)),
            records_count: i32::from_be_bytes(be(b, 57)),
        })
    }

    pub(crate) fn size(&self) -> u64 {
        LENGTH_PREFIX_BYTES as u64 + u64::try_from(self.batch_length).unwrap_or(0)
    }

    pub(crate) fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    pub(crate) fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }
}
