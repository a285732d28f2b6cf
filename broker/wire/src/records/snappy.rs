//! Snappy as clients send it: either one raw block (librdkafka, Go), or the stream framing of the Java library: a header, then raw
//! blocks with their length before them. Streams may be concatenated.

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

const STREAM_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Version and least compatible version, both 1.
const STREAM_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const STREAM_HEADER_BYTES: usize = 16;
/// What the Java library puts in a block.
const BLOCK_BYTES: usize = 32 * 1024;

pub(super) enum Error {
    TooLarge,
    Corrupt(String),
}

fn corrupt(reason: impl Into<String>) -> Error {
    Error::Corrupt(reason.into())
}

pub(super) fn decompress(stored: &[u8], limit_bytes: usize) -> Result<Vec<u8>, Error> {
    let mut plain = Vec::new();
    if !stored.starts_with(&STREAM_MAGIC) {
        append_block(stored, limit_bytes, &mut plain)?;
        return Ok(plain);
    }
    let mut rest = stored;
    while !rest.is_empty() {
        if rest.starts_with(&STREAM_MAGIC) {
            rest = rest.get(STREAM_HEADER_BYTES..).ok_or_else(|| corrupt("stream header is cut off"))?;
            continue;
        }
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(|| corrupt("block length is cut off"))?;
        let length = u32::from_be_bytes(*length) as usize;
        let block = after.get(..length).ok_or_else(|| corrupt(format!("block of {length} bytes is cut off")))?;
        append_block(block, limit_bytes, &mut plain)?;
        rest = after.get(length..).unwrap_or_default();
    }
    Ok(plain)
}

/// A block says how large it becomes, so that the limit is known before anything is allocated.
fn append_block(block: &[u8], limit_bytes: usize, plain: &mut Vec<u8>) -> Result<(), Error> {
    let length = decompress_len(block).map_err(|error| corrupt(error.to_string()))?;
    let start = plain.len();
    if length > limit_bytes.saturating_sub(start) {
        return Err(Error::TooLarge);
    }
    plain.resize(start + length, 0);
    let place = plain.get_mut(start..).unwrap_or_default();
    Decoder::new().decompress(block, place).map_err(|error| corrupt(error.to_string()))?;
    Ok(())
}

pub(super) fn compress(plain: &[u8], out: &mut Vec<u8>) -> Result<(), snap::Error> {
    out.extend_from_slice(&STREAM_MAGIC);
    out.extend_from_slice(&STREAM_VERSIONS);
    let mut encoder = Encoder::new();
    let mut block = vec![0; max_compress_len(BLOCK_BYTES)];
    for chunk in plain.chunks(BLOCK_BYTES) {
        let length = encoder.compress(chunk, &mut block)?;
        out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(block.get(..length).unwrap_or_default());
    }
    Ok(())
}
