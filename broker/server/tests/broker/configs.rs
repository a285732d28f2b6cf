//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: complete, with sources, and in force before the answer.

use forebay_broker_wire::messages::alter_configs::{self, AlterConfigsRequest};
use forebay_broker_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
};
use forebay_broker_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use forebay_broker_wire::messages::list_config_resources::ListConfigResourcesRequest;
use forebay_broker_wire::primitives::Records;
use forebay_broker_wire::records::{BatchBuilder, Compression, batches};
use forebay_broker_wire::types::ErrorCode;

use crate::create_topics::{create, topic};
use crate::harness::{Client, TestBroker, batch, fill};

const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;
pub(crate) const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn describe(client: &mut Client, kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configuration_keys: keys.map(|keys| keys.iter().map(|key| (*key).into()).collect()),
    };
    let request =
        DescribeConfigsRequest { resources: vec![resource], include_synonyms: true, include_documentation: true };
    client.call(&request, 4).results.remove(0)
}

fn of(client: &mut Client, kind: i8, name: &str, key: &str) -> DescribeConfigsResourceResult {
    let result = describe(client, kind, name, Some(&[key]));
    assert_eq!(result.error_code, 0, "{:?}", result.error_message);
    assert_eq!(result.configs.len(), 1, "{key}");
    result.configs.into_iter().next().unwrap()
}

fn value(client: &mut Client, kind: i8, name: &str, key: &str) -> (String, i8) {
    let config = of(client, kind, name, key);
    (config.value.unwrap_or_default().to_string(), config.config_source)
}

pub(crate) type Operation<'a> = (&'a str, i8, Option<&'a str>);

pub(crate) fn alter(
    client: &mut Client,
    kind: i8,
    name: &str,
    operations: &[Operation<'_>],
    dry: bool,
) -> (ErrorCode, String) {
    let config = |(name, operation, value): &Operation<'_>| AlterableConfig {
        name: (*name).into(),
        config_operation: *operation,
        value: value.map(Into::into),
    };
    let configs = operations.iter().map(config).collect();
    let resources = vec![AlterConfigsResource { resource_type: kind, resource_name: name.into(), configs }];
    let response =
        client.call(&IncrementalAlterConfigsRequest { resources, validate_only: dry }, 1).responses.remove(0);
    (ErrorCode::from_code(response.error_code), response.error_message.unwrap_or_default().to_string())
}

fn check_refused(client: &mut Client, of: (i8, &str), operation: Operation<'_>, code: ErrorCode, message: &str) {
    assert_eq!(alter(client, of.0, of.1, &[operation], false), (code, message.to_owned()));
}

#[test]
fn a_topics_settings_are_all_there_with_type_source_and_words() {
    let broker = TestBroker::start_with(&["log.retention.hours=2"]);
    let client = &mut broker.client();
    create(client, topic("t", 1, &[("cleanup.policy", Some("compact"))]));
    let all = describe(client, TOPIC, "t", None);
    assert!(all.configs.len() >= 25, "{} settings", all.configs.len());
    assert!(all.configs.iter().all(|config| config.documentation.is_some() && !config.synonyms.is_empty()));
    let policy = of(client, TOPIC, "t", "cleanup.policy");
    assert_eq!((policy.value.as_deref(), policy.config_source, policy.config_type), (Some("compact"), 1, 7));
    let retention = of(client, TOPIC, "t", "retention.ms");
    assert_eq!((retention.value.as_deref(), retention.config_source, retention.config_type), (Some("7200000"), 4, 5));
    assert_eq!(&*retention.synonyms[0].name, "log.retention.hours");
    assert_eq!(value(client, TOPIC, "t", "flush.ms"), ("50".to_owned(), 5));
    assert_eq!(describe(client, TOPIC, "t", Some(&[])).configs.len(), all.configs.len(), "no names asks for all");
}

#[test]
fn a_broker_says_what_it_found_out_for_itself() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    assert_eq!(value(client, BROKER, "1", "broker.id"), ("1".to_owned(), 5));
    let advertised = format!("PLAINTEXT://{}", broker.started.kafka_address);
    assert_eq!(value(client, BROKER, "1", "advertised.listeners"), (advertised, 5));
    assert_eq!(value(client, BROKER, "1", "forebay.cluster.id").0.len(), 22);
    assert_eq!(value(client, BROKER, "1", "num.io.threads"), ("2".to_owned(), 4));
}

#[test]
fn every_version_describes() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    for version in 1..=4 {
        let resource =
            DescribeConfigsResource { resource_type: TOPIC, resource_name: "t".into(), configuration_keys: None };
        let request = DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
        let result = client.call(&request, version).results.remove(0);
        assert_eq!(result.error_code, 0, "version {version}");
        assert!(result.configs.iter().all(|config| config.synonyms.is_empty()), "nobody asked for synonyms");
    }
}

