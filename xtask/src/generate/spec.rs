//! A message specification as published: JSON with line comments, versions as ranges. Parsed strictly: an attribute we don't know
//! fails, so that a new release can't change a meaning silently.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    pub(super) api_key: Option<i16>,
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    pub(super) name: String,
    valid_versions: String,
    #[serde(default)]
    flexible_versions: Option<String>,
    #[serde(default)]
    pub(super) latest_version_unstable: bool,
    #[serde(default)]
    #[expect(dead_code, reason = "says which listeners take the request, which is the server's own decision here")]
    listeners: Vec<String>,
    #[serde(default)]
    pub(super) fields: Vec<Field>,
    #[serde(default)]
    pub(super) common_structs: Vec<CommonStruct>,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Request,
    Response,
    Header,
    Data,
    CoordinatorKey,
    CoordinatorValue,
}

/// A struct that several fields share.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CommonStruct {
    pub(super) name: String,
    #[serde(rename = "versions")]
    _versions: String,
    pub(super) fields: Vec<Field>,
}

/// One field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Field {
    pub(super) name: String,
    #[serde(rename = "type")]
    type_name: String,
    versions: Option<String>,
    nullable_versions: Option<String>,
    tagged_versions: Option<String>,
    pub(super) tag: Option<u32>,
    default: Option<serde_json::Value>,
    #[serde(default)]
    pub(super) ignorable: bool,
    #[serde(default)]
    pub(super) fields: Vec<Field>,
    flexible_versions: Option<String>,
    #[serde(rename = "about", default)]
    _about: String,
    #[serde(rename = "entityType", default)]
    _entity_type: String,
    #[serde(rename = "mapKey", default)]
    _map_key: bool,
    #[serde(rename = "zeroCopy", default)]
    _zero_copy: bool,
}

/// A field's type without its nullability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    /// A number: Rust's name for it, which is also the codec's.
    Number(&'static str),
    String,
    Bytes,
    Records,
    Uuid,
    Struct(String),
    Array(Box<Type>),
}

/// An inclusive range of versions; no end means "and all later ones".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    pub(super) min: i16,
    pub(super) max: i16,
}

impl Versions {
    /// No version at all.
    pub(super) const NONE: Self = Self { min: 1, max: 0 };

    /// Reads `3`, `3-5`, `3+` or `none`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let number = |text: &str| text.trim().parse::<i16>().with_context(|| format!("versions {text:?}"));
        Ok(match (text.trim(), text.split_once('-')) {
            ("none", _) => Self::NONE,
            (_, Some((min, max))) => Self { min: number(min)?, max: number(max)? },
            (open, None) => match open.strip_suffix('+') {
                Some(min) => Self { min: number(min)?, max: i16::MAX },
                None => Self { min: number(open)?, max: number(open)? },
            },
        })
    }

    pub(super) fn is_empty(self) -> bool {
        self.min > self.max
    }

    pub(super) fn contains(self, other: Self) -> bool {
        other.is_empty() || (self.min <= other.min && self.max >= other.max)
    }

    pub(super) fn intersection(self, other: Self) -> Self {
        let both = Self { min: self.min.max(other.min), max: self.max.min(other.max) };
        if both.is_empty() { Self::NONE } else { both }
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self { min, max } if min == max => write!(f, "{min}"),
            Self { min, max: i16::MAX } => write!(f, "{min}+"),
            Self { min, max } => write!(f, "{min}-{max}"),
        }
    }
}

impl Spec {
    /// Reads all specifications of a folder, by name.
    pub(super) fn read_all(dir: &Path) -> Result<BTreeMap<String, Self>> {
        let mut specs = BTreeMap::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            let spec = Self::parse(&text).with_context(|| format!("specification {}", path.display()))?;
            specs.insert(spec.name.clone(), spec);
        }
        ensure!(!specs.is_empty(), "{} has no specifications", dir.display());
        Ok(specs)
    }

    fn parse(text: &str) -> Result<Self> {
        let json: String =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        let spec: Self = serde_json::from_str(&json)?;
        for field in &spec.fields {
            field.check()?;
        }
        Ok(spec)
    }

    /// The versions there are; none for what the protocol has dropped.
    pub(super) fn versions(&self) -> Result<Versions> {
        Versions::parse(&self.valid_versions)
    }

    /// The versions with varint lengths and tagged fields, of those there are.
    pub(super) fn flexible(&self) -> Result<Versions> {
        match &self.flexible_versions {
            Some(text) => Ok(Versions::parse(text)?.intersection(self.versions()?)),
            None => Ok(Versions::NONE),
        }
    }
}

impl Field {
    fn check(&self) -> Result<()> {
        ensure!(
            self.flexible_versions.is_none() || self.name == "ClientId",
            "field {} overrides flexibleVersions",
            self.name
        );
        if let Some(tagged) = &self.tagged_versions {
            ensure!(self.tag.is_some(), "field {} has tagged versions but no tag", self.name);
            ensure!(
                self.versions()? == Versions::parse(tagged)?,
                "field {} is tagged in some of its versions only",
                self.name
            );
        }
        self.fields.iter().try_for_each(Self::check)
    }

    pub(super) fn versions(&self) -> Result<Versions> {
        let text = self.versions.as_ref().or(self.tagged_versions.as_ref());
        Versions::parse(text.with_context(|| format!("field {} has no versions", self.name))?)
    }

    pub(super) fn nullable(&self) -> Result<Versions> {
        self.nullable_versions.as_deref().map_or(Ok(Versions::NONE), Versions::parse)
    }

    pub(super) fn type_of(&self) -> Result<Type> {
        Type::parse(&self.type_name)
    }

    /// The struct that the field, or its elements, are of.
    pub(super) fn struct_name(&self) -> &str {
        self.type_name.trim_start_matches("[]")
    }

    /// The default as text; none where the specification has none.
    pub(super) fn default_text(&self) -> Option<String> {
        self.default.as_ref().map(|value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => "null".to_owned(),
            other => other.to_string(),
        })
    }

    pub(super) fn is_null_by_default(&self) -> bool {
        self.default_text().as_deref() == Some("null") || matches!(self.type_of(), Ok(Type::Records))
    }
}

impl Type {
    fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "bool" => Self::Bool,
            "int8" => Self::Number("i8"),
            "int16" => Self::Number("i16"),
            "uint16" => Self::Number("u16"),
            "int32" => Self::Number("i32"),
            "uint32" => Self::Number("u32"),
            "int64" => Self::Number("i64"),
            "float64" => Self::Number("f64"),
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "records" => Self::Records,
            "uuid" => Self::Uuid,
            _ => match name.strip_prefix("[]") {
                Some(element) => Self::Array(Box::new(Self::parse(element)?)),
                None if name.starts_with(|first: char| first.is_ascii_uppercase()) => Self::Struct(name.to_owned()),
                None => bail!("type {name:?} is not known"),
            },
        })
    }
}
