//! Commands against an image: what is allowed, what is refused and in which words, and that the records alone are the state.

use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};
use proptest::prelude::*;

use super::*;

/// A controller in memory: decides, checks that the records replay, keeps them.
pub(super) struct World {
    pub(super) image: MetadataImage,
    log: Vec<Record>,
    next: u8,
}

impl World {
    pub(super) fn with_brokers(count: i32) -> Self {
        let mut world = Self { image: MetadataImage::default(), log: Vec::new(), next: 1 };
        for id in 0..count {
            world.start(id);
        }
        world
    }

    pub(super) fn register(&mut self, registration: BrokerRegistration) -> Result<BrokerLife, RegisterError> {
        let broker_id = registration.broker_id;
        match self.submit(Command::RegisterBroker(registration)) {
            Reply::Registered(result) => result.map(|broker_epoch| BrokerLife { broker_id, broker_epoch }),
            other => panic!("{other:?}"),
        }
    }

    /// Registers a broker as after a clean stop, and takes it in.
    pub(super) fn start(&mut self, id: i32) -> BrokerLife {
        let life = self.register(registration(id, "AAAAAAAAAAAAAAAAAAAAAA")).unwrap();
        assert_eq!(self.submit(Command::UnfenceBroker(life)), Reply::Broker(Ok(())));
        life
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests read better without a reference at each call")]
    pub(super) fn submit(&mut self, command: Command) -> Reply {
        let next = &mut self.next;
        let mut new_id = || {
            *next = next.wrapping_add(1);
            Uuid([*next; 16])
        };
        let check = |_: &ConfigResource, settings: &Settings| match settings.iter().find(|(_, value)| *value == "wrong")
        {
            Some((name, _)) => Err(format!("{name}=wrong: must be right")),
            None => Ok(()),
        };
        let list = |_: &ConfigResource, name: &str| (name == "cleanup.policy").then(|| "delete".to_owned());
        let rules = ConfigRules { check: &check, list: &list };
        let elections = |_: &MetadataImage, own: &Settings| ElectionRules {
            unclean: own.contains_key("unclean"),
            min_insync_replicas: own.get("min.insync.replicas").map_or(1, |min| min.parse().unwrap()),
            mutation: None,
        };
        let mut context = Context {
            new_id: &mut new_id,
            rules,
            elections: &elections,
            default_partitions: 2,
            default_replication_factor: 1,
        };
        let outcome = decide(&self.image, &command, &mut context);
        for record in outcome.records {
            let read_back = decode_record(&encode_record(&record).unwrap()).unwrap();
            assert_eq!(read_back, record);
            self.image.apply(&record).unwrap();
            self.log.push(record);
        }
        outcome.reply
    }

    pub(super) fn create(&mut self, topic: NewTopic) -> Result<CreatedTopic, String> {
        match self.submit(Command::CreateTopics { topics: vec![topic], validate_only: false }) {
            Reply::TopicsCreated(mut results) => results.remove(0).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    fn alter(&mut self, resource: ConfigResource, name: &str, operation: ConfigOperation) -> Result<(), String> {
        let change = ConfigChange { resource, operations: vec![(name.to_owned(), operation)], replace_all: false };
        match self.submit(Command::AlterConfigs { changes: vec![change], validate_only: false }) {
            Reply::ConfigsAltered(mut results) => results.remove(0).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    fn grow(&mut self, count: i32, assignment: Option<Vec<Vec<BrokerId>>>) -> Result<(), String> {
        let topics = vec![NewPartitions { topic: "t".to_owned(), count, assignment }];
        match self.submit(Command::CreatePartitions { topics, validate_only: false }) {
            Reply::PartitionsCreated(mut results) => results.remove(0).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, topic: TopicReference) -> Result<DeletedTopic, String> {
        match self.submit(Command::DeleteTopics { topics: vec![topic] }) {
            Reply::TopicsDeleted(mut results) => results.remove(0).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn registration(id: i32, cluster: &str) -> BrokerRegistration {
    BrokerRegistration {
        broker_id: BrokerId(id),
        cluster_id: cluster.to_owned(),
        rack: None,
        endpoints: vec![Endpoint { listener: "PLAINTEXT".to_owned(), host: "localhost".to_owned(), port: 9092 }],
        directories: vec![Uuid([9; 16])],
        incarnation: Uuid::ZERO,
        clean_shutdown: true,
        logs: None,
        vanished_logs: Logs::new(),
    }
}

pub(super) fn topic(name: &str) -> NewTopic {
    NewTopic {
        name: name.to_owned(),
        partitions: None,
        replication_factor: None,
        assignment: None,
        config: Settings::new(),
    }
}

fn topic_config(name: &str) -> ConfigResource {
    ConfigResource::Topic(name.to_owned())
}

#[test]
fn a_topic_gets_the_default_counts_an_id_and_leaders() {
    let mut world = World::with_brokers(3);
    let created = world.create(topic("t")).unwrap();
    assert_eq!((created.partitions, created.replication_factor), (2, 1));
    let image = world.image.topic("t").unwrap();
    assert_eq!(world.image.topic_by_id(created.id), Some(image));
    let first = image.partition(PartitionIndex(0)).unwrap();
    assert_eq!(first.leader, Some(first.replicas[0]));
    assert_eq!(image.partition(PartitionIndex(2)), None);
}

#[test]
fn validate_only_answers_the_same_and_changes_nothing() {
    let mut world = World::with_brokers(1);
    let before = world.image.clone();
    let reply = world.submit(Command::CreateTopics { topics: vec![topic("t")], validate_only: true });
    let Reply::TopicsCreated(results) = reply else { panic!() };
    assert_eq!(results[0].as_ref().unwrap().partitions, 2);
    assert_eq!(world.image, before);
}

#[test]
fn names_that_are_taken_or_collide_or_cannot_be_are_refused() {
    let mut world = World::with_brokers(1);
    world.create(topic("a.b")).unwrap();
    assert_eq!(world.create(topic("a.b")).unwrap_err(), "topic 'a.b' already exists");
    assert_eq!(
        world.create(topic("a_b")).unwrap_err(),
        "topic 'a_b' collides with existing topic 'a.b': '.' and '_' must not be all that tells two names apart"
    );
    assert_eq!(
        world.create(topic("a/b")).unwrap_err(),
        "topic name 'a/b' must consist of letters, digits, '.', '_' and '-'"
    );
}

#[test]
fn colliding_names_in_one_request_are_refused_too() {
    let mut world = World::with_brokers(1);
    let reply = world.submit(Command::CreateTopics { topics: vec![topic("x.y"), topic("x_y")], validate_only: false });
    let Reply::TopicsCreated(results) = reply else { panic!() };
    assert!(results[0].is_ok() && results[1].is_err());
    let reply = world.submit(Command::CreateTopics { topics: vec![topic("z"), topic("z")], validate_only: false });
    let Reply::TopicsCreated(results) = reply else { panic!() };
    assert!(results.iter().all(|result| matches!(result, Err(CreateTopicError::Twice { .. }))));
}

#[test]
fn counts_that_cannot_be_are_refused() {
    let mut world = World::with_brokers(2);
    let refused = |world: &mut World, topic: NewTopic| world.create(topic).unwrap_err();
    let error = refused(&mut world, NewTopic { partitions: Some(0), ..topic("t") });
    assert_eq!(error, "partitions=0: must be at least 1, or -1 for the default");
    let error = refused(&mut world, NewTopic { replication_factor: Some(3), ..topic("t") });
    assert_eq!(error, "replication factor 3: must be from 1 to 2, the number of brokers, or -1 for the default");
    let error = refused(&mut world, NewTopic { partitions: Some(i32::MAX), ..topic("t") });
    assert_eq!(error, "partitions=2147483647: one request may create at most 10000 partitions");
}

#[test]
fn chosen_replicas_are_kept_or_refused_with_the_fault() {
    let mut world = World::with_brokers(2);
    let with = |assignment: Vec<Vec<BrokerId>>| NewTopic { assignment: Some(assignment), ..topic("t") };
    let error = world.create(with(vec![vec![BrokerId(0), BrokerId(0)]])).unwrap_err();
    assert_eq!(error, "assignment 0 has replicas [0, 0]: must not name broker 0 twice");
    let error = world.create(with(vec![vec![BrokerId(0)], vec![BrokerId(9)]])).unwrap_err();
    assert_eq!(error, "assignment 1 names broker 9, which is not registered");
    let error = world.create(with(vec![vec![BrokerId(0)], vec![BrokerId(0), BrokerId(1)]])).unwrap_err();
    assert_eq!(error, "assignment 1 has replicas [0, 1]: must have 1, as the other partitions have");
    let error = world.create(NewTopic { partitions: Some(1), ..with(vec![vec![BrokerId(0)]]) }).unwrap_err();
    assert_eq!(error, "partitions and replication factor must be -1 when replicas are assigned");
    world.create(with(vec![vec![BrokerId(1), BrokerId(0)]])).unwrap();
    assert_eq!(world.image.topic("t").unwrap().partitions[0].replicas, [BrokerId(1), BrokerId(0)]);
}

#[test]
fn a_published_image_does_not_change_when_the_next_one_does() {
    let mut world = World::with_brokers(1);
    world.create(topic("t")).unwrap();
    let published = world.image.clone();
    world.grow(9, None).unwrap();
    world.alter(topic_config("t"), "a", ConfigOperation::Set("1".to_owned())).unwrap();
    let seen = published.topic("t").unwrap();
    assert_eq!((seen.partitions.len(), seen.config.len()), (2, 0));
    assert_eq!(world.image.topic("t").unwrap().partitions.len(), 9);
}

#[test]
fn a_topic_of_ten_thousand_partitions_is_made_and_grows_in_one_decision() {
    let mut world = World::with_brokers(3);
    world.create(NewTopic { partitions: Some(5000), replication_factor: Some(3), ..topic("t") }).unwrap();
    world.grow(15_000, None).unwrap();
    assert_eq!(world.image.topic("t").unwrap().partitions.len(), 15_000);
}

#[test]
fn settings_that_cannot_be_leave_no_topic_behind() {
    let mut world = World::with_brokers(1);
    let config = Settings::from([("retention.ms".to_owned(), "wrong".to_owned())]);
    let error = world.create(NewTopic { config, ..topic("t") }).unwrap_err();
    assert_eq!(error, "retention.ms=wrong: must be right");
    assert_eq!(world.image.topic("t"), None);
}

#[test]
fn a_topic_that_is_made_again_has_another_id() {
    let mut world = World::with_brokers(1);
    let first = world.create(topic("t")).unwrap();
    assert_eq!(world.delete(TopicReference::Name("t".to_owned())).unwrap().id, first.id);
    let second = world.create(topic("t")).unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(
        world.delete(TopicReference::Id(first.id)).unwrap_err(),
        format!("topic id {} does not exist", first.id)
    );
    assert_eq!(world.delete(TopicReference::Id(second.id)).unwrap().name, "t");
    assert_eq!(world.delete(TopicReference::Name("t".to_owned())).unwrap_err(), "topic 't' does not exist");
}

#[test]
fn a_topic_only_ever_gets_more_partitions() {
    let mut world = World::with_brokers(2);
    world.create(topic("t")).unwrap();
    assert_eq!(world.grow(2, None).unwrap_err(), "topic 't' has 2 partitions: must ask for more than that, not 2");
    assert_eq!(world.grow(-1, None).unwrap_err(), "topic 't' has 2 partitions: must ask for more than that, not -1");
    world.grow(3, None).unwrap();
    let error = world.grow(5, Some(vec![vec![BrokerId(0)]])).unwrap_err();
    assert_eq!(error, "1 assignments for 2 new partitions: must be one for each");
    world.grow(4, Some(vec![vec![BrokerId(1)]])).unwrap();
    let partitions = &world.image.topic("t").unwrap().partitions;
    assert_eq!((partitions.len(), partitions[3].leader), (4, Some(BrokerId(1))));
}

#[test]
fn settings_are_set_deleted_appended_to_and_subtracted_from() {
    let mut world = World::with_brokers(1);
    world.create(topic("t")).unwrap();
    let own = |world: &World| Settings::clone(&world.image.topic("t").unwrap().config);
    world.alter(topic_config("t"), "cleanup.policy", ConfigOperation::Append("compact,delete".to_owned())).unwrap();
    assert_eq!(own(&world)["cleanup.policy"], "delete,compact");
    world.alter(topic_config("t"), "cleanup.policy", ConfigOperation::Subtract("delete".to_owned())).unwrap();
    assert_eq!(own(&world)["cleanup.policy"], "compact");
    world.alter(topic_config("t"), "retention.ms", ConfigOperation::Set("5".to_owned())).unwrap();
    world.alter(topic_config("t"), "cleanup.policy", ConfigOperation::Delete).unwrap();
    assert_eq!(own(&world), Settings::from([("retention.ms".to_owned(), "5".to_owned())]));
    let error = world.alter(topic_config("t"), "retention.ms", ConfigOperation::Append("5".to_owned())).unwrap_err();
    assert_eq!(error, "retention.ms: only a list can be appended to or subtracted from");
}

#[test]
fn replacing_all_settings_deletes_those_that_are_not_named() {
    let mut world = World::with_brokers(1);
    world.create(NewTopic { config: Settings::from([("a".to_owned(), "1".to_owned())]), ..topic("t") }).unwrap();
    let operations = vec![("b".to_owned(), ConfigOperation::Set("2".to_owned()))];
    let change = ConfigChange { resource: topic_config("t"), operations, replace_all: true };
    world.submit(Command::AlterConfigs { changes: vec![change], validate_only: false });
    assert_eq!(*world.image.topic("t").unwrap().config, Settings::from([("b".to_owned(), "2".to_owned())]));
}

#[test]
fn settings_of_what_does_not_exist_and_of_wrong_values_are_refused() {
    let mut world = World::with_brokers(1);
    let set = || ConfigOperation::Set("wrong".to_owned());
    assert_eq!(world.alter(topic_config("t"), "a", set()).unwrap_err(), "topic 't' does not exist");
    assert_eq!(world.alter(ConfigResource::Broker(5), "a", set()).unwrap_err(), "broker 5 is not registered");
    assert_eq!(world.alter(ConfigResource::Cluster, "a", set()).unwrap_err(), "a=wrong: must be right");
    assert!(world.image.cluster_config().is_empty());
}

#[test]
fn a_broker_of_another_cluster_is_refused() {
    let mut world = World::with_brokers(1);
    let reply = world.submit(Command::RegisterBroker(registration(1, "BBBBBBBBBBBBBBBBBBBBBB")));
    let Reply::Registered(Err(error)) = reply else { panic!() };
    assert_eq!(
        error.to_string(),
        "broker 1 belongs to cluster BBBBBBBBBBBBBBBBBBBBBB: this is cluster AAAAAAAAAAAAAAAAAAAAAA"
    );
}

#[test]
fn a_broker_that_comes_again_has_a_higher_epoch_and_its_new_address() {
    let mut world = World::with_brokers(1);
    let first = world.image.broker(BrokerId(0)).unwrap().epoch;
    let mut again = registration(0, "AAAAAAAAAAAAAAAAAAAAAA");
    again.endpoints[0].port = 1;
    world.submit(Command::RegisterBroker(again));
    let broker = world.image.broker(BrokerId(0)).unwrap();
    assert!(broker.epoch > first);
    assert_eq!(broker.endpoints[0].port, 1);
}

#[test]
fn an_address_that_was_set_outlives_the_brokers_life_and_a_snapshot() {
    let mut world = World::with_brokers(1);
    let endpoint = |listener: &str, host: &str, port| Endpoint { listener: listener.into(), host: host.into(), port };
    let register = |world: &mut World| {
        let mut again = registration(0, "AAAAAAAAAAAAAAAAAAAAAA");
        again.endpoints.push(endpoint("OUT", "", 0));
        world.submit(Command::RegisterBroker(again));
    };
    let reached = |image: &MetadataImage| image.broker(BrokerId(0)).unwrap().endpoint("OUT").cloned();
    let set = |value: &str| ConfigOperation::Set(value.to_owned());
    register(&mut world);
    assert_eq!(reached(&world.image), None, "there is a listener, and nobody knows where");
    let own = ConfigResource::Broker(0);
    world.alter(own.clone(), ADVERTISED_LISTENERS, set("OUT://a:1, NONE://b:2")).unwrap();
    assert_eq!(reached(&world.image), Some(endpoint("OUT", "a", 1)));
    register(&mut world);
    assert_eq!(reached(&world.image), Some(endpoint("OUT", "a", 1)));
    let mut again = MetadataImage::default();
    world.image.snapshot().iter().for_each(|record| again.apply(record).unwrap());
    assert_eq!(again, world.image);
    let broker = world.image.broker(BrokerId(0)).unwrap();
    assert_eq!(broker.endpoint("NONE"), None, "it has no such listener");
    assert_eq!(broker.reached().count(), 2);
    world.alter(own, ADVERTISED_LISTENERS, ConfigOperation::Delete).unwrap();
    assert_eq!(reached(&world.image), None);
}

#[test]
fn producer_ids_are_never_given_out_twice() {
    let mut world = World::with_brokers(1);
    let mut blocks = Vec::new();
    for _ in 0..3 {
        let Reply::ProducerIds(block) = world.submit(Command::AllocateProducerIds) else { panic!() };
        blocks.push(block.first);
    }
    assert_eq!(blocks, [0, 1000, 2000]);
}

#[test]
fn a_record_that_does_not_fit_is_refused() {
    let mut image = MetadataImage::default();
    let partition = |partition| {
        Record::Partition(PartitionRecord {
            topic_id: Uuid([1; 16]),
            partition,
            replicas: vec![0],
            in_sync_replicas: vec![0],
            leader: 0,
            leader_epoch: 0,
            partition_epoch: 0,
            ..PartitionRecord::default()
        })
    };
    assert!(matches!(image.apply(&partition(0)), Err(ReplayError::NoTopic { .. })));
    image.apply(&Record::Topic(TopicRecord { topic_id: Uuid([1; 16]), name: "t".to_owned() })).unwrap();
    assert!(matches!(image.apply(&partition(1)), Err(ReplayError::OutOfTurn { partitions: 0, .. })));
}

#[derive(Debug, Clone)]
enum Step {
    Create(u8, i32),
    Delete(u8),
    Grow(u8, i32),
    Configure(u8, u8, Option<u8>),
    ConfigureBroker(i32, u8, Option<u8>),
    Ids,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u8, 1..4i32).prop_map(|(topic, count)| Step::Create(topic, count)),
        (0..4u8).prop_map(Step::Delete),
        (0..4u8, 1..8i32).prop_map(|(topic, count)| Step::Grow(topic, count)),
        (0..4u8, 0..3u8, proptest::option::of(0..9u8))
            .prop_map(|(topic, name, value)| Step::Configure(topic, name, value)),
        (-1..4i32, 0..3u8, proptest::option::of(0..9u8))
            .prop_map(|(id, name, value)| Step::ConfigureBroker(id, name, value)),
        Just(Step::Ids),
    ]
}

fn run(world: &mut World, step: &Step) {
    let name = |number: &u8| format!("topic-{number}");
    let operation =
        |value: &Option<u8>| value.map_or(ConfigOperation::Delete, |value| ConfigOperation::Set(value.to_string()));
    let configure = |resource, setting: &u8, value: &Option<u8>| Command::AlterConfigs {
        changes: vec![ConfigChange {
            resource,
            operations: vec![(format!("s{setting}"), operation(value))],
            replace_all: false,
        }],
        validate_only: false,
    };
    let command = match step {
        Step::Create(number, count) => Command::CreateTopics {
            topics: vec![NewTopic { partitions: Some(*count), replication_factor: Some(2), ..topic(&name(number)) }],
            validate_only: false,
        },
        Step::Delete(number) => Command::DeleteTopics { topics: vec![TopicReference::Name(name(number))] },
        Step::Grow(number, count) => Command::CreatePartitions {
            topics: vec![NewPartitions { topic: name(number), count: *count, assignment: None }],
            validate_only: false,
        },
        Step::Configure(number, setting, value) => configure(ConfigResource::Topic(name(number)), setting, value),
        Step::ConfigureBroker(-1, setting, value) => configure(ConfigResource::Cluster, setting, value),
        Step::ConfigureBroker(id, setting, value) => configure(ConfigResource::Broker(*id), setting, value),
        Step::Ids => Command::AllocateProducerIds,
    };
    world.submit(command);
}

proptest! {
    #[test]
    fn the_records_alone_give_the_image_and_so_does_a_snapshot(before in proptest::collection::vec(step(), 0..30), after in proptest::collection::vec(step(), 0..10)) {
        let mut world = World::with_brokers(3);
        for step in &before {
            run(&mut world, step);
        }
        let on_disk: Vec<Vec<u8>> = world.image.snapshot().iter().map(|record| encode_record(record).unwrap()).collect();
        let snapshot: Vec<Record> = on_disk.iter().map(|bytes| decode_record(bytes).unwrap()).collect();
        let mut from_snapshot = MetadataImage::default();
        for record in &snapshot {
            from_snapshot.apply(record).unwrap();
        }
        prop_assert_eq!(&from_snapshot, &world.image);
        let length = world.log.len();
        for step in &after {
            run(&mut world, step);
        }
        for record in &world.log[length..] {
            from_snapshot.apply(record).unwrap();
        }
        prop_assert_eq!(&from_snapshot, &world.image);
        let mut replayed = MetadataImage::default();
        for record in world.log[..length].iter().chain(&snapshot).chain(&world.log[length..]) {
            replayed.apply(record).unwrap();
        }
        prop_assert_eq!(&replayed, &world.image);
    }
}
