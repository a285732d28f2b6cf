//! Configuration of a topic: what differs from what is declared. A topic is kept as declared: a declared value that was
//! changed is put back, a name that was set and is not declared is removed, except what tools set while they move replicas.

use std::collections::BTreeMap;

use forebay_broker_client::admin::{ConfigChange, ConfigEntry, ConfigSource};
use forebay_broker_config::{Scope, validate_topic};

use crate::settings;

/// Set for as long as replicas move, and removed by who set them.
const OF_TOOLS: &[&str] = &["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"];

/// The declared configuration as text, or what is wrong with it.
pub(crate) fn validated(declared: &forebay_crds::ConfigMap) -> Result<BTreeMap<String, String>, String> {
    let texts: BTreeMap<String, String> =
        declared.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let errors: Vec<String> = texts
        .iter()
        .filter_map(|(name, value)| validate_topic(name, value).err())
        .map(|error| settings::text(Scope::Topic, declared, &error))
        .collect();
    if errors.is_empty() { Ok(texts) } else { Err(errors.join("; ")) }
}

/// A difference, with both values for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    pub(crate) change: ConfigChange,
    pub(crate) text: String,
}

/// What has to change on the brokers.
pub(crate) fn drifts(declared: &BTreeMap<String, String>, entries: &[ConfigEntry]) -> Vec<Drift> {
    let set_on_topic: BTreeMap<&str, &ConfigEntry> = entries
        .iter()
        .filter(|entry| entry.source == ConfigSource::TopicConfig)
        .map(|entry| (entry.name.as_str(), entry))
        .collect();
    let wrong = declared.iter().filter_map(|(name, wanted)| {
        let found = set_on_topic.get(name.as_str()).and_then(|entry| entry.value.as_deref());
        (found != Some(wanted)).then(|| Drift {
            change: ConfigChange::Set { name: name.clone(), value: wanted.clone() },
            text: format!("{name} from {} to {wanted}", found.unwrap_or("unset")),
        })
    });
    let undeclared = set_on_topic
        .iter()
        .filter(|(name, _)| !declared.contains_key(**name) && !OF_TOOLS.contains(*name))
        .map(|(name, entry)| Drift {
            change: ConfigChange::Delete { name: (*name).to_owned() },
            text: format!("{name} from {} to unset", entry.value.as_deref().unwrap_or("a hidden value")),
        });
    wrong.chain(undeclared).collect()
}
