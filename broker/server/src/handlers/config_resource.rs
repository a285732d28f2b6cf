//! Whose settings a request means: the protocol's type and name as one value.

use forebay_broker_machines::metadata::{ConfigResource, name_fault};
use forebay_broker_wire::types::ErrorCode;

use super::error_code::Failure;

/// The protocol's numbers of the types that have settings here.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
/// Types that exist and have none.
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Whose settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resource {
    /// A topic's.
    Topic(String),
    /// A broker's.
    Broker(i32),
    /// All brokers', which is the broker without a name.
    Cluster,
}

pub(super) fn read_resource(kind: i8, name: &str) -> Result<Resource, Failure> {
    let refuse = |message: String| Err(Failure::new(ErrorCode::InvalidRequest, message));
    match (kind, name) {
        (TOPIC, name) => match name_fault(name) {
            Some(fault) => Err(Failure::new(ErrorCode::InvalidTopicException, format!("topic name '{name}' {fault}"))),
            None => Ok(Resource::Topic(name.to_owned())),
        },
        (BROKER, "") => Ok(Resource::Cluster),
        (BROKER, name) => match name.parse() {
            Ok(id) => Ok(Resource::Broker(id)),
            Err(_) => refuse(format!("broker '{name}': must be a broker id, or empty for all brokers")),
        },
        (BROKER_LOGGER, _) => {
            refuse("this broker's loggers are set by RUST_LOG at its start, not by requests".to_owned())
        }
        (CLIENT_METRICS, _) => refuse("this broker takes no client metrics: there are no settings for them".to_owned()),
        (GROUP, _) => refuse("groups have no settings of their own on this broker".to_owned()),
        (other, _) => refuse(format!("resource type {other}: must be {TOPIC} (topic) or {BROKER} (broker)")),
    }
}

impl From<Resource> for ConfigResource {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Topic(name) => Self::Topic(name),
            Resource::Broker(id) => Self::Broker(id),
            Resource::Cluster => Self::Cluster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_without_a_name_is_all_brokers() {
        assert_eq!(read_resource(BROKER, ""), Ok(Resource::Cluster));
        assert_eq!(read_resource(BROKER, "3"), Ok(Resource::Broker(3)));
    }

    #[test]
    fn what_has_no_settings_is_refused_in_words() {
        let message = |kind: i8, name: &str| read_resource(kind, name).unwrap_err().message;
        assert_eq!(message(BROKER, "x"), "broker 'x': must be a broker id, or empty for all brokers");
        assert_eq!(message(99, "x"), "resource type 99: must be 2 (topic) or 4 (broker)");
        assert_eq!(read_resource(TOPIC, "a/b").unwrap_err().code, ErrorCode::InvalidTopicException);
    }
}
