//! Defaults: the specification's, as values and as conditions.

use anyhow::{Context, Result};

use super::super::spec::Type;
use super::{Emitter, Member};

impl<'a> Emitter<'a> {
    pub(super) fn default_value(&self, member: &Member<'_>) -> Result<String> {
        if member.is_option() {
            return Ok(match &member.kind {
                _ if member.field.is_null_by_default() => "None".to_owned(),
                kind => format!("Some({})", self.empty_value(kind)),
            });
        }
        match (&member.kind, member.field.default_text()) {
            (Type::Number("f64"), text) => Ok(text.map_or("0.0".to_owned(), |text| format!("{text}.0"))),
            (Type::Number(_), Some(text)) => number(&text).with_context(|| format!("default of {}", member.path)),
            (Type::Bool, Some(text)) => Ok(text.to_lowercase()),
            (kind, _) => Ok(self.empty_value(kind)),
        }
    }

    fn empty_value(&self, kind: &Type) -> String {
        match kind {
            Type::Bool => "false".to_owned(),
            Type::Number(_) => "0".to_owned(),
            Type::String => "Str::new()".to_owned(),
            Type::Bytes => "Bytes::new()".to_owned(),
            Type::Records => "Records::empty()".to_owned(),
            Type::Uuid => "Uuid::ZERO".to_owned(),
            Type::Struct(name) => format!("{}::default()", self.rust_name(name)),
            Type::Array(_) => "Vec::new()".to_owned(),
        }
    }

    /// An expression that is true when the field has its default.
    pub(super) fn is_default(&self, member: &Member<'_>) -> Result<String> {
        let value = format!("self.{}", member.ident);
        let empty = |of: &str| format!("{value}.as_ref().is_some_and({of}::is_empty)");
        Ok(match (&member.kind, member.is_option()) {
            (_, true) if member.field.is_null_by_default() => format!("{value}.is_none()"),
            (Type::String, true) => format!("{value}.as_deref().is_some_and(str::is_empty)"),
            (Type::Bytes, true) => empty("Bytes"),
            (Type::Array(_), true) => empty("Vec"),
            (Type::Bool, false) if self.default_value(member)? == "true" => value,
            (Type::Bool, false) => format!("!{value}"),
            (Type::String | Type::Bytes | Type::Records | Type::Array(_), false) => format!("{value}.is_empty()"),
            (Type::Uuid, false) => format!("{value}.is_zero()"),
            (_, true) | (Type::Number(_) | Type::Struct(_), false) => {
                format!("{value} == {}", self.default_value(member)?)
            }
        })
    }
}

/// Whether Rust's own default is the specification's.
pub(super) fn is_natural_default(member: &Member<'_>) -> bool {
    if member.is_option() {
        return member.field.is_null_by_default();
    }
    match (&member.kind, member.field.default_text().as_deref()) {
        (Type::Number(_), Some(text)) => number(text).is_ok_and(|value| value == "0"),
        (Type::Bool, Some(text)) => text.eq_ignore_ascii_case("false"),
        _ => true,
    }
}

/// A specification's number as a Rust literal.
fn number(text: &str) -> Result<String> {
    let value: i64 = match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16)?,
        None => text.parse()?,
    };
    Ok(match value {
        i64::MAX => "i64::MAX".to_owned(),
        value if value == i64::from(i32::MAX) => "i32::MAX".to_owned(),
        value if value == i64::from(i32::MIN) => "i32::MIN".to_owned(),
        value => value.to_string(),
    })
}
