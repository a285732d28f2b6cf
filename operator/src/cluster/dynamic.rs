//! Settings that brokers take while they run: they are set on all brokers by the Kafka protocol, and nobody is restarted
//! for them. They are in the brokers' file as well, for brokers that start, so that a cluster has them from its first
//! second.
//!
//! What must always hold: a setting that the spec names no more is not left as it was, though brokers that run may have
//! read it from their file: it stays in the file with the value that it would have without.

use std::collections::BTreeMap;

use forebay_broker_config::{
    Dynamic, Layers, Scope, Settings, broker_definitions, effective_value, find, topic_definitions,
};

/// Whether brokers take this setting while they run.
pub(crate) fn is_dynamic(name: &str) -> bool {
    find(Scope::Broker, name).is_some_and(|definition| definition.dynamic == Dynamic::ClusterWide)
}

/// Those of the settings that brokers take while they run.
pub(crate) fn of(settings: &Settings) -> Settings {
    settings.iter().filter(|(name, _)| is_dynamic(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Those of the settings that brokers read at their start only.
pub(crate) fn read_at_start(settings: &Settings) -> Settings {
    settings.iter().filter(|(name, _)| !is_dynamic(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Settings of an earlier file that are not among the present ones, each with the value that follows from the present ones.
pub(crate) fn left_over(before: &Settings, settings: &Settings) -> Settings {
    let gone = before.keys().filter(|name| is_dynamic(name) && !settings.contains_key(*name));
    gone.filter_map(|name| Some((name.clone(), without(name, settings)?))).collect()
}

/// The value that a setting has when nobody sets it: its default, or what the setting says that is looked at instead.
fn without(name: &str, settings: &Settings) -> Option<String> {
    let definition = broker_definitions().iter().find(|definition| definition.name == name)?;
    if let Some(default) = definition.default {
        return Some(default.to_owned());
    }
    // `log.retention.ms` absent is `log.retention.minutes`, then `log.retention.hours`: in the unit of the topic's setting.
    let behind = topic_definitions().iter().find(|topic| topic.broker_names.contains(&(definition.name, 1)))?;
    let nothing = Settings::new();
    let layers = Layers { topic: &nothing, broker: &nothing, cluster: &nothing, file: settings };
    effective_value(Scope::Topic, behind.name, layers).map(|(value, _)| value)
}

/// What has to be set on all brokers, given what is set there: values that differ.
pub(crate) fn changes(wanted: &Settings, set: &BTreeMap<String, String>) -> Settings {
    let differs = wanted.iter().filter(|(name, value)| set.get(*name) != Some(value));
    differs.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// For people.
pub(crate) fn text(settings: &Settings) -> String {
    settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn settings_are_told_apart_by_the_brokers_own_table() {
        let all = settings(&[("log.retention.ms", "1"), ("num.io.threads", "8"), ("log.dirs", "/a")]);
        assert_eq!(of(&all), settings(&[("log.retention.ms", "1")]));
        assert_eq!(read_at_start(&all), settings(&[("num.io.threads", "8"), ("log.dirs", "/a")]));
    }

    #[test]
    fn a_setting_that_goes_has_the_value_that_it_would_have_without() {
        let before = settings(&[("log.retention.ms", "1"), ("num.partitions", "7"), ("num.io.threads", "8")]);
        let left = left_over(&before, &settings(&[("log.retention.hours", "2")]));
        assert_eq!(left, settings(&[("log.retention.ms", "7200000"), ("num.partitions", "1")]));
        let left = left_over(&before, &settings(&[("log.retention.ms", "5")]));
        assert_eq!(left, settings(&[("num.partitions", "1")]));
        assert_eq!(left_over(&left, &Settings::new()), left, "and keeps it");
    }

    #[test]
    fn every_setting_that_brokers_take_while_they_run_has_a_value_without() {
        let missing = broker_definitions().iter().filter(|definition| definition.dynamic == Dynamic::ClusterWide);
        let missing = missing.filter(|definition| without(definition.name, &Settings::new()).is_none());
        assert_eq!(missing.map(|definition| definition.name).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn only_what_differs_is_set_and_what_others_have_set_stays() {
        let set = [("a".to_owned(), "1".to_owned()), ("theirs".to_owned(), "9".to_owned())].into();
        assert_eq!(changes(&settings(&[("a", "1"), ("b", "2")]), &set), settings(&[("b", "2")]));
        assert_eq!(changes(&settings(&[("a", "1")]), &set), Settings::new());
    }
}