#[test]
fn what_does_not_exist_is_not_described() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    let code = |client: &mut Client, kind, name| ErrorCode::from_code(describe(client, kind, name, None).error_code);
    assert_eq!(code(client, TOPIC, "none"), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(code(client, TOPIC, "a/b"), ErrorCode::InvalidTopicException);
    assert_eq!(code(client, BROKER, "7"), ErrorCode::InvalidRequest);
    assert_eq!(code(client, BROKER, "x"), ErrorCode::InvalidRequest);
    assert_eq!(code(client, 8, "1"), ErrorCode::InvalidRequest);
    assert_eq!(code(client, 99, "1"), ErrorCode::InvalidRequest);
}

#[test]
fn all_four_operations_change_a_topic() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    let done = (ErrorCode::None, String::new());
    let set = [("retention.ms", SET, Some("9000")), ("cleanup.policy", APPEND, Some("compact"))];
    assert_eq!(alter(client, TOPIC, "t", &set, false), done);
    assert_eq!(value(client, TOPIC, "t", "retention.ms"), ("9000".to_owned(), 1));
    assert_eq!(value(client, TOPIC, "t", "cleanup.policy"), ("delete,compact".to_owned(), 1));
    let back = [("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, Some("delete"))];
    assert_eq!(alter(client, TOPIC, "t", &back, false), done);
    assert_eq!(value(client, TOPIC, "t", "retention.ms"), ("604800000".to_owned(), 5));
    assert_eq!(value(client, TOPIC, "t", "cleanup.policy"), ("compact".to_owned(), 1));
}

#[test]
fn a_topics_new_setting_is_in_force_at_once_and_after_a_restart() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    assert_eq!(client.produce("t", 0, batch(&["small"]), 1).error_code, 0);
    alter(client, TOPIC, "t", &[("max.message.bytes", SET, Some("10"))], false);
    let too_large = ErrorCode::MessageTooLarge.code();
    assert_eq!(client.produce("t", 0, batch(&["small"]), 1).error_code, too_large);
    let broker = TestBroker::start_in(broker.stop(), &[]);
    assert_eq!(broker.client().produce("t", 0, batch(&["small"]), 1).error_code, too_large);
}

#[test]
fn a_brokers_dynamic_setting_reaches_topics_without_their_own() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    create(client, topic("own", 1, &[("max.message.bytes", Some("1000000"))]));
    assert_eq!(alter(client, BROKER, "", &[("message.max.bytes", SET, Some("10"))], false).0, ErrorCode::None);
    assert_eq!(client.produce("t", 0, batch(&["x"]), 1).error_code, ErrorCode::MessageTooLarge.code());
    assert_eq!(client.produce("own", 0, batch(&["x"]), 1).error_code, 0);
    assert_eq!(value(client, TOPIC, "t", "max.message.bytes"), ("10".to_owned(), 3));
    assert_eq!(alter(client, BROKER, "1", &[("message.max.bytes", SET, Some("2000000"))], false).0, ErrorCode::None);
    assert_eq!(client.produce("t", 0, batch(&["x"]), 1).error_code, 0, "this broker's own is stronger");
    assert_eq!(value(client, BROKER, "1", "message.max.bytes"), ("2000000".to_owned(), 2));
    let defaults = describe(client, BROKER, "", None);
    let names: Vec<&str> = defaults.configs.iter().map(|config| &*config.name).collect();
    assert_eq!(names, ["message.max.bytes"], "only what somebody set for all brokers");
}

#[test]
fn a_read_only_setting_is_shown_as_such_and_refused() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    assert!(of(client, BROKER, "1", "num.io.threads").read_only);
    assert!(!of(client, BROKER, "1", "log.retention.ms").read_only);
    let message = "num.io.threads=3: must be set in the broker's file, and counts after a restart";
    check_refused(client, (BROKER, "1"), ("num.io.threads", SET, Some("3")), ErrorCode::InvalidConfig, message);
}

#[test]
fn changes_that_cannot_be_are_refused_with_the_reason() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    let t = (TOPIC, "t");
    let unknown = "unknown topic setting 'retension.ms'; did you mean 'retention.ms'?";
    check_refused(client, t, ("retension.ms", SET, Some("1")), ErrorCode::InvalidConfig, unknown);
    let wrong = "retention.ms=soon: must be a 64-bit integer of at least -1";
    check_refused(client, t, ("retention.ms", SET, Some("soon")), ErrorCode::InvalidConfig, wrong);
    let list = "retention.ms: only a list can be appended to or subtracted from";
    check_refused(client, t, ("retention.ms", APPEND, Some("1")), ErrorCode::InvalidConfig, list);
    check_refused(client, t, ("retention.ms", SET, None), ErrorCode::InvalidRequest, "retention.ms: must have a value");
    let operation = "retention.ms: operation 7: must be 0 (set), 1 (delete), 2 (append) or 3 (subtract)";
    check_refused(client, t, ("retention.ms", 7, Some("1")), ErrorCode::InvalidRequest, operation);
    let (set, absent) = (("retention.ms", SET, Some("1")), "topic 'none' does not exist");
    check_refused(client, (TOPIC, "none"), set, ErrorCode::UnknownTopicOrPartition, absent);
    let set = ("log.retention.ms", SET, Some("1"));
    check_refused(client, (BROKER, "9"), set, ErrorCode::BrokerNotAvailable, "broker 9 is not registered");
    let loggers = "this broker's loggers are set by RUST_LOG at its start, not by requests";
    check_refused(client, (8, "1"), ("root", SET, Some("DEBUG")), ErrorCode::InvalidRequest, loggers);
    assert_eq!(value(client, TOPIC, "t", "retention.ms").1, 5, "nothing has changed");
}

