//! The controller: a command and the present image give records and a reply. Nothing is changed here, and nothing is read but the
//! arguments, so that a refused command leaves no trace and a test needs no broker.

mod alter_configs;
mod alter_partition;
mod brokers;
mod create_partitions;
mod create_topics;
mod delete_topics;
mod elect_leaders;
mod fencing;
mod leadership;
mod reassignment;
mod unable;

use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};
use serde::{Deserialize, Serialize};

use super::placement::Candidates;
use super::{ConfigResource, MetadataImage, PartitionImage, PartitionRecord, Record, Settings, TopicImage};

pub use alter_configs::{AlterConfigsError, ConfigChange, ConfigOperation};
pub use alter_partition::{AlteredPartition, PartitionProposal};
pub use brokers::{BrokerRegistration, Logs, PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock, RegisterError, UnregisterError};
pub use create_partitions::{CreatePartitionsError, NewPartitions};
pub use create_topics::{CreateTopicError, CreatedTopic, NewTopic};
pub use delete_topics::{DeleteTopicError, DeletedTopic, TopicReference};
pub use elect_leaders::{ElectLeadersError, Election, ElectionKind};
pub use fencing::{BrokerLife, BrokerLifeError};
pub use leadership::{AlterPartitionError, ElectionRules, alter_partition, broker_back, broker_gone, broker_leaving};
pub use reassignment::{ReassignError, Reassignment};
pub use unable::{Inability, UnableReplicas, replicas_unable};

/// Partitions that one command may make: more would stop all other commands for too long.
pub(super) const PARTITIONS_PER_COMMAND_MAX: usize = 10_000;

/// What can be asked of the metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// A broker can be relied on.
    UnfenceBroker(BrokerLife),
    /// A broker can't be relied on.
    FenceBroker(BrokerLife),
    /// A broker is about to stop.
    ControlledShutdown(BrokerLife),
    /// Disks have failed, hang or are full: others are to lead and keep in sync what is there.
    ReplicasUnable {
        /// Each is decided on its own.
        partitions: Vec<UnableReplicas>,
    },
    /// A leader proposes ISRs.
    AlterPartition {
        /// The leader.
        proposer: BrokerLife,
        /// Each is decided on its own.
        partitions: Vec<PartitionProposal>,
    },
    /// Choose leaders.
    ElectLeaders {
        /// Who may be elected.
        kind: ElectionKind,
        /// None stands for all.
        partitions: Option<Vec<(String, PartitionIndex)>>,
    },
    /// Move replicas.
    AlterPartitionReassignments {
        /// Each is decided on its own.
        reassignments: Vec<Reassignment>,
        /// Whether a partition may get another number of replicas.
        allow_replication_factor_change: bool,
    },
    /// A broker will not come again.
    UnregisterBroker {
        /// Which.
        broker_id: BrokerId,
    },
}

/// The answer to a command; lists have the order of the command's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// To `ReplicasUnable`.
    ReplicasLeft,
    /// To `UnfenceBroker` and `FenceBroker`.
    Broker(Result<(), BrokerLifeError>),
    /// To `ControlledShutdown`: partitions that it leads still, since nobody else could.
    ShuttingDown(Result<usize, BrokerLifeError>),
    /// To `AlterPartition`.
    PartitionsAltered(Vec<Result<AlteredPartition, AlterPartitionError>>),
    /// To `ElectLeaders`.
    LeadersElected(Vec<Election>),
    /// To `AlterPartitionReassignments`.
    Reassigned(Vec<Result<(), ReassignError>>),
    /// To `UnregisterBroker`.
    Unregistered(Result<(), UnregisterError>),
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
    /// What counts in elections, by the settings of all and a topic's own.
    pub elections: &'a dyn Fn(&MetadataImage, &Settings) -> ElectionRules,
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
        Command::RegisterBroker(registration) => {
            Reply::Registered(brokers::register(&mut draft, registration, context))
        }
        Command::CreateTopics { topics, .. } => {
            Reply::TopicsCreated(create_topics::decide(&mut draft, topics, context))
        }
        Command::DeleteTopics { topics } => Reply::TopicsDeleted(delete_topics::decide(&mut draft, topics)),
        Command::CreatePartitions { topics, .. } => {
            Reply::PartitionsCreated(create_partitions::decide(&mut draft, topics))
        }
        Command::AlterConfigs { changes, .. } => {
            Reply::ConfigsAltered(alter_configs::decide(&mut draft, changes, context))
        }
        Command::AllocateProducerIds => Reply::ProducerIds(brokers::allocate_producer_ids(&mut draft)),
        Command::UnfenceBroker(life) => Reply::Broker(fencing::unfence(&mut draft, *life, context)),
        Command::FenceBroker(life) => Reply::Broker(fencing::fence(&mut draft, *life, context)),
        Command::ControlledShutdown(life) => {
            Reply::ShuttingDown(fencing::controlled_shutdown(&mut draft, *life, context))
        }
        Command::ReplicasUnable { partitions } => {
            unable::decide(&mut draft, partitions, context);
            Reply::ReplicasLeft
        }
        Command::AlterPartition { proposer, partitions } => {
            Reply::PartitionsAltered(alter_partition::decide(&mut draft, *proposer, partitions, context))
        }
        Command::ElectLeaders { kind, partitions } => {
            Reply::LeadersElected(elect_leaders::decide(&mut draft, *kind, partitions.as_deref(), context))
        }
        Command::AlterPartitionReassignments { reassignments, allow_replication_factor_change } => Reply::Reassigned(
            reassignment::decide(&mut draft, reassignments, *allow_replication_factor_change, context),
        ),
        Command::UnregisterBroker { broker_id } => Reply::Unregistered(brokers::unregister(&mut draft, *broker_id)),
    };
    let validate_only = match command {
        Command::CreateTopics { validate_only, .. }
        | Command::CreatePartitions { validate_only, .. }
        | Command::AlterConfigs { validate_only, .. } => *validate_only,
        _ => false,
    };
    Outcome { records: if validate_only { Vec::new() } else { draft.records }, reply }
}

