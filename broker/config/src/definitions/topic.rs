//! Topic settings, sorted by name.

use super::{Definition, Kind, Valid};

const FOREVER: &str = "9223372036854775807";

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::topic(
        "cleanup.policy",
        Kind::List,
        "delete",
        &[("log.cleanup.policy", 1)],
        "What happens to old segments: `delete` drops them by age and size, `compact` keeps the last record of each key, both do both.",
    )
    .valid(Valid::EachOf(&["compact", "delete"])),
    Definition::topic(
        "compression.type",
        Kind::String,
        "producer",
        &[("compression.type", 1)],
        "How batches are stored; `producer` keeps them as they came, which costs the broker nothing.",
    )
    .valid(Valid::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])),
    Definition::topic(
        "delete.retention.ms",
        Kind::Long,
        "86400000",
        &[("log.cleaner.delete.retention.ms", 1)],
        "How long a tombstone stays readable in a compacted topic.",
    )
    .at_least(0)
    .ms(),
    Definition::topic(
        "file.delete.delay.ms",
        Kind::Long,
        "60000",
        &[("log.segment.delete.delay.ms", 1)],
        "How long a removed segment's files stay on disk, for readers that still hold them.",
    )
    .at_least(0)
    .ms(),
    Definition::topic(
        "flush.messages",
        Kind::Long,
        FOREVER,
        &[("log.flush.interval.messages", 1)],
        "Flush to disk after this many records; 1 acknowledges only what the disk has confirmed.",
    )
    .at_least(1),
    Definition::topic(
        "flush.ms",
        Kind::Long,
        "50",
        &[("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)],
        "The most a power cut can take from one replica; flushes of a disk are grouped. Kafka's default is never.",
    )
    .at_least(0)
    .ms(),
    Definition::topic(
        "follower.replication.throttled.replicas",
        Kind::List,
        "",
        &[],
        "Replicas whose fetching is throttled: partition:broker pairs, or `*` for all.",
    )
    .valid(Valid::Form(throttled, "partition:broker pairs between commas, `*`, or nothing")),
    Definition::topic(
        "index.interval.bytes",
        Kind::Int,
        "4096",
        &[("log.index.interval.bytes", 1)],
        "An index entry is written for every so many bytes of log.",
    )
    .at_least(0)
    .bytes(),
    Definition::topic(
        "leader.replication.throttled.replicas",
        Kind::List,
        "",
        &[],
        "Replicas whose serving is throttled: partition:broker pairs, or `*` for all.",
    )
    .valid(Valid::Form(throttled, "partition:broker pairs between commas, `*`, or nothing")),
    Definition::topic(
        "max.compaction.lag.ms",
        Kind::Long,
        FOREVER,
        &[("log.cleaner.max.compaction.lag.ms", 1)],
        "The longest a record stays out of reach of compaction.",
    )
    .at_least(1)
    .ms(),
    Definition::topic(
        "max.message.bytes",
        Kind::Int,
        "1048588",
        &[("message.max.bytes", 1)],
        "The largest record batch taken, compressed as it comes.",
    )
    .at_least(0)
    .bytes(),
    Definition::topic(
        "message.timestamp.after.max.ms",
        Kind::Long,
        "3600000",
        &[("log.message.timestamp.after.max.ms", 1)],
        "How far a record's timestamp may be ahead of the broker's clock.",
    )
    .at_least(0)
    .ms(),
    Definition::topic(
        "message.timestamp.before.max.ms",
        Kind::Long,
        FOREVER,
        &[("log.message.timestamp.before.max.ms", 1)],
        "How far a record's timestamp may be behind the broker's clock.",
    )
    .at_least(0)
    .ms(),
    Definition::topic(
        "message.timestamp.type",
        Kind::String,
        "CreateTime",
        &[("log.message.timestamp.type", 1)],
        "Whose clock a record's timestamp is from: the producer's or the broker's.",
    )
    .valid(Valid::OneOf(&["CreateTime", "LogAppendTime"])),
    Definition::topic(
        "min.cleanable.dirty.ratio",
        Kind::Double,
        "0.5",
        &[("log.cleaner.min.cleanable.ratio", 1)],
        "The part of a compacted log that must be uncompacted before compaction is worth its reads and writes.",
    )
    .valid(Valid::Ratio),
    Definition::topic(
        "min.compaction.lag.ms",
        Kind::Long,
        "0",
        &[("log.cleaner.min.compaction.lag.ms", 1)],
        "The shortest a record stays uncompacted.",
    )
    .at_least(0)
    .ms(),
    Definition::topic(
        "min.insync.replicas",
        Kind::Int,
        "1",
        &[("min.insync.replicas", 1)],
        "With acks=all: fewer in-sync replicas than this and producers get NOT_ENOUGH_REPLICAS.",
    )
    .at_least(1),
    Definition::topic(
        "preallocate",
        Kind::Boolean,
        "false",
        &[("log.preallocate", 1)],
        "Whether a new segment gets its disk space at once.",
    ),
    Definition::topic(
        "retention.bytes",
        Kind::Long,
        "-1",
        &[("log.retention.bytes", 1)],
        "Old segments of a partition go when the rest is still this large; -1 is no limit.",
    )
    .at_least(-1)
    .bytes(),
    Definition::topic(
        "retention.ms",
        Kind::Long,
        "604800000",
        &[("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)],
        "Segments go when their newest record is this old; -1 is never.",
    )
    .at_least(-1)
    .ms(),
    Definition::topic(
        "segment.bytes",
        Kind::Int,
        "1073741824",
        &[("log.segment.bytes", 1)],
        "The size at which a new segment file is begun.",
    )
    .at_least(1_048_576)
    .bytes(),
    Definition::topic(
        "segment.index.bytes",
        Kind::Int,
        "10485760",
        &[("log.index.size.max.bytes", 1)],
        "The most an index of one segment takes; a full index begins a new segment.",
    )
    .at_least(4)
    .bytes(),
    Definition::topic(
        "segment.jitter.ms",
        Kind::Long,
        "0",
        &[("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)],
        "Taken at random off `segment.ms`, so that many segments do not roll together.",
    )
    .at_least(0)
    .ms(),
    Definition::topic(
        "segment.ms",
        Kind::Long,
        "604800000",
        &[("log.roll.ms", 1), ("log.roll.hours", 3_600_000)],
        "The age at which a new segment file is begun even if the old one is not full.",
    )
    .at_least(1)
    .ms(),
    Definition::topic(
        "unclean.leader.election.enable",
        Kind::Boolean,
        "false",
        &[("unclean.leader.election.enable", 1)],
        "Whether a replica that is not in sync may lead, losing acknowledged records.",
    ),
];

/// `*`, nothing, or `partition:broker` pairs.
fn throttled(value: &str) -> bool {
    let pair = |item: &str| {
        item.split_once(':')
            .is_some_and(|(partition, broker)| partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok())
    };
    value.is_empty() || value == "*" || value.split(',').all(|item| pair(item.trim()))
}
