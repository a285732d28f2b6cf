//! The table of settings: name, type, default, range, unit, scope and whether it can change while the broker runs.
//!
//! A setting is listed because the broker honours it, or because tools read it from DescribeConfigs and its value is true here.
//! Defaults are Kafka's unless the text says otherwise.

mod broker;
mod membership;
mod replication;
mod storage;
mod topic;

use std::sync::LazyLock;

/// What a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A broker: properties file, dynamic per broker or cluster-wide.
    Broker,
    /// A topic, falling back to the broker's settings of other names.
    Topic,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// 16 bits.
    Short,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// A decimal number.
    Double,
    /// Items between commas.
    List,
}

/// What a value may be, beside its type.
#[derive(Debug, Clone, Copy)]
pub enum Valid {
    /// Anything of the type.
    Any,
    /// A number from the first to the second.
    Range(i64, i64),
    /// A number from 0 to 1.
    Ratio,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of these words.
    EachOf(&'static [&'static str]),
    /// Text that is not empty.
    NotEmpty,
    /// Text of a form: the test, and the form in words.
    Form(fn(&str) -> bool, &'static str),
}

/// Whether a broker setting can change while the broker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamic {
    /// Only in the properties file.
    ReadOnly,
    /// By IncrementalAlterConfigs, for one broker only.
    PerBroker,
    /// By IncrementalAlterConfigs, for one broker or for all.
    ClusterWide,
}

/// The unit of a number, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A count, or not a number.
    None,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// Kafka's name, or one that starts with `forebay.`.
    pub name: &'static str,
    /// Broker or topic.
    pub scope: Scope,
    /// Type of the value.
    pub kind: Kind,
    /// The default as text; none where the setting is absent unless given.
    pub default: Option<&'static str>,
    /// Range or form.
    pub valid: Valid,
    /// Unit of a number.
    pub unit: Unit,
    /// Whether it can change while the broker runs; a topic's settings always can.
    pub dynamic: Dynamic,
    /// For a topic's setting: the broker's settings that give it a value, strongest first, each with the factor to the topic's unit.
    pub broker_names: &'static [(&'static str, i64)],
    /// What it does, for people.
    pub doc: &'static str,
}

impl Definition {
    const fn new(
        scope: Scope,
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        doc: &'static str,
    ) -> Self {
        let dynamic = match scope {
            Scope::Broker => Dynamic::ReadOnly,
            Scope::Topic => Dynamic::ClusterWide,
        };
        Self { name, scope, kind, default, valid: Valid::Any, unit: Unit::None, dynamic, broker_names: &[], doc }
    }

    const fn broker(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Self {
        Self::new(Scope::Broker, name, kind, default, doc)
    }

    const fn topic(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        broker_names: &'static [(&'static str, i64)],
        doc: &'static str,
    ) -> Self {
        let mut definition = Self::new(Scope::Topic, name, kind, Some(default), doc);
        definition.broker_names = broker_names;
        definition
    }

    const fn valid(mut self, valid: Valid) -> Self {
        self.valid = valid;
        self
    }

    const fn at_least(self, low: i64) -> Self {
        self.valid(Valid::Range(low, i64::MAX))
    }

    const fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    const fn bytes(self) -> Self {
        self.unit(Unit::Bytes)
    }

    const fn ms(self) -> Self {
        self.unit(Unit::Milliseconds)
    }

    const fn per_broker(mut self) -> Self {
        self.dynamic = Dynamic::PerBroker;
        self
    }

    const fn cluster_wide(mut self) -> Self {
        self.dynamic = Dynamic::ClusterWide;
        self
    }
}

static BROKER: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let mut all =
        [broker::DEFINITIONS, storage::DEFINITIONS, replication::DEFINITIONS, membership::DEFINITIONS].concat();
    all.sort_by_key(|definition| definition.name);
    all
});

/// All broker settings, by name.
#[must_use]
pub fn broker_definitions() -> &'static [Definition] {
    &BROKER
}

/// All topic settings, by name.
#[must_use]
pub fn topic_definitions() -> &'static [Definition] {
    topic::DEFINITIONS
}

/// The definition of a name.
#[must_use]
pub fn find(scope: Scope, name: &str) -> Option<&'static Definition> {
    let table = match scope {
        Scope::Broker => broker_definitions(),
        Scope::Topic => topic_definitions(),
    };
    table.binary_search_by_key(&name, |definition| definition.name).ok().map(|index| &table[index])
}

#[cfg(test)]
mod tests;
