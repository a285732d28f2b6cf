//! The protocol's small values: ids, offsets, text, error codes, API keys. Each id has its own type, so that an offset can't be passed
//! where an epoch is wanted; the inner value is public because the wire's messages carry plain integers.

mod api_key;
mod error_code;
mod text;
mod uuid;

pub use api_key::ApiKey;
pub use error_code::ErrorCode;
pub use text::Str;
pub use uuid::{ParseUuidError, Uuid};

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl From<$name> for $inner {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

newtype! {
    /// A broker's id (`node.id`); -1 on the wire stands for none.
    BrokerId(i32)
}
newtype! {
    /// A partition's index within its topic, from 0.
    PartitionIndex(i32)
}
newtype! {
    /// The position of a record in its partition, from 0.
    Offset(i64)
}
newtype! {
    /// Counts the leaders of a partition; -1 on the wire stands for unknown.
    LeaderEpoch(i32)
}
newtype! {
    /// The id of an idempotent or transactional producer; -1 stands for none.
    ProducerId(i64)
}
newtype! {
    /// Counts the incarnations of a producer id; -1 stands for none.
    ProducerEpoch(i16)
}

impl BrokerId {
    /// No broker.
    pub const NONE: Self = Self(-1);
}

impl LeaderEpoch {
    /// Not known.
    pub const NONE: Self = Self(-1);
}

impl ProducerId {
    /// Not an idempotent producer.
    pub const NONE: Self = Self(-1);
}

impl ProducerEpoch {
    /// Not an idempotent producer.
    pub const NONE: Self = Self(-1);
}

impl Offset {
    /// The offset `count` further on, or `None` past the last possible offset.
    #[must_use]
    pub fn checked_add(self, count: i64) -> Option<Self> {
        self.0.checked_add(count).map(Self)
    }
}