/// What becomes of a partition of a topic; none: it stays as it is.
type Change<'a> = dyn Fn(&MetadataImage, (&TopicImage, &PartitionImage), &ElectionRules) -> Option<PartitionImage> + 'a;

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

    /// A new partition: the replicas that are at work are in sync, and the first of them leads.
    fn push_new_partition(&mut self, topic_id: Uuid, partition: usize, replicas: &[BrokerId]) {
        let live: Vec<i32> = replicas.iter().filter(|id| self.image.may_lead(**id)).map(|id| id.0).collect();
        self.push(Record::Partition(PartitionRecord {
            topic_id,
            partition: i32::try_from(partition).unwrap_or(i32::MAX),
            leader: live.first().copied().unwrap_or(-1),
            in_sync_replicas: live,
            replicas: replicas.iter().map(|id| id.0).collect(),
            ..PartitionRecord::default()
        }));
    }

    /// Changes each partition that `change` wants changed; it sees the image as it is before the first of them.
    fn change_partitions(&mut self, context: &Context<'_>, change: &Change<'_>) {
        let image = self.image.clone();
        for topic in image.topics() {
            let rules = (context.elections)(&image, &topic.config);
            for partition in &topic.partitions {
                if let Some(next) = change(&image, (topic, partition), &rules) {
                    self.push(Record::Partition(next.to_record(topic.id)));
                }
            }
        }
    }

    fn candidates(&self) -> Candidates<'_> {
        let of = |live: bool| {
            let brokers = self.image.brokers().filter(move |broker| broker.may_lead() == live);
            brokers.map(|broker| (broker.id, broker.rack.as_deref())).collect()
        };
        Candidates { live: of(true), others: of(false) }
    }
}

/// Whether the replicas that somebody chose can be: the fault in words.
fn assignment_fault(
    image: &MetadataImage,
    assignment: &[Vec<BrokerId>],
    replication_factor: Option<usize>,
) -> Option<String> {
    let wanted = replication_factor.or_else(|| assignment.first().map(Vec::len)).unwrap_or_default();
    for (index, replicas) in assignment.iter().enumerate() {
        if let Some(fault) = replicas_fault(image, replicas) {
            return Some(format!("assignment {index} {fault}"));
        }
        let list = || replicas.iter().map(|id| id.0).collect::<Vec<_>>();
        if replicas.len() != wanted {
            return Some(format!(
                "assignment {index} has replicas {:?}: must have {wanted}, as the other partitions have",
                list()
            ));
        }
        if !replicas.iter().any(|id| image.may_lead(*id)) {
            return Some(format!("assignment {index} has replicas {:?}: must name a broker that is at work", list()));
        }
    }
    None
}

/// What is wrong with one partition's replicas, as the end of the sentence "the assignment …"; none if nothing is.
fn replicas_fault(image: &MetadataImage, replicas: &[BrokerId]) -> Option<String> {
    if replicas.is_empty() {
        return Some("has no replicas: must name at least one broker".to_owned());
    }
    for (place, id) in replicas.iter().enumerate() {
        if replicas[..place].contains(id) {
            let list: Vec<i32> = replicas.iter().map(|id| id.0).collect();
            return Some(format!("has replicas {list:?}: must not name broker {} twice", id.0));
        }
        if image.broker(*id).is_none() {
            return Some(format!("names broker {}, which is not registered", id.0));
        }
    }
    None
}
