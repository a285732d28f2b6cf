//! Compressing and decompressing a batch's records, each algorithm in the framing that Java clients use. Decompressing stops at the
//! caller's limit, however small the input.

use std::fmt;
use std::io::{Read, Write};
use std::str::FromStr;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::{BuildError, RecordError, snappy};

/// How a batch's records are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Raw snappy blocks in Java's own stream framing.
    Snappy,
    /// The lz4 frame format.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// Every algorithm, by ascending id.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The number in a batch's attributes.
    #[must_use]
    pub const fn id(self) -> i16 {
        self as i16
    }

    /// The algorithm with this number.
    #[must_use]
    pub const fn from_id(id: i16) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The name that `compression.type` has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Decompresses into at most `limit_bytes`. Uncompressed bytes come back as they are, whatever their size.
    pub(super) fn decompress(self, stored: Bytes, limit_bytes: usize) -> Result<Bytes, RecordError> {
        let failed =
            |reason: &dyn fmt::Display| RecordError::Decompress { compression: self, reason: reason.to_string() };
        let too_large = RecordError::TooLarge { compression: self, limit_bytes };
        let mut plain = Vec::new();
        // One byte more than allowed is asked for, so that "exactly the limit" and "above it" can be told apart.
        let most = (limit_bytes as u64).saturating_add(1);
        let read = match self {
            Self::None => return Ok(stored),
            Self::Snappy => {
                return match snappy::decompress(&stored, limit_bytes) {
                    Ok(plain) => Ok(plain.into()),
                    Err(snappy::Error::TooLarge) => Err(too_large),
                    Err(snappy::Error::Corrupt(reason)) => Err(failed(&reason)),
                };
            }
            Self::Gzip => MultiGzDecoder::new(&stored[..]).take(most).read_to_end(&mut plain),
            Self::Lz4 => FrameDecoder::new(&stored[..]).take(most).read_to_end(&mut plain),
            Self::Zstd => zstd::stream::read::Decoder::with_buffer(&stored[..])
                .and_then(|decoder| decoder.take(most).read_to_end(&mut plain)),
        };
        match read {
            Err(error) => Err(failed(&error)),
            Ok(bytes) if bytes > limit_bytes => Err(too_large),
            Ok(_) => Ok(plain.into()),
        }
    }

    /// Appends the compressed bytes to `out`.
    pub(super) fn compress(self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), BuildError> {
        let failed = |reason: &dyn fmt::Display| BuildError::Compress { compression: self, reason: reason.to_string() };
        match self {
            Self::None => {
                out.extend_from_slice(plain);
                Ok(())
            }
            Self::Gzip => {
                let mut encoder = GzEncoder::new(out, flate2::Compression::default());
                encoder.write_all(plain).and_then(|()| encoder.finish().map(|_| ())).map_err(|error| failed(&error))
            }
            Self::Snappy => snappy::compress(plain, out).map_err(|error| failed(&error)),
            Self::Lz4 => {
                // What Java clients read and write: independent blocks of 64 KiB, no checksums.
                let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
                let mut encoder = FrameEncoder::with_frame_info(info, out);
                encoder.write_all(plain).map_err(|error| failed(&error))?;
                encoder.finish().map(|_| ()).map_err(|error| failed(&error))
            }
            Self::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, 0).map_err(|error| failed(&error))?;
                encoder.write_all(plain).and_then(|()| encoder.finish().map(|_| ())).map_err(|error| failed(&error))
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no algorithm has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compression {name:?} is not one of none, gzip, snappy, lz4, zstd")]
pub struct UnknownCompression {
    name: String,
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|compression| compression.name() == name);
        known.ok_or_else(|| UnknownCompression { name: name.to_owned() })
    }
}
