//! What is in force for a topic or a broker, and why: every layer that gives a setting a value, strongest first.
//!
//! A topic's setting comes from the topic, else from the broker's setting behind it (dynamic for this broker, dynamic for all,
//! file), else from the default. `describe_*` give all layers, as DescribeConfigs shows them; [`TopicConfig`] gives the result typed.

mod effective;

use crate::definitions::{broker_definitions, find, topic_definitions};
use crate::{Definition, Scope, Settings};

pub use effective::{CleanupPolicy, CompressionType, TimestampType, TopicConfig};

/// Where a value comes from; the numbers are DescribeConfigs'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    /// Set on the topic.
    Topic = 1,
    /// Set dynamically on this broker.
    DynamicBroker = 2,
    /// Set dynamically for all brokers.
    DynamicDefaultBroker = 3,
    /// Written in the broker's file.
    StaticBroker = 4,
    /// Built in.
    Default = 5,
}

/// The layers that settings come from; an empty map is a layer that sets nothing.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a> {
    /// Set on the topic.
    pub topic: &'a Settings,
    /// Set dynamically on this broker.
    pub broker: &'a Settings,
    /// Set dynamically for all brokers.
    pub cluster: &'a Settings,
    /// Written in the broker's file.
    pub file: &'a Settings,
}

/// One layer's value for a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// The setting's name in that layer.
    pub name: &'static str,
    /// The value there.
    pub value: Option<String>,
    /// The layer.
    pub source: Source,
}

/// One setting with what is in force.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The setting.
    pub definition: &'static Definition,
    /// In force; none where nothing gives a value.
    pub value: Option<String>,
    /// Where `value` comes from.
    pub source: Source,
    /// All layers that give a value, strongest first.
    pub synonyms: Vec<Synonym>,
}

/// All settings of a topic.
#[must_use]
pub fn describe_topic(layers: Layers<'_>) -> Vec<Entry> {
    topic_definitions().iter().map(|definition| topic_entry(definition, layers)).collect()
}

/// All settings of a broker; `layers.topic` does not count.
#[must_use]
pub fn describe_broker(layers: Layers<'_>) -> Vec<Entry> {
    broker_definitions().iter().map(|definition| broker_entry(definition, layers)).collect()
}

/// The value in force for one setting of a topic or a broker, with its source.
#[must_use]
pub fn effective_value(scope: Scope, name: &str, layers: Layers<'_>) -> Option<(String, Source)> {
    let definition = find(scope, name)?;
    let entry = match scope {
        Scope::Topic => topic_entry(definition, layers),
        Scope::Broker => broker_entry(definition, layers),
    };
    entry.value.map(|value| (value, entry.source))
}

fn topic_entry(definition: &'static Definition, layers: Layers<'_>) -> Entry {
    let mut synonyms = Vec::new();
    if let Some(value) = layers.topic.get(definition.name) {
        synonyms.push(Synonym { name: definition.name, value: Some(value.clone()), source: Source::Topic });
    }
    let own = synonyms.first().map(|synonym| (synonym.value.clone(), synonym.source));
    let mut behind = None;
    for (name, factor) in definition.broker_names {
        for synonym in broker_layers(name, layers) {
            if behind.is_none() {
                behind = Some((synonym.value.as_deref().map(|value| scaled(value, *factor)), synonym.source));
            }
            synonyms.push(synonym);
        }
    }
    let mut defaults = Vec::new();
    for (name, factor) in definition.broker_names {
        let Some(broker) = find(Scope::Broker, name) else { continue };
        if let Some(default) = broker.default {
            let synonym = Synonym { name: broker.name, value: Some(default.to_owned()), source: Source::Default };
            defaults.push((scaled(default, *factor), synonym));
        }
    }
    let built_in = defaults.first().map(|(value, _)| value.clone()).or_else(|| definition.default.map(str::to_owned));
    if defaults.is_empty() {
        let value = definition.default.map(str::to_owned);
        synonyms.push(Synonym { name: definition.name, value, source: Source::Default });
    }
    synonyms.extend(defaults.into_iter().map(|(_, synonym)| synonym));
    let (value, source) = own.or(behind).unwrap_or((built_in, Source::Default));
    Entry { definition, value, source, synonyms }
}

fn broker_entry(definition: &'static Definition, layers: Layers<'_>) -> Entry {
    let mut synonyms = broker_layers(definition.name, layers);
    if let Some(default) = definition.default {
        synonyms.push(Synonym { name: definition.name, value: Some(default.to_owned()), source: Source::Default });
    }
    let (value, source) =
        synonyms.first().map_or((None, Source::Default), |synonym| (synonym.value.clone(), synonym.source));
    Entry { definition, value, source, synonyms }
}

/// The layers that set a broker's setting, without its default.
fn broker_layers(name: &str, layers: Layers<'_>) -> Vec<Synonym> {
    let Some(definition) = find(Scope::Broker, name) else { return Vec::new() };
    [
        (layers.broker, Source::DynamicBroker),
        (layers.cluster, Source::DynamicDefaultBroker),
        (layers.file, Source::StaticBroker),
    ]
    .into_iter()
    .filter_map(|(layer, source)| {
        layer.get(name).map(|value| Synonym { name: definition.name, value: Some(value.clone()), source })
    })
    .collect()
}

/// A value in the topic's unit; -1 means "no limit" in every unit.
fn scaled(value: &str, factor: i64) -> String {
    match value.trim().parse::<i64>() {
        Ok(number) if factor != 1 && number >= 0 => number.saturating_mul(factor).to_string(),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests;
