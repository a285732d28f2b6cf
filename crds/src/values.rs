//! Small types that several kinds share: references, configuration values, reclaim policies.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The Cluster that an object belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// Name of the Cluster.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Namespace of the Cluster; the object's own when left out. Another namespace works only when the Cluster lists
    /// this object's namespace in `spec.allowedNamespaces`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// What happens to the data when the object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = without_description)]
pub enum ReclaimPolicy {
    /// The data is deleted with the object.
    Delete,
    /// The data stays when the object goes.
    Retain,
}

/// So that `kubectl explain` shows the field's own text, which says what is used when it is left out, and not the enum's.
pub(crate) fn without_description(schema: &mut Schema) {
    schema.remove("description");
}

/// Configuration by Kafka's names.
pub type ConfigMap = BTreeMap<String, ConfigValue>;

/// A configuration value: an integer or a string. Quote booleans and fractions: `"true"`, `"0.5"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConfigValue {
    /// Written as a number.
    Integer(i64),
    /// Written as a string.
    Text(String),
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
        }
    }
}

impl From<i64> for ConfigValue {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for ConfigValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl JsonSchema for ConfigValue {
    fn schema_name() -> Cow<'static, str> {
        "ConfigValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}
