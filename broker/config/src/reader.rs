//! Typed reading of settings that have been checked: defaults from the table, errors gathered rather than returned one by one.

use crate::values::{items, unknown, wanted};
use crate::{ConfigError, Definition, Scope, Settings, check_value, find};

/// Reads typed values; what is wrong is collected in `errors` and a harmless value stands in until the caller looks there.
pub(crate) struct Reader<'a> {
    scope: Scope,
    values: &'a Settings,
    pub(crate) errors: Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    /// Checks every name and value before anything is read.
    pub(crate) fn new(scope: Scope, values: &'a Settings) -> Self {
        let mut errors = Vec::new();
        for (name, value) in values {
            match find(scope, name) {
                None => errors.push(unknown(scope, name)),
                Some(definition) => errors.extend(check_value(definition, value).err()),
            }
        }
        Self { scope, values, errors }
    }

    /// The value as given or by default.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.given(name).or_else(|| find(self.scope, name).and_then(|definition| definition.default))
    }

    /// The value as given.
    pub(crate) fn given(&self, name: &str) -> Option<&'a str> {
        self.values.get(name).map(|value| value.trim())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// A number of any width: the definition's type and range were checked before.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> Option<T> {
        self.text(name).and_then(|text| text.parse::<i64>().ok()).and_then(|number| T::try_from(number).ok())
    }

    /// A number that has a default; zero stands in for one that was refused.
    pub(crate) fn required<T: TryFrom<i64> + Default>(&self, name: &str) -> T {
        self.number(name).unwrap_or_default()
    }

    pub(crate) fn ratio(&self, name: &str) -> f64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn list(&self, name: &str) -> Vec<&'a str> {
        self.text(name).map(|text| items(text).collect()).unwrap_or_default()
    }

    /// Notes that a value is wrong in a way its definition cannot say.
    pub(crate) fn refuse(&mut self, name: &str, value: &str, wanted: impl Into<String>) {
        self.errors.push(ConfigError::Invalid {
            name: name.to_owned(),
            value: value.to_owned(),
            wanted: wanted.into(),
        });
    }

    /// Notes that a setting without a default is absent.
    pub(crate) fn missing(&mut self, name: &'static str, wanted: &'static str) {
        self.errors.push(ConfigError::Missing { name, wanted });
    }
}

impl Definition {
    /// What the setting's value must be, as the end of the sentence "must be …".
    #[must_use]
    pub fn wanted(&self) -> String {
        wanted(self)
    }
}