#[test]
fn validate_only_judges_and_changes_nothing() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    assert_eq!(alter(client, TOPIC, "t", &[("retention.ms", SET, Some("1"))], true).0, ErrorCode::None);
    assert_eq!(value(client, TOPIC, "t", "retention.ms").1, 5);
    assert_eq!(alter(client, TOPIC, "t", &[("retention.ms", SET, Some("x"))], true).0, ErrorCode::InvalidConfig);
}

#[test]
fn the_older_way_replaces_all_settings() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[("retention.ms", Some("1")), ("segment.ms", Some("2"))]));
    let alter = |client: &mut Client, value: Option<&str>| {
        let configs = vec![alter_configs::AlterableConfig { name: "segment.ms".into(), value: value.map(Into::into) }];
        let resource = alter_configs::AlterConfigsResource { resource_type: TOPIC, resource_name: "t".into(), configs };
        let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
        ErrorCode::from_code(client.call(&request, 2).responses.remove(0).error_code)
    };
    assert_eq!(alter(client, Some("7")), ErrorCode::None);
    assert_eq!(value(client, TOPIC, "t", "segment.ms"), ("7".to_owned(), 1));
    assert_eq!(value(client, TOPIC, "t", "retention.ms").1, 5);
    assert_eq!(alter(client, None), ErrorCode::InvalidRequest);
    assert_eq!(alter(client, Some("0")), ErrorCode::InvalidConfig);
}

#[test]
fn what_has_settings_is_listed() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[]));
    let mut list = |version: i16, resource_types: Vec<i8>| {
        let response = client.call(&ListConfigResourcesRequest { resource_types }, version);
        let of = |resource: &forebay_broker_wire::messages::list_config_resources::ConfigResource| {
            (resource.resource_name.to_string(), resource.resource_type)
        };
        (response.error_code, response.config_resources.iter().map(of).collect::<Vec<_>>())
    };
    assert_eq!(list(0, Vec::new()), (0, Vec::new()));
    assert_eq!(list(1, Vec::new()), (0, vec![("t".to_owned(), TOPIC), ("1".to_owned(), BROKER)]));
    assert_eq!(list(1, vec![TOPIC]), (0, vec![("t".to_owned(), TOPIC)]));
    assert_eq!(list(1, vec![77]).0, ErrorCode::UnsupportedVersion.code());
}

#[test]
fn batches_are_stored_the_way_the_topic_asks() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[("compression.type", Some("zstd"))]));
    let stored = |client: &mut Client, offset: i64| {
        let data = client.fetch("t", 0, offset);
        let bytes = data.records.as_ref().and_then(Records::as_bytes).cloned().unwrap();
        batches(&bytes).next().unwrap().unwrap().header.compression()
    };
    assert_eq!(client.produce("t", 0, batch(&["plain", "records"]), 1).base_offset, 0);
    assert_eq!(stored(client, 0), Compression::Zstd);
    alter(client, TOPIC, "t", &[("compression.type", SET, Some("uncompressed"))], false);
    let gzip = fill(BatchBuilder::default().compression(Compression::Gzip), &["zipped"]);
    assert_eq!(client.produce("t", 0, gzip.clone(), 1).base_offset, 2);
    assert_eq!(stored(client, 2), Compression::None);
    alter(client, TOPIC, "t", &[("compression.type", DELETE, None)], false);
    assert_eq!(client.produce("t", 0, gzip, 1).base_offset, 3);
    assert_eq!(stored(client, 3), Compression::Gzip);
    let all: Vec<String> = client.read_all("t", 0).into_values().collect();
    assert_eq!(all, ["plain", "records", "zipped", "zipped"]);
}

#[test]
fn a_topic_with_fewer_replicas_than_it_wants_in_sync_wants_all_of_them() {
    let broker = TestBroker::start();
    let client = &mut broker.client();
    create(client, topic("t", 1, &[("min.insync.replicas", Some("2"))]));
    assert_eq!(client.produce("t", 0, batch(&["x"]), -1).error_code, 0);
}
