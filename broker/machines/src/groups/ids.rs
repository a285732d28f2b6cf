//! Names by which groups and their members are known.
//!
//! They own their text: what a group remembers must not keep a received frame alive.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text as it is on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// True for the empty text, by which the protocol says "none".
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:?}", &self.0)
            }
        }
    };
}

name_type! {
    /// A group's id (`group.id`).
    GroupId
}
name_type! {
    /// A member's id, given out by the coordinator; empty before it has one.
    MemberId
}
name_type! {
    /// A static member's own name (`group.instance.id`), the same after a restart.
    InstanceId
}
name_type! {
    /// A topic's name.
    TopicName
}

/// Which request a reply belongs to. The shell chooses it; the machine only hands it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestToken(pub u64);
