//! What is said about a configuration that cannot be used: the setting, its value, and what would be right.

use std::fmt;

/// One thing wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No definition has this name.
    #[error("unknown {scope} setting '{name}'{}", match nearest { Some(near) => format!("; did you mean '{near}'?"), None => String::new() })]
    Unknown {
        /// The name as given.
        name: String,
        /// `broker` or `topic`.
        scope: &'static str,
        /// The closest name that exists, if one is close.
        nearest: Option<&'static str>,
    },
    /// The value is not one that the setting can take.
    #[error("{name}={value}: must be {wanted}")]
    Invalid {
        /// The setting.
        name: String,
        /// The value as given.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// A setting without which a broker cannot run is absent.
    #[error("{name} is missing: {wanted}")]
    Missing {
        /// The setting.
        name: &'static str,
        /// What to write.
        wanted: &'static str,
    },
    /// A line that is not `name=value`.
    #[error("line {line}: '{text}': must be name=value")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The line as given.
        text: String,
    },
    /// A setting of the command line that is not `name=value`.
    #[error("--set '{text}': must be name=value")]
    Override {
        /// As given.
        text: String,
    },
    /// Two lines for one setting.
    #[error("line {line}: {name} is given twice: keep one of the lines")]
    Twice {
        /// Counted from 1, the second of the two.
        line: usize,
        /// The setting.
        name: String,
    },
}

/// Everything wrong with a configuration, so that one edit can put all of it right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}
