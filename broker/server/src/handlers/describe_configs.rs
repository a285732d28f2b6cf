//! DescribeConfigs: every setting of a topic or of this broker, with its value, where that comes from, and what lies beneath.
//!
//! What must hold: the list is complete, defaults included, since tools refuse to start when a name is missing.

use std::sync::Arc;

use forebay_broker_config::{Dynamic, Entry, Kind, Scope, Settings, describe_broker, describe_topic};
use forebay_broker_machines::metadata::ADVERTISED_LISTENERS;
use forebay_broker_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use forebay_broker_wire::types::{BrokerId, ErrorCode, Str};

use super::config_resource::{Resource, read_resource};
use super::error_code::Failure;
use super::repeated::Repeated;
use super::request::RequestContext;
use crate::broker::Broker;
use crate::metadata::effective::Beneath;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let (synonyms, documentation) = (request.include_synonyms, request.include_documentation);
    let repeated = Repeated::among(request.resources.iter().map(key));
    let results = request.resources.iter().map(|asked| {
        let once = repeated.refuse(key(asked), "resource");
        describe(asked, once.and_then(|()| entries(broker, asked)), synonyms, documentation)
    });
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
}

fn key(resource: &DescribeConfigsResource) -> (i8, &str) {
    (resource.resource_type, &resource.resource_name)
}

fn describe(
    asked: &DescribeConfigsResource,
    entries: Result<Vec<Entry>, Failure>,
    synonyms: bool,
    documentation: bool,
) -> DescribeConfigsResult {
    let keys = asked.configuration_keys.as_ref().filter(|keys| !keys.is_empty());
    let wanted = |entry: &Entry| keys.is_none_or(|keys| keys.iter().any(|key| *key == *entry.definition.name));
    let mut result = DescribeConfigsResult {
        resource_type: asked.resource_type,
        resource_name: asked.resource_name.clone(),
        ..DescribeConfigsResult::default()
    };
    match entries {
        Ok(entries) => {
            let entries = entries.into_iter().filter(wanted);
            result.configs = entries.map(|entry| config(entry, synonyms, documentation)).collect();
        }
        Err(failure) => {
            result.error_code = failure.code.code();
            result.error_message = Some(failure.message.into());
        }
    }
    result
}

fn entries(broker: &Broker, asked: &DescribeConfigsResource) -> Result<Vec<Entry>, Failure> {
    let image = broker.metadata.image();
    let beneath = Beneath::new(&broker.config, &image);
    let nothing = Settings::new();
    match read_resource(asked.resource_type, &asked.resource_name)? {
        Resource::Topic(name) => match image.topic(&name) {
            Some(topic) => Ok(describe_topic(beneath.topic(&topic.config))),
            None => Err(Failure::new(ErrorCode::UnknownTopicOrPartition, format!("topic '{name}' does not exist"))),
        },
        Resource::Broker(id) if id == broker.config.broker_id => {
            let mut entries = describe_broker(beneath.topic(&nothing));
            let found_out = |entry: &&mut Entry| entry.value.is_none() || entry.definition.name == ADVERTISED_LISTENERS;
            for entry in entries.iter_mut().filter(found_out) {
                entry.value = in_force(broker, entry.definition.name);
            }
            Ok(entries)
        }
        Resource::Broker(id) => {
            let message = format!(
                "broker {id} must be asked for its settings itself: this is broker {}",
                broker.config.broker_id
            );
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        }
        // Of the settings for all brokers only those exist that somebody made.
        Resource::Cluster => Ok(describe_broker(beneath.cluster_alone(&nothing))
            .into_iter()
            .filter(|entry| image.cluster_config().contains_key(entry.definition.name))
            .collect()),
    }
}

/// What this broker found out for itself, for a setting that nobody gave, or gave for a part.
fn in_force(broker: &Broker, name: &str) -> Option<String> {
    let config = &broker.config;
    match name {
        "node.id" | "broker.id" => Some(config.broker_id.to_string()),
        "num.network.threads" => Some(broker.threads.network.to_string()),
        "num.io.threads" => Some(broker.threads.io.to_string()),
        "forebay.cluster.id" => Some(broker.cluster_id().to_owned()),
        "inter.broker.listener.name" => Some(config.inter_broker_listener_name.clone()),
        ADVERTISED_LISTENERS => {
            let image = broker.metadata.image();
            let reached = image.broker(BrokerId(config.broker_id))?.reached();
            let written = reached.map(|told| format!("{}://{}:{}", told.listener, told.host, told.port));
            Some(written.collect::<Vec<_>>().join(","))
        }
        _ => None,
    }
}

fn config(entry: Entry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult {
    let definition = entry.definition;
    let synonym = |synonym: forebay_broker_config::Synonym| DescribeConfigsSynonym {
        name: Str::from_static(synonym.name),
        value: synonym.value.map(Str::from),
        source: synonym.source as i8,
    };
    DescribeConfigsResourceResult {
        name: Str::from_static(definition.name),
        value: entry.value.map(Str::from),
        read_only: definition.scope == Scope::Broker && definition.dynamic == Dynamic::ReadOnly,
        config_source: entry.source as i8,
        is_sensitive: false,
        synonyms: if synonyms { entry.synonyms.into_iter().map(synonym).collect() } else { Vec::new() },
        config_type: kind(definition.kind),
        documentation: documentation.then(|| Str::from_static(definition.doc)),
    }
}

/// The protocol's number of a type.
fn kind(kind: Kind) -> i8 {
    match kind {
        Kind::Boolean => 1,
        Kind::String => 2,
        Kind::Int => 3,
        Kind::Short => 4,
        Kind::Long => 5,
        Kind::Double => 6,
        Kind::List => 7,
    }
}
