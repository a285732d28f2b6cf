//! Settings of topics, brokers and groups: what is in force and where it comes from, and changes.

use forebay_broker_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
};
use forebay_broker_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig, IncrementalAlterConfigsRequest,
};
use forebay_broker_wire::types::{BrokerId, Str};
use serde::Serialize;

use super::{Admin, Each, batches};
use crate::error::{Refused, RequestError};

/// Resources asked about in one request; each answers with all of its settings, some kilobytes.
const RESOURCES_A_REQUEST: usize = 500;

/// What has settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigResource {
    /// A topic, by name.
    Topic(String),
    /// One broker.
    Broker(BrokerId),
    /// The default of all brokers.
    AllBrokers,
    /// A consumer group.
    Group(String),
}

impl ConfigResource {
    fn to_wire(&self) -> (i8, Str) {
        match self {
            Self::Topic(name) => (2, Str::from(name)),
            Self::Broker(id) => (4, Str::from(id.to_string())),
            Self::AllBrokers => (4, Str::new()),
            Self::Group(name) => (32, Str::from(name)),
        }
    }

    fn from_wire(kind: i8, name: &Str) -> Option<Self> {
        match kind {
            2 => Some(Self::Topic(name.as_str().to_owned())),
            4 if name.is_empty() => Some(Self::AllBrokers),
            4 => name.parse().ok().map(|id| Self::Broker(BrokerId(id))),
            32 => Some(Self::Group(name.as_str().to_owned())),
            _ => None,
        }
    }
}

impl std::fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Broker(id) => write!(f, "broker {id}"),
            Self::AllBrokers => write!(f, "all brokers"),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConfigSource {
    /// Set on the topic.
    TopicConfig,
    /// Set on this broker while it ran.
    DynamicBrokerConfig,
    /// Set on all brokers while they ran.
    DynamicDefaultBrokerConfig,
    /// In the broker's configuration file.
    StaticBrokerConfig,
    /// Nobody set it.
    DefaultConfig,
    /// Set on the group.
    GroupConfig,
    /// A source this client does not know, or the broker does not tell.
    Unknown,
}

impl ConfigSource {
    fn from_wire(source: i8) -> Self {
        match source {
            1 => Self::TopicConfig,
            2 => Self::DynamicBrokerConfig,
            3 => Self::DynamicDefaultBrokerConfig,
            4 => Self::StaticBrokerConfig,
            5 => Self::DefaultConfig,
            8 => Self::GroupConfig,
            _ => Self::Unknown,
        }
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; none if it is sensitive or has none.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether it can't be changed while the broker runs.
    pub read_only: bool,
    /// Whether its value is kept secret.
    pub sensitive: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Set a value.
    Set {
        /// The setting.
        name: String,
        /// Its new value.
        value: String,
    },
    /// Go back to the value from the next source.
    Delete {
        /// The setting.
        name: String,
    },
}

impl Admin {
    /// All settings of many resources.
    pub async fn describe_configs(
        &self,
        resources: &[ConfigResource],
    ) -> Result<Each<ConfigResource, Vec<ConfigEntry>>, RequestError> {
        self.describe_named_configs(resources, &[]).await
    }

    /// Some settings of many resources; all when no name is given.
    pub async fn describe_named_configs(
        &self,
        resources: &[ConfigResource],
        names: &[&str],
    ) -> Result<Each<ConfigResource, Vec<ConfigEntry>>, RequestError> {
        let describe = |resources: &[&ConfigResource]| describe(resources, names);
        let (brokers, others): (Vec<_>, Vec<_>) =
            resources.iter().partition(|r| matches!(r, ConfigResource::Broker(_)));
        let mut all = Each::new();
        for some in batches(&others, RESOURCES_A_REQUEST) {
            let send = async || Ok(self.client.any().await?.send(&describe(some)).await?.results);
            all.extend(self.client.retry(send).await?.into_iter().filter_map(described));
        }
        for broker in brokers {
            let ConfigResource::Broker(id) = broker else { continue };
            let send = async || Ok(self.client.broker(*id).await?.send(&describe(&[broker])).await?.results);
            all.extend(self.client.retry(send).await?.into_iter().filter_map(described));
        }
        Ok(all)
    }

