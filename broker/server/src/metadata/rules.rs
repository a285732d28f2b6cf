//! What settings may be, for the controller: the table of settings, asked with the file's and the image's layers beneath.

use forebay_broker_config::{
    BrokerConfig, Dynamic, Kind, Scope, Settings, TopicConfig, effective_value, find, parse_advertised, validate_broker,
};
use forebay_broker_machines::metadata::{ADVERTISED_LISTENERS, ConfigResource, ElectionRules, MetadataImage};

use super::effective::Beneath;

/// Judges all own settings of a resource together; the text says what is wrong.
pub(super) fn check(
    config: &BrokerConfig,
    image: &MetadataImage,
    resource: &ConfigResource,
    settings: &Settings,
) -> Result<(), String> {
    match resource {
        ConfigResource::Topic(_) => {
            let beneath = Beneath::new(config, image);
            TopicConfig::effective(beneath.topic(settings)).map(drop).map_err(|errors| errors.to_string())
        }
        ConfigResource::Broker(_) | ConfigResource::Cluster => settings.iter().try_for_each(|(name, value)| {
            let definition = validate_broker(name, value).map_err(|error| error.to_string())?;
            match definition.dynamic {
                Dynamic::ClusterWide => Ok(()),
                Dynamic::PerBroker if *resource == ConfigResource::Cluster => {
                    Err(format!("{name}={value}: must be set for one broker, by its id"))
                }
                Dynamic::PerBroker => check_advertised(config, value),
                Dynamic::ReadOnly => {
                    Err(format!("{name}={value}: must be set in the broker's file, and counts after a restart"))
                }
            }
        }),
    }
}

/// Brokers find each other by what their files say: only listeners of clients get other addresses.
fn check_advertised(config: &BrokerConfig, value: &str) -> Result<(), String> {
    let told = parse_advertised(value).map_err(|error| error.to_string())?;
    let controller = config.quorum.as_ref().map(|quorum| quorum.listener.name.as_str());
    let of_brokers = |name: &str| name == config.inter_broker_listener_name || Some(name) == controller;
    match told.iter().find(|told| of_brokers(&told.name)) {
        Some(told) => {
            let name = &told.name;
            Err(format!(
                "{ADVERTISED_LISTENERS}={value}: {name} is the brokers' own listener: must be changed in the broker's file"
            ))
        }
        None => Ok(()),
    }
}

/// The value in force of a setting that is a list; none for a setting that is not.
pub(super) fn list(
    config: &BrokerConfig,
    image: &MetadataImage,
    resource: &ConfigResource,
    name: &str,
) -> Option<String> {
    let scope = match resource {
        ConfigResource::Topic(_) => Scope::Topic,
        ConfigResource::Broker(_) | ConfigResource::Cluster => Scope::Broker,
    };
    let definition = find(scope, name).filter(|definition| definition.kind == Kind::List)?;
    if definition.dynamic == Dynamic::PerBroker {
        // The file here is this broker's, and the setting another one's.
        return Some(String::new());
    }
    let nothing = Settings::new();
    let own = match resource {
        ConfigResource::Topic(topic) => image.topic(topic).map(|topic| &*topic.config),
        _ => None,
    };
    let beneath = Beneath::new(config, image);
    let value = effective_value(scope, name, beneath.topic(own.unwrap_or(&nothing)));
    Some(value.map(|(value, _)| value).unwrap_or_default())
}

/// What counts in elections of a topic's leaders, by its own settings.
pub(crate) fn elections(config: &BrokerConfig, image: &MetadataImage, own: &Settings) -> ElectionRules {
    let beneath = Beneath::new(config, image);
    let value = |name| effective_value(Scope::Topic, name, beneath.topic(own)).map(|(value, _)| value);
    let min_insync_replicas = value("min.insync.replicas").and_then(|value| value.parse().ok()).unwrap_or(1);
    let unclean = value("unclean.leader.election.enable").is_some_and(|value| value == "true");
    ElectionRules { unclean, min_insync_replicas, mutation: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "node.id=0\nlog.dirs=/x\nlisteners=PLAINTEXT://localhost:0\nlog.cleanup.policy=compact\n";

    fn check_one(resource: &ConfigResource, name: &str, value: &str) -> Result<(), String> {
        let config = BrokerConfig::parse(FILE, &[]).unwrap();
        check(&config, &MetadataImage::default(), resource, &Settings::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn a_setting_that_only_counts_at_start_is_refused_while_the_broker_runs() {
        assert_eq!(
            check_one(&ConfigResource::Broker(0), "num.io.threads", "3").unwrap_err(),
            "num.io.threads=3: must be set in the broker's file, and counts after a restart"
        );
        assert_eq!(check_one(&ConfigResource::Cluster, "log.retention.ms", "3"), Ok(()));
    }

    #[test]
    fn an_address_is_one_brokers_and_not_that_of_the_brokers_own_listener() {
        let one = |resource, value| check_one(&resource, "advertised.listeners", value);
        assert_eq!(one(ConfigResource::Broker(7), "OUT://h:1"), Ok(()));
        assert_eq!(
            one(ConfigResource::Cluster, "OUT://h:1").unwrap_err(),
            "advertised.listeners=OUT://h:1: must be set for one broker, by its id"
        );
        assert_eq!(
            one(ConfigResource::Broker(7), "plaintext://h:1").unwrap_err(),
            "advertised.listeners=plaintext://h:1: PLAINTEXT is the brokers' own listener: must be changed in the broker's file"
        );
        assert!(one(ConfigResource::Broker(7), "OUT://:1").unwrap_err().contains("a host and a port"));
    }

    #[test]
    fn a_wrong_value_is_refused_with_what_would_be_right() {
        assert_eq!(
            check_one(&ConfigResource::Topic("t".to_owned()), "retention.ms", "soon").unwrap_err(),
            "retention.ms=soon: must be a 64-bit integer of at least -1"
        );
    }

    #[test]
    fn a_topics_own_word_on_unclean_elections_is_stronger_than_the_files() {
        let config = BrokerConfig::parse(&format!("{FILE}unclean.leader.election.enable=true\n"), &[]).unwrap();
        let unclean = |own: &Settings| elections(&config, &MetadataImage::default(), own).unclean;
        assert!(unclean(&Settings::new()));
        assert!(!unclean(&Settings::from([("unclean.leader.election.enable".to_owned(), "false".to_owned())])));
    }

    #[test]
    fn a_list_begins_with_what_is_in_force() {
        let config = BrokerConfig::parse(FILE, &[]).unwrap();
        let of = |name: &str| list(&config, &MetadataImage::default(), &ConfigResource::Topic("t".to_owned()), name);
        assert_eq!(of("cleanup.policy"), Some("compact".to_owned()));
        assert_eq!(of("retention.ms"), None);
    }
}
