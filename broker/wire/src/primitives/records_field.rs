//! A field of record batches: bytes in memory, or a place in a file that whoever writes the response puts in.

use bytes::Bytes;

/// The records of a Produce request or a Fetch response. Decoding always gives `Bytes`.
#[derive(Clone, PartialEq)]
pub enum Records {
    /// Whole record batches, in memory.
    Bytes(Bytes),
    /// `length` bytes that the writer of the frame puts in here itself, such as a range of a segment file. What `token` means is
    /// between who built the message and who writes it.
    Region {
        /// Names the region to the writer.
        token: u32,
        /// Bytes the region has; at most `i32::MAX`.
        length: u32,
    },
}

impl Records {
    /// No records.
    #[must_use]
    pub const fn empty() -> Self {
        Self::Bytes(Bytes::new())
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Region { length, .. } => *length as usize,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, unless they are a region.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Region { .. } => None,
        }
    }
}

impl Default for Records {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Megabytes of records help nobody in a log line.
impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Records({} bytes)", bytes.len()),
            Self::Region { token, length } => write!(f, "Records(region {token}, {length} bytes)"),
        }
    }
}
