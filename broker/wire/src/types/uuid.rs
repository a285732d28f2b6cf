//! 128-bit ids of topics, directories and clusters, written the way the protocol's people write them: 22 characters of url-safe
//! base64 without padding. The two encodings are exact inverses.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TEXT_LENGTH: usize = 22;

/// A 128-bit id.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Text that is not an id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("uuid {text:?} is not 22 characters of url-safe base64")]
pub struct ParseUuidError {
    text: String,
}

impl Uuid {
    /// No id.
    pub const ZERO: Self = Self([0; 16]);
    /// The id the protocol reserves for the metadata topic.
    pub const METADATA_TOPIC: Self = Self::from_u128(1);

    /// The id with this value, most significant byte first.
    #[must_use]
    pub const fn from_u128(value: u128) -> Self {
        Self(value.to_be_bytes())
    }

    /// The value, most significant byte first.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Whether this stands for no id.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.as_u128();
        let mut text = String::with_capacity(TEXT_LENGTH);
        // 21 characters of six bits from the top; the last carries the two bits that remain, on its left.
        for index in 0..TEXT_LENGTH {
            let six = if index < 21 { value >> (122 - 6 * index) } else { value << 4 };
            text.push(char::from(ALPHABET[(six & 63) as usize]));
        }
        f.pad(&text)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseUuidError { text: text.chars().take(64).collect() };
        if text.len() != TEXT_LENGTH {
            return Err(refused());
        }
        let mut value = 0u128;
        for (index, character) in text.bytes().enumerate() {
            let six = ALPHABET.iter().position(|&known| known == character).ok_or_else(refused)? as u128;
            if index < 21 {
                value = value << 6 | six;
            } else if six & 0b1111 == 0 {
                value = value << 2 | six >> 4;
            } else {
                return Err(refused());
            }
        }
        Ok(Self::from_u128(value))
    }
}

impl serde::Serialize for Uuid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Uuid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_url_safe_base64_and_read_back() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::METADATA_TOPIC.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
        for value in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210] {
            let id = Uuid::from_u128(value);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn text_of_the_wrong_length_alphabet_or_padding_bits_is_refused() {
        for text in ["", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAB", "ééééééééééé"]
        {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
