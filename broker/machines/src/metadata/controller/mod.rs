//! The controller: a command and the present image give records and a reply. Nothing is changed here, and nothing is read but the
//! arguments, so that a refused command leaves no trace and a test needs no broker.

mod alter_configs;
mod brokers;
mod create_partitions;
mod create_topics;
mod delete_topics;
mod leadership;

use forebay_broker_wire::types::{BrokerId, Uuid};

use super::{ConfigResource, MetadataImage, PartitionRecord, Record, Settings};

pub use alter_configs::{AlterConfigsError, ConfigChange, ConfigOperation};
pub use brokers::{BrokerRegistration, PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock, RegisterError};
pub use create_partitions::{CreatePartitionsError, NewPartitions};
pub use create_topics::{CreateTopicError, CreatedTopic, NewTopic};
pub use delete_topics::{DeleteTopicError, DeletedTopic, TopicReference};
pub use leadership::{AlterPartitionError, ElectionRules, alter_partition, broker_back, broker_gone};

/// Partitions that one command may make: more would stop all other commands for too long.
pub(super) const PARTITIONS_PER_COMMAND_MAX: usize = 10_000;

/// What can be asked of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A broker starts, or comes again with other addresses.
    RegisterBroker(BrokerRegistration),
    /// Make topics.
    CreateTopics {
        /// Each is decided on its own.
        topics: Vec<NewTopic>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// Remove topics.
    DeleteTopics {
        /// Each is decided on its own.
        topics: Vec<TopicReference>,
    },
    /// Give topics more partitions.
    CreatePartitions {
        /// Each is decided on its own.
        topics: Vec<NewPartitions>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// Change settings of topics, of brokers, or of all brokers.
    AlterConfigs {
        /// Each is decided on its own.
        changes: Vec<ConfigChange>,
        /// Only say what would happen.
        validate_only: bool,
    },
    /// Set some producer ids aside for a broker to give out.
    AllocateProducerIds,
}

/// The answer to a command; lists have the order of the command's.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To `RegisterBroker`: the broker's epoch.
    Registered(Result<i64, RegisterError>),
    /// To `CreateTopics`.
    TopicsCreated(Vec<Result<CreatedTopic, CreateTopicError>>),
    /// To `DeleteTopics`.
    TopicsDeleted(Vec<Result<DeletedTopic, DeleteTopicError>>),
    /// To `CreatePartitions`.
    PartitionsCreated(Vec<Result<(), CreatePartitionsError>>),
    /// To `AlterConfigs`.
    ConfigsAltered(Vec<Result<(), AlterConfigsError>>),
    /// To `AllocateProducerIds`.
    ProducerIds(ProducerIdBlock),
}

/// What a command comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What must be durable before the reply is given; all of it or nothing.
    pub records: Vec<Record>,
    /// The reply.
    pub reply: Reply,
}

/// What settings may be; known to the caller, since the table of settings is.
pub struct ConfigRules<'a> {
    /// Judges all own settings of a resource together; the text says what is wrong.
    pub check: &'a dyn Fn(&ConfigResource, &Settings) -> Result<(), String>,
    /// The value in force of a setting that is a list; none for a setting that is not.
    pub list: &'a dyn Fn(&ConfigResource, &str) -> Option<String>,
}

impl std::fmt::Debug for ConfigRules<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigRules").finish_non_exhaustive()
    }
}

/// What a decision needs beside the image and the command.
pub struct Context<'a> {
    /// Gives ids that were never given before.
    pub new_id: &'a mut dyn FnMut() -> Uuid,
    /// What settings may be.
    pub rules: ConfigRules<'a>,
    /// Partitions of a topic that does not say how many.
    pub default_partitions: i32,
    /// Replicas of a topic that does not say how many.
    pub default_replication_factor: i16,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Decides a command.
pub fn decide(image: &MetadataImage, command: &Command, context: &mut Context<'_>) -> Outcome {
    let mut draft = Draft { image: image.clone(), records: Vec::new() };
    let reply = match command {
        Command::RegisterBroker(registration) => Reply::Registered(brokers::register(&mut draft, registration)),
        Command::CreateTopics { topics, .. } => {
            Reply::TopicsCreated(create_topics::decide(&mut draft, topics, context))
        }
        Command::DeleteTopics { topics } => Reply::TopicsDeleted(delete_topics::decide(&mut draft, topics)),
        Command::CreatePartitions { topics, .. } => {
            Reply::PartitionsCreated(create_partitions::decide(&mut draft, topics))
        }
        Command::AlterConfigs { changes, .. } => {
            Reply::ConfigsAltered(alter_configs::decide(&mut draft, changes, &context.rules))
        }
        Command::AllocateProducerIds => Reply::ProducerIds(brokers::allocate_producer_ids(&mut draft)),
    };
    let validate_only = match command {
        Command::CreateTopics { validate_only, .. }
        | Command::CreatePartitions { validate_only, .. }
        | Command::AlterConfigs { validate_only, .. } => *validate_only,
        _ => false,
    };
    Outcome { records: if validate_only { Vec::new() } else { draft.records }, reply }
}

/// The image as it will be, and the records that make it so: later parts of a command see the earlier ones.
struct Draft {
    image: MetadataImage,
    records: Vec<Record>,
}

impl Draft {
    fn push(&mut self, record: Record) {
        let fits = self.image.apply(&record);
        assert!(fits.is_ok(), "a decided record must fit the image: {fits:?}");
        self.records.push(record);
    }

    /// A new partition: all replicas in sync, the preferred one leads.
    fn push_new_partition(&mut self, topic_id: Uuid, partition: usize, replicas: &[BrokerId]) {
        let replicas: Vec<i32> = replicas.iter().map(|id| id.0).collect();
        self.push(Record::Partition(PartitionRecord {
            topic_id,
            partition: i32::try_from(partition).unwrap_or(i32::MAX),
            leader: replicas.first().copied().unwrap_or(-1),
            in_sync_replicas: replicas.clone(),
            replicas,
            leader_epoch: 0,
            partition_epoch: 0,
        }));
    }

    fn brokers(&self) -> Vec<(BrokerId, Option<&str>)> {
        self.image.brokers().map(|broker| (broker.id, broker.rack.as_deref())).collect()
    }
}

/// Whether the replicas that somebody chose can be: the fault in words, or the number of replicas of each partition.
fn assignment_fault(
    image: &MetadataImage,
    assignment: &[Vec<BrokerId>],
    replication_factor: Option<usize>,
) -> Option<String> {
    let wanted = replication_factor.or_else(|| assignment.first().map(Vec::len)).unwrap_or_default();
    for (index, replicas) in assignment.iter().enumerate() {
        let list: Vec<i32> = replicas.iter().map(|id| id.0).collect();
        if replicas.is_empty() {
            return Some(format!("assignment {index} has no replicas: must name at least one broker"));
        }
        if replicas.len() != wanted {
            return Some(format!(
                "assignment {index} has replicas {list:?}: must have {wanted}, as the other partitions have"
            ));
        }
        for (place, id) in replicas.iter().enumerate() {
            if replicas[..place].contains(id) {
                return Some(format!("assignment {index} has replicas {list:?}: must not name broker {} twice", id.0));
            }
            if image.broker(*id).is_none() {
                return Some(format!("assignment {index} names broker {}, which is not registered", id.0));
            }
        }
    }
    None
}