    /// Changes settings of many resources, or only checks whether they could be changed.
    pub async fn incremental_alter_configs(
        &self,
        changes: &[(ConfigResource, Vec<ConfigChange>)],
        validate_only: bool,
    ) -> Result<Each<ConfigResource, ()>, RequestError> {
        let (brokers, others): (Vec<_>, Vec<_>) =
            changes.iter().cloned().partition(|(r, _)| matches!(r, ConfigResource::Broker(_)));
        let mut all = Each::new();
        if !others.is_empty() {
            let request = alter(&others, validate_only);
            let send = async || Ok(self.client.controller().await?.send(&request).await?.responses);
            all.extend(self.client.retry(send).await?.iter().filter_map(altered));
        }
        for change in brokers {
            let ConfigResource::Broker(id) = change.0 else { continue };
            let request = alter(&[change], validate_only);
            let send = async || Ok(self.client.broker(id).await?.send(&request).await?.responses);
            all.extend(self.client.retry(send).await?.iter().filter_map(altered));
        }
        Ok(all)
    }
}

fn describe(resources: &[&ConfigResource], names: &[&str]) -> DescribeConfigsRequest {
    let keys = || (!names.is_empty()).then(|| names.iter().copied().map(Str::from).collect());
    let asked = resources.iter().map(|resource| {
        let (resource_type, resource_name) = resource.to_wire();
        DescribeConfigsResource { resource_type, resource_name, configuration_keys: keys() }
    });
    DescribeConfigsRequest { resources: asked.collect(), ..Default::default() }
}

fn described(result: DescribeConfigsResult) -> Option<(ConfigResource, Result<Vec<ConfigEntry>, Refused>)> {
    let resource = ConfigResource::from_wire(result.resource_type, &result.resource_name)?;
    let entries = Refused::check(result.error_code, result.error_message.as_ref())
        .map(|()| result.configs.into_iter().map(entry).collect());
    Some((resource, entries))
}

fn entry(config: DescribeConfigsResourceResult) -> ConfigEntry {
    ConfigEntry {
        name: config.name.into(),
        value: config.value.map(Into::into),
        source: ConfigSource::from_wire(config.config_source),
        read_only: config.read_only,
        sensitive: config.is_sensitive,
    }
}

fn alter(changes: &[(ConfigResource, Vec<ConfigChange>)], validate_only: bool) -> IncrementalAlterConfigsRequest {
    let resources = changes.iter().map(|(resource, changes)| {
        let (resource_type, resource_name) = resource.to_wire();
        AlterConfigsResource { resource_type, resource_name, configs: changes.iter().map(alterable).collect() }
    });
    IncrementalAlterConfigsRequest { resources: resources.collect(), validate_only }
}

fn alterable(change: &ConfigChange) -> AlterableConfig {
    match change {
        ConfigChange::Set { name, value } => {
            AlterableConfig { name: Str::from(name), config_operation: 0, value: Some(Str::from(value)) }
        }
        ConfigChange::Delete { name } => AlterableConfig { name: Str::from(name), config_operation: 1, value: None },
    }
}

fn altered(response: &AlterConfigsResourceResponse) -> Option<(ConfigResource, Result<(), Refused>)> {
    let resource = ConfigResource::from_wire(response.resource_type, &response.resource_name)?;
    Some((resource, Refused::check(response.error_code, response.error_message.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_comes_back_from_the_wire_as_it_went() {
        let all = [
            ConfigResource::Topic("orders".to_owned()),
            ConfigResource::Broker(BrokerId(3)),
            ConfigResource::AllBrokers,
            ConfigResource::Group("readers".to_owned()),
        ];
        for resource in all {
            let (kind, name) = resource.to_wire();
            assert_eq!(ConfigResource::from_wire(kind, &name), Some(resource));
        }
        assert_eq!(ConfigResource::from_wire(99, &Str::from("x")), None);
    }
}
