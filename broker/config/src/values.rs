//! Checks a value's text against its definition; a value that passes here can be read by every typed accessor.

use crate::definitions::{broker_definitions, find, topic_definitions};
use crate::{ConfigError, Definition, Kind, Scope, Valid, nearest};

/// Checks one broker setting by name.
///
/// # Errors
/// The name is unknown or the value is not one the setting can take.
pub fn validate_broker(name: &str, value: &str) -> Result<&'static Definition, ConfigError> {
    validate(Scope::Broker, name, value)
}

/// Checks one topic setting by name.
///
/// # Errors
/// The name is unknown or the value is not one the setting can take.
pub fn validate_topic(name: &str, value: &str) -> Result<&'static Definition, ConfigError> {
    validate(Scope::Topic, name, value)
}

fn validate(scope: Scope, name: &str, value: &str) -> Result<&'static Definition, ConfigError> {
    let definition = find(scope, name).ok_or_else(|| unknown(scope, name))?;
    check_value(definition, value)?;
    Ok(definition)
}

/// The error for a name that no definition of this scope has.
pub(crate) fn unknown(scope: Scope, name: &str) -> ConfigError {
    let (table, word) = match scope {
        Scope::Broker => (broker_definitions(), "broker"),
        Scope::Topic => (topic_definitions(), "topic"),
    };
    ConfigError::Unknown { name: name.to_owned(), scope: word, nearest: nearest(name, table.iter().map(|d| d.name)) }
}

/// Checks a value against the type and the range of its definition.
///
/// # Errors
/// The value is not one the setting can take.
pub fn check_value(definition: &Definition, value: &str) -> Result<(), ConfigError> {
    let value = value.trim();
    let right = match definition.kind {
        Kind::Boolean => value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false"),
        Kind::Short => value.parse::<i16>().is_ok_and(|n| in_range(definition.valid, i64::from(n))),
        Kind::Int => value.parse::<i32>().is_ok_and(|n| in_range(definition.valid, i64::from(n))),
        Kind::Long => value.parse::<i64>().is_ok_and(|n| in_range(definition.valid, n)),
        Kind::Double => value.parse::<f64>().is_ok_and(|x| match definition.valid {
            Valid::Ratio => (0.0..=1.0).contains(&x),
            _ => x.is_finite(),
        }),
        Kind::String => text_fits(definition.valid, value),
        Kind::List => match definition.valid {
            Valid::EachOf(words) => !value.is_empty() && items(value).all(|item| words.contains(&item)),
            other => text_fits(other, value),
        },
    };
    if right {
        return Ok(());
    }
    Err(ConfigError::Invalid { name: definition.name.to_owned(), value: value.to_owned(), wanted: wanted(definition) })
}

/// The items of a list value, trimmed.
pub(crate) fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn in_range(valid: Valid, number: i64) -> bool {
    match valid {
        Valid::Range(low, high) => (low..=high).contains(&number),
        _ => true,
    }
}

fn text_fits(valid: Valid, value: &str) -> bool {
    match valid {
        Valid::OneOf(words) => words.contains(&value),
        Valid::NotEmpty => !value.is_empty(),
        Valid::Form(fits, _) => fits(value),
        _ => true,
    }
}

/// What would be right, as the end of the sentence "must be …".
pub(crate) fn wanted(definition: &Definition) -> String {
    let number = |noun: &str, low: i64, high: i64| match (low, high) {
        (i64::MIN, i64::MAX) => noun.to_owned(),
        (_, i64::MAX) => format!("{noun} of at least {low}"),
        _ => format!("{noun} from {low} to {high}"),
    };
    let (natural_low, natural_high, noun) = match definition.kind {
        Kind::Short => (i64::from(i16::MIN), i64::from(i16::MAX), "a 16-bit integer"),
        Kind::Int => (i64::from(i32::MIN), i64::from(i32::MAX), "a 32-bit integer"),
        _ => (i64::MIN, i64::MAX, "a 64-bit integer"),
    };
    match (definition.kind, definition.valid) {
        (Kind::Boolean, _) => "true or false".to_owned(),
        (Kind::Short | Kind::Int | Kind::Long, Valid::Range(low, high)) => {
            let high = if high >= natural_high { i64::MAX } else { high };
            number(noun, low, high)
        }
        (Kind::Short | Kind::Int | Kind::Long, _) => format!("{noun} from {natural_low} to {natural_high}"),
        (Kind::Double, Valid::Ratio) => "a number from 0 to 1".to_owned(),
        (Kind::Double, _) => "a number".to_owned(),
        (_, Valid::OneOf(words)) => format!("one of {}", words.join(", ")),
        (_, Valid::EachOf(words)) => format!("a comma-separated list of {}", words.join(", ")),
        (_, Valid::Form(_, words)) => words.to_owned(),
        _ => "text that is not empty".to_owned(),
    }
}
