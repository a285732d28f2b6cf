//! Text as received: a slice of the frame it came in, always valid UTF-8, cheap to clone.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use bytestring::ByteString;

/// UTF-8 text that shares the memory of the frame it was read from. What outlives its request must be [`Str::detached`], or it
/// keeps the whole frame alive.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Str(ByteString);

impl Str {
    /// The empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self(ByteString::new())
    }

    /// Text that lives as long as the program.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(ByteString::from_static(text))
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A copy that owns its bytes and no longer holds the frame.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self::from(self.as_str())
    }
}

/// Checks the bytes once; they are not copied.
impl TryFrom<Bytes> for Str {
    type Error = std::str::Utf8Error;

    fn try_from(bytes: Bytes) -> Result<Self, Self::Error> {
        ByteString::try_from(bytes).map(Self)
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self(ByteString::from(text))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(ByteString::from(text))
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Str> for String {
    fn from(text: Str) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Str {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl serde::Serialize for Str {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Str {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_map_keyed_by_text_is_looked_up_with_a_plain_str() {
        let map = HashMap::from([(Str::from("orders"), 1)]);
        assert_eq!(map.get("orders"), Some(&1));
    }

    #[test]
    fn a_slice_shares_the_frame_and_a_detached_copy_does_not() {
        let frame = Bytes::from_static(b"orders-and-more");
        let text = Str::try_from(frame.slice(0..6)).unwrap();
        assert_eq!(text.as_ptr(), frame.as_ptr());
        let copy = text.detached();
        assert_eq!(copy, text);
        assert_ne!(copy.as_ptr(), frame.as_ptr());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert!(Str::try_from(Bytes::from_static(&[0xff, 0xfe])).is_err());
    }
}
