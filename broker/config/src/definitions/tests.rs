//! The table keeps its own rules.

use super::*;
use crate::check_value;

#[test]
fn names_are_unique_and_sorted_so_that_search_finds_them() {
    for table in [broker_definitions(), topic_definitions()] {
        for pair in table.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
    }
}

#[test]
fn every_default_is_a_valid_value() {
    for definition in broker_definitions().iter().chain(topic_definitions()) {
        if let Some(default) = definition.default {
            check_value(definition, default).unwrap();
        }
    }
}

#[test]
fn a_topic_setting_and_the_broker_setting_behind_it_have_the_same_default() {
    for definition in topic_definitions() {
        let Some((name, factor)) =
            definition.broker_names.iter().find(|(name, _)| find(Scope::Broker, name).unwrap().default.is_some())
        else {
            continue;
        };
        let broker_default = find(Scope::Broker, name).unwrap().default.unwrap();
        let scaled = match broker_default.parse::<i64>() {
            Ok(number) => (number * factor).to_string(),
            Err(_) => broker_default.to_owned(),
        };
        assert_eq!(Some(scaled.as_str()), definition.default, "{} and {name}", definition.name);
    }
}

#[test]
fn a_broker_setting_behind_a_topic_setting_can_change_while_the_broker_runs() {
    for definition in topic_definitions() {
        for (name, factor) in definition.broker_names.iter().take(1) {
            assert_eq!(*factor, 1, "{name}");
            assert_eq!(find(Scope::Broker, name).unwrap().dynamic, Dynamic::ClusterWide, "{name}");
        }
    }
}

#[test]
fn every_text_says_something() {
    for definition in broker_definitions().iter().chain(topic_definitions()) {
        assert!(definition.doc.len() > 10 && definition.doc.ends_with('.'), "{}", definition.name);
    }
}
