//! What can go wrong between this client and a broker, and what a broker says no to.

use std::time::Duration;

use forebay_broker_wire::frame::FrameError;
use forebay_broker_wire::primitives::DecodeError;
use forebay_broker_wire::types::{ErrorCode, Str};
use thiserror::Error;

/// A broker's refusal of one thing asked: its code, and its own words when it gave any.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} ({name})", .message.as_deref().unwrap_or_else(|| .code.message()), name = .code.name())]
pub struct Refused {
    /// The protocol's code.
    pub code: ErrorCode,
    /// What the broker says beyond the code.
    pub message: Option<String>,
}

impl Refused {
    /// `Err` unless the code is 0.
    pub fn check(code: i16, message: Option<&Str>) -> Result<(), Self> {
        match ErrorCode::from_code(code) {
            ErrorCode::None => Ok(()),
            code => Err(Self { code, message: message.map(|m| m.as_str().to_owned()).filter(|m| !m.is_empty()) }),
        }
    }

    /// A refusal by its code alone.
    #[must_use]
    pub fn of(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

/// Why no connection came about.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// An address that can't be read.
    #[error("address {address:?} is not host:port")]
    Address {
        /// As given.
        address: String,
    },
    /// Nobody answers there.
    #[error("can't connect to {address}: {source}")]
    Io {
        /// Where to.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Nobody answered in time.
    #[error("can't connect to {address} within {after:?}")]
    Timeout {
        /// Where to.
        address: String,
        /// How long was waited.
        after: Duration,
    },
    /// Something listens, but the first exchange failed.
    #[error("{address} does not answer like a Kafka broker: {source}")]
    Handshake {
        /// Where to.
        address: String,
        /// What failed.
        source: Box<RequestError>,
    },
    /// No bootstrap address worked; the last error is told.
    #[error("none of the bootstrap addresses {addresses} can be reached: {last}")]
    NoBootstrap {
        /// All that were tried.
        addresses: String,
        /// Why the last one failed.
        last: Box<ConnectError>,
    },
}

/// Why a request has no usable answer.
#[derive(Debug, Error)]
pub enum RequestError {
    /// There is no connection to send it on.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection ended before the answer; the request may or may not have been carried out.
    #[error("connection to {address} closed before the answer to {api}: {reason}")]
    Closed {
        /// The broker's address.
        address: String,
        /// The API asked.
        api: &'static str,
        /// What ended it.
        reason: String,
    },
    /// No answer in time; the request may or may not have been carried out.
    #[error("no answer to {api} from {address} within {after:?}")]
    Timeout {
        /// The broker's address.
        address: String,
        /// The API asked.
        api: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The broker and this client have no version in common.
    #[error("{address} speaks versions {theirs} of {api}, this client {ours}")]
    Unsupported {
        /// The broker's address.
        address: String,
        /// The API asked.
        api: &'static str,
        /// The broker's range, or "none".
        theirs: String,
        /// Our range.
        ours: String,
    },
    /// The request can't be written in the version the broker speaks.
    #[error("can't write {api} version {version}: {source}")]
    Encode {
        /// The API asked.
        api: &'static str,
        /// The version chosen.
        version: i16,
        /// Which field, and why.
        source: FrameError,
    },
    /// The answer can't be read.
    #[error("can't read the answer to {api} version {version} from {address}: {source}")]
    Decode {
        /// The broker's address.
        address: String,
        /// The API asked.
        api: &'static str,
        /// The version chosen.
        version: i16,
        /// Which field, and why.
        source: DecodeError,
    },
    /// The broker refused the whole request.
    #[error("{what}: {refused}")]
    Refused {
        /// What was asked, with its values.
        what: String,
        /// The broker's answer.
        refused: Refused,
    },
    /// No broker leads, coordinates or has the id asked for.
    #[error("no broker for {what}")]
    NoBroker {
        /// What a broker was looked for.
        what: String,
    },
}

impl RequestError {
    /// Turns a top-level error code into an error; `what` names the request.
    pub fn check(code: i16, message: Option<&Str>, what: impl FnOnce() -> String) -> Result<(), Self> {
        Refused::check(code, message).map_err(|refused| Self::Refused { what: what(), refused })
    }

    /// The broker's code, when it is the broker that said no.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { refused, .. } => Some(refused.code),
            _ => None,
        }
    }

    /// Whether asking again, perhaps another broker, can help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Closed { .. } | Self::Timeout { .. } | Self::NoBroker { .. } => true,
            Self::Refused { refused, .. } => refused.code.is_retriable(),
            Self::Unsupported { .. } | Self::Encode { .. } | Self::Decode { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_prefers_the_brokers_own_words_and_always_names_the_code() {
        let spoken = Refused::check(36, Some(&Str::from("orders is there"))).unwrap_err();
        assert_eq!(spoken.to_string(), "orders is there (TOPIC_ALREADY_EXISTS)");
        let silent = Refused::check(36, None).unwrap_err();
        assert!(silent.to_string().ends_with("(TOPIC_ALREADY_EXISTS)"), "{silent}");
        assert!(Refused::check(0, None).is_ok());
    }
}
