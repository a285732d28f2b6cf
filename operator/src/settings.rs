//! What users are told of a `spec.config` that brokers would not take: where it is, the value, and what would be right. Pure.

use forebay_broker_config::{ConfigError, Scope, Unit, find};
use forebay_crds::ConfigMap;

/// An error in settings that were made from `declared` and the rest of a spec.
pub(crate) fn text(scope: Scope, declared: &ConfigMap, error: &ConfigError) -> String {
    let (name, hint) = match error {
        ConfigError::Unknown { name, nearest: None, .. } => {
            (name.as_str(), "; no name that brokers know is like it: docs/reference/config.md has all")
        }
        ConfigError::Unknown { name, .. } | ConfigError::Twice { name, .. } => (name.as_str(), ""),
        ConfigError::Invalid { name, .. } => (name.as_str(), unit(scope, name)),
        ConfigError::Missing { name, .. } => (*name, ""),
        ConfigError::Syntax { .. } | ConfigError::Override { .. } => ("", ""),
    };
    let place = if declared.contains_key(name) { "spec.config: " } else { "" };
    format!("{place}{error}{hint}")
}

/// For a value with a unit of its own, `7d` say.
fn unit(scope: Scope, name: &str) -> &'static str {
    match find(scope, name).map_or(Unit::None, |definition| definition.unit) {
        Unit::None => "",
        Unit::Bytes => ", in bytes",
        Unit::Milliseconds => ", in milliseconds",
        Unit::Minutes => ", in minutes",
        Unit::Hours => ", in hours",
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_config::{validate_broker, validate_topic};

    use super::*;

    fn of_topic(name: &str, value: &str) -> String {
        let declared = ConfigMap::from([(name.to_owned(), value.into())]);
        text(Scope::Topic, &declared, &validate_topic(name, value).unwrap_err())
    }

    #[test]
    fn a_wrong_unit_and_a_name_like_no_other_are_told_with_what_would_be_right() {
        assert_eq!(
            of_topic("retention.ms", "7d"),
            "spec.config: retention.ms=7d: must be a 64-bit integer of at least -1, in milliseconds"
        );
        assert!(of_topic("segment.bytes", "1Gi").ends_with(", in bytes"));
        assert!(of_topic("cleanup.policy", "drop").ends_with("compact, delete"));
        assert!(of_topic("xxxxxxxxxxxxxxx", "1").ends_with("docs/reference/config.md has all"));
    }

    #[test]
    fn what_follows_from_another_field_is_not_said_to_be_in_config() {
        let error = validate_broker("num.io.threads", "0").unwrap_err();
        assert!(text(Scope::Broker, &ConfigMap::new(), &error).starts_with("num.io.threads=0"));
    }
}
