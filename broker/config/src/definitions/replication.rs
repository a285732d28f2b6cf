//! Broker settings of replication, groups and their offsets.

use super::{Definition, Kind, Unit, Valid};

pub(super) const DEFINITIONS: &[Definition] = &[
    // Replication
    Definition::broker("min.insync.replicas", Kind::Int, Some("1"), "Default of the topic setting `min.insync.replicas`.").at_least(1).cluster_wide(),
    Definition::broker("unclean.leader.election.enable", Kind::Boolean, Some("false"), "Default of the topic setting `unclean.leader.election.enable`.").cluster_wide(),
    Definition::broker("num.replica.fetchers", Kind::Int, Some("1"), "Connections to each other broker for replication; partitions are spread over them.").at_least(1),
    Definition::broker("replica.fetch.min.bytes", Kind::Int, Some("1"), "The least a follower's fetch waits for.").at_least(0).bytes(),
    Definition::broker("replica.fetch.wait.max.ms", Kind::Int, Some("500"), "The longest a follower's fetch waits.").at_least(0).ms(),
    Definition::broker("replica.fetch.max.bytes", Kind::Int, Some("1048576"), "The most a follower's fetch asks of one partition.").at_least(0).bytes(),
    Definition::broker("replica.fetch.response.max.bytes", Kind::Int, Some("10485760"), "The most a follower's fetch asks in all.").at_least(0).bytes(),
    Definition::broker("replica.fetch.backoff.ms", Kind::Int, Some("1000"), "How long a follower waits after a failed fetch.").at_least(0).ms(),
    Definition::broker("replica.lag.time.max.ms", Kind::Long, Some("30000"), "A follower that has not caught up for so long leaves the in-sync replicas.").at_least(1).ms(),
    Definition::broker("replica.selector.class", Kind::String, None, "Set, consumers are sent to an in-sync replica in their own `client.rack`; unset, they read from leaders.")
        .valid(Valid::OneOf(&["org.apache.kafka.common.replica.RackAwareReplicaSelector"])),
    Definition::broker("replica.socket.timeout.ms", Kind::Int, Some("10000"), "How long a follower waits for an answer before it dials again (Kafka: 30000).").at_least(1).ms(),
    Definition::broker("leader.replication.throttled.rate", Kind::Long, Some("9223372036854775807"), "Bytes a second that this broker sends to replicas that a topic's `leader.replication.throttled.replicas` names and that are not in sync.").at_least(0).bytes().cluster_wide(),
    Definition::broker("follower.replication.throttled.rate", Kind::Long, Some("9223372036854775807"), "Bytes a second that this broker fetches for replicas that a topic's `follower.replication.throttled.replicas` names and that are not in sync.").at_least(0).bytes().cluster_wide(),
    // Groups
    Definition::broker("group.initial.rebalance.delay.ms", Kind::Int, Some("3000"), "How long the first rebalance of an empty group waits for more members.").at_least(0).ms(),
    Definition::broker("group.min.session.timeout.ms", Kind::Int, Some("6000"), "The shortest session timeout a member may ask.").at_least(1).ms(),
    Definition::broker("group.max.session.timeout.ms", Kind::Int, Some("1800000"), "The longest session timeout a member may ask.").at_least(1).ms(),
    Definition::broker("group.max.size", Kind::Int, Some("2147483647"), "Members of one group; further ones are refused.").at_least(1),
    // Offsets
    Definition::broker("offsets.topic.num.partitions", Kind::Int, Some("50"), "Partitions of `__consumer_offsets`; counts only when it is created.").valid(Valid::Range(1, 10_000)),
    Definition::broker("offsets.topic.replication.factor", Kind::Short, Some("3"), "Replicas of `__consumer_offsets`, or as many as there are brokers if that is fewer; counts only when it is created.")
        .valid(Valid::Range(1, 32_767)),
    Definition::broker("offsets.topic.segment.bytes", Kind::Int, Some("104857600"), "Segment size of `__consumer_offsets`.").at_least(1_048_576).bytes(),
    Definition::broker("offsets.retention.minutes", Kind::Int, Some("10080"), "Offsets of a group without members are forgotten after this.").at_least(1).unit(Unit::Minutes),
    Definition::broker("offsets.retention.check.interval.ms", Kind::Long, Some("600000"), "How often offsets to forget are looked for.").at_least(1).ms(),
    Definition::broker("offset.metadata.max.bytes", Kind::Int, Some("4096"), "The longest text a client may commit beside an offset.").at_least(0).bytes(),
];
