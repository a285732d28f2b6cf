//! Which layer wins, and what DescribeConfigs is told.

use super::*;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn check(layers: Layers<'_>, name: &str, value: &str, source: Source) {
    assert_eq!(effective_value(Scope::Topic, name, layers), Some((value.to_owned(), source)), "{name}");
}

#[test]
fn the_strongest_layer_wins() {
    let none = Settings::new();
    let (topic, broker) = (settings(&[("segment.bytes", "2097152")]), settings(&[("log.segment.bytes", "3145728")]));
    let (cluster, file) =
        (settings(&[("log.segment.bytes", "4194304")]), settings(&[("log.segment.bytes", "5242880")]));
    let mut layers = Layers { topic: &topic, broker: &broker, cluster: &cluster, file: &file };
    check(layers, "segment.bytes", "2097152", Source::Topic);
    layers.topic = &none;
    check(layers, "segment.bytes", "3145728", Source::DynamicBroker);
    layers.broker = &none;
    check(layers, "segment.bytes", "4194304", Source::DynamicDefaultBroker);
    layers.cluster = &none;
    check(layers, "segment.bytes", "5242880", Source::StaticBroker);
    layers.file = &none;
    check(layers, "segment.bytes", "1073741824", Source::Default);
}

#[test]
fn hours_of_the_file_become_the_topics_milliseconds() {
    let (none, file) = (Settings::new(), settings(&[("log.retention.hours", "2")]));
    let layers = Layers { topic: &none, broker: &none, cluster: &none, file: &file };
    check(layers, "retention.ms", "7200000", Source::StaticBroker);
    let file = settings(&[("log.retention.hours", "-1")]);
    check(Layers { file: &file, ..layers }, "retention.ms", "-1", Source::StaticBroker);
}

#[test]
fn milliseconds_win_over_hours_whatever_the_layer() {
    let (none, file) = (Settings::new(), settings(&[("log.retention.hours", "2"), ("log.retention.ms", "5")]));
    check(
        Layers { topic: &none, broker: &none, cluster: &none, file: &file },
        "retention.ms",
        "5",
        Source::StaticBroker,
    );
}

#[test]
fn synonyms_list_every_layer_that_gives_a_value() {
    let none = Settings::new();
    let (topic, file) = (settings(&[("retention.ms", "1")]), settings(&[("log.retention.hours", "2")]));
    let entries = describe_topic(Layers { topic: &topic, broker: &none, cluster: &none, file: &file });
    let entry = entries.iter().find(|entry| entry.definition.name == "retention.ms").unwrap();
    let seen: Vec<(&str, &str, Source)> =
        entry.synonyms.iter().map(|s| (s.name, s.value.as_deref().unwrap(), s.source)).collect();
    assert_eq!(
        seen,
        [
            ("retention.ms", "1", Source::Topic),
            ("log.retention.hours", "2", Source::StaticBroker),
            ("log.retention.hours", "168", Source::Default)
        ]
    );
}

#[test]
fn the_typed_values_are_the_defaults_when_nothing_is_set() {
    let none = Settings::new();
    let config = TopicConfig::effective(Layers { topic: &none, broker: &none, cluster: &none, file: &none }).unwrap();
    assert_eq!((config.flush_ms, config.segment_bytes, config.retention_ms), (50, 1_073_741_824, 604_800_000));
    assert_eq!(config.flush_messages, 9_223_372_036_854_775_807);
    assert_eq!(config.cleanup_policy, CleanupPolicy { delete: true, compact: false });
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let (none, topic) = (Settings::new(), settings(&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]));
    let error =
        TopicConfig::effective(Layers { topic: &topic, broker: &none, cluster: &none, file: &none }).unwrap_err();
    assert_eq!(error.to_string(), "min.compaction.lag.ms=10: must be at most max.compaction.lag.ms=5");
}

#[test]
fn a_topic_does_not_take_a_brokers_setting() {
    let (none, topic) = (Settings::new(), settings(&[("log.retention.ms", "10")]));
    let error =
        TopicConfig::effective(Layers { topic: &topic, broker: &none, cluster: &none, file: &none }).unwrap_err();
    assert_eq!(error.to_string(), "unknown topic setting 'log.retention.ms'; did you mean 'retention.ms'?");
}

#[test]
fn every_setting_of_a_broker_is_described() {
    let (none, broker) = (Settings::new(), settings(&[("num.partitions", "9")]));
    let entries = describe_broker(Layers { topic: &none, broker: &broker, cluster: &none, file: &none });
    assert_eq!(entries.len(), broker_definitions().len());
    let entry = entries.iter().find(|entry| entry.definition.name == "num.partitions").unwrap();
    assert_eq!((entry.value.as_deref(), entry.source, entry.synonyms.len()), (Some("9"), Source::DynamicBroker, 2));
}
