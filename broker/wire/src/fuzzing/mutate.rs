//! Damage: a few small changes, chosen where lengths and counts are likely to be, from a generator that a seed decides.

use bytes::Bytes;

/// SplitMix64: small, and every seed is a good one.
#[derive(Debug)]
pub struct Random {
    state: u64,
}

/// Bytes that mean something as a length, a count or a varint.
const BYTES: [u8; 10] = [0x00, 0x01, 0x02, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x0f, 0x10];
/// Numbers that mean something as a length or a count.
const NUMBERS: [i32; 9] = [0, -1, -2, 1, i32::MAX, i32::MIN, 0x0000_ffff, 0x00ff_ffff, 0x7fff_0000];

impl Random {
    /// The generator of one execution of a run.
    #[must_use]
    pub fn new(seed: u64, execution: u64) -> Self {
        let mut random = Self { state: seed ^ execution.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// One of `all`, which must not be empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A version that some message has, or none.
    pub fn interesting_version(&mut self) -> i16 {
        *self.pick(&[-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 99, i16::MAX, i16::MIN])
    }

    fn byte(&mut self) -> u8 {
        if self.below(2) == 0 { *self.pick(&BYTES) } else { self.next().to_le_bytes()[0] }
    }
}

/// The sample with one to eight changes. `other` lends bytes for a splice.
pub fn mutate(random: &mut Random, sample: &[u8], other: &[u8], most_bytes: usize) -> Bytes {
    let mut bytes = sample.to_vec();
    for _ in 0..=random.below(8) {
        change(random, &mut bytes, other);
        bytes.truncate(most_bytes);
    }
    bytes.into()
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(bytes.len());
    let length = random.below(bytes.len() - at + 1).min(1 + random.below(64));
    match random.below(9) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = random.byte(),
        2 if bytes.len() - at >= 4 => bytes[at..at + 4].copy_from_slice(&random.pick(&NUMBERS).to_be_bytes()),
        3 if bytes.len() - at >= 2 => {
            bytes[at..at + 2].copy_from_slice(&random.pick(&NUMBERS).to_be_bytes()[2..]);
        }
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..at + length)),
        6 => {
            let repeated = bytes[at..at + length].repeat(1 + random.below(40));
            bytes.splice(at..at, repeated);
        }
        7 if !other.is_empty() => {
            let from = random.below(other.len());
            let to = from + random.below(other.len() - from + 1);
            bytes.splice(at..at + length, other[from..to].iter().copied());
        }
        _ => {
            let inserted: Vec<u8> = (0..1 + random.below(6)).map(|_| random.byte()).collect();
            bytes.splice(at..at, inserted);
        }
    }
}

/// Repairs what would otherwise stop a damaged batch at the door, so that the damage reaches the records.
#[must_use]
pub fn with_right_length_and_crc(bytes: &Bytes) -> Bytes {
    const HEADER_BYTES: usize = 61;
    if bytes.len() < HEADER_BYTES {
        return bytes.clone();
    }
    let mut batch = bytes.to_vec();
    let length = i32::try_from(batch.len() - 12).unwrap_or(i32::MAX);
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}
