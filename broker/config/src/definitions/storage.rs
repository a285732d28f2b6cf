//! Broker settings of logs: most are the defaults of topic settings, under Kafka's older names.

use super::{Definition, Kind, Unit, Valid};

const FOREVER: &str = "9223372036854775807";

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::broker("log.dirs", Kind::List, None, "Directories for logs, one a disk, between commas."),
    Definition::broker(
        "log.dir",
        Kind::String,
        None,
        "A single directory for logs; `log.dirs` is used if both are given.",
    ),
    Definition::broker(
        "cordoned.log.dirs",
        Kind::List,
        Some(""),
        "Directories of `log.dirs` in which nothing new is placed, `*` for all: to be emptied, or to be left as they are. What is there is \
         served. A new replica for which there is no other directory is placed in one of them all the same, and the log says so.",
    )
    .cluster_wide(),
    Definition::broker(
        "num.replica.alter.log.dirs.threads",
        Kind::Int,
        None,
        "Replicas that are copied to another directory of this broker at the same time; absent: as many as there are directories. \
         Others wait for their turn.",
    )
    .at_least(1),
    Definition::broker(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Kind::Long,
        Some(FOREVER),
        "Bytes a second that this broker copies from one of its directories to another, all such moves together.",
    )
    .at_least(0)
    .bytes()
    .cluster_wide(),
    Definition::broker(
        "forebay.log.dir.reserve.bytes",
        Kind::Long,
        Some("268435456"),
        "Free space of a disk below which its partitions refuse records, so that retention and a restart still work.",
    )
    .at_least(0)
    .bytes(),
    Definition::broker(
        "forebay.log.dir.hung.ms",
        Kind::Int,
        Some("2000"),
        "A disk whose appends do not end for so long hangs: others lead and keep in sync what is there, until they end. Shorter than \
         broker.session.timeout.ms, because the broker itself is well; longer than a disk's hiccups. A flush that nobody waits for may take \
         five times as long.",
    )
    .at_least(100)
    .ms(),
    Definition::broker(
        "log.cleanup.policy",
        Kind::List,
        Some("delete"),
        "Default of the topic setting `cleanup.policy`.",
    )
    .valid(Valid::EachOf(&["compact", "delete"]))
    .cluster_wide(),
    Definition::broker(
        "log.segment.bytes",
        Kind::Int,
        Some("1073741824"),
        "Default of the topic setting `segment.bytes`.",
    )
    .at_least(1_048_576)
    .bytes()
    .cluster_wide(),
    Definition::broker(
        "log.roll.ms",
        Kind::Long,
        None,
        "Default of the topic setting `segment.ms`; absent: `log.roll.hours`.",
    )
    .at_least(1)
    .ms()
    .cluster_wide(),
    Definition::broker("log.roll.hours", Kind::Int, Some("168"), "As `log.roll.ms`, in hours.")
        .at_least(1)
        .unit(Unit::Hours),
    Definition::broker(
        "log.roll.jitter.ms",
        Kind::Long,
        None,
        "Default of the topic setting `segment.jitter.ms`; absent: `log.roll.jitter.hours`.",
    )
    .at_least(0)
    .ms()
    .cluster_wide(),
    Definition::broker("log.roll.jitter.hours", Kind::Int, Some("0"), "As `log.roll.jitter.ms`, in hours.")
        .at_least(0)
        .unit(Unit::Hours),
    Definition::broker(
        "log.retention.ms",
        Kind::Long,
        None,
        "Default of the topic setting `retention.ms`; absent: `log.retention.minutes`, then `log.retention.hours`.",
    )
    .at_least(-1)
    .ms()
    .cluster_wide(),
    Definition::broker("log.retention.minutes", Kind::Int, None, "As `log.retention.ms`, in minutes.")
        .at_least(-1)
        .unit(Unit::Minutes),
    Definition::broker("log.retention.hours", Kind::Int, Some("168"), "As `log.retention.ms`, in hours.")
        .at_least(-1)
        .unit(Unit::Hours),
    Definition::broker(
        "log.retention.bytes",
        Kind::Long,
        Some("-1"),
        "Default of the topic setting `retention.bytes`.",
    )
    .at_least(-1)
    .bytes()
    .cluster_wide(),
    Definition::broker(
        "log.retention.check.interval.ms",
        Kind::Long,
        Some("300000"),
        "How often retention looks for segments to remove.",
    )
    .at_least(1)
    .ms(),
    Definition::broker(
        "log.index.size.max.bytes",
        Kind::Int,
        Some("10485760"),
        "Default of the topic setting `segment.index.bytes`.",
    )
    .at_least(4)
    .bytes()
    .cluster_wide(),
    Definition::broker(
        "log.index.interval.bytes",
        Kind::Int,
        Some("4096"),
        "Default of the topic setting `index.interval.bytes`.",
    )
    .at_least(0)
    .bytes()
    .cluster_wide(),
    Definition::broker(
        "log.flush.interval.messages",
        Kind::Long,
        Some(FOREVER),
        "Default of the topic setting `flush.messages`.",
    )
    .at_least(1)
    .cluster_wide(),
    Definition::broker(
        "log.flush.interval.ms",
        Kind::Long,
        Some("50"),
        "Default of the topic setting `flush.ms`. Kafka's default is never.",
    )
    .at_least(0)
    .ms()
    .cluster_wide(),
    Definition::broker(
        "log.flush.scheduler.interval.ms",
        Kind::Long,
        None,
        "Default of `log.flush.interval.ms` where that is absent.",
    )
    .at_least(0)
    .ms(),
    Definition::broker(
        "log.flush.offset.checkpoint.interval.ms",
        Kind::Int,
        Some("60000"),
        "How often the offsets are noted from which recovery starts.",
    )
    .at_least(0)
    .ms(),
    Definition::broker(
        "log.segment.delete.delay.ms",
        Kind::Long,
        Some("60000"),
        "Default of the topic setting `file.delete.delay.ms`.",
    )
    .at_least(0)
    .ms()
    .cluster_wide(),
    Definition::broker("log.preallocate", Kind::Boolean, Some("false"), "Default of the topic setting `preallocate`.")
        .cluster_wide(),
    Definition::broker(
        "log.initial.task.delay.ms",
        Kind::Long,
        Some("30000"),
        "How long after the start retention and compaction first run.",
    )
    .at_least(0)
    .ms(),
    Definition::broker(
        "log.message.timestamp.type",
        Kind::String,
        Some("CreateTime"),
        "Default of the topic setting `message.timestamp.type`.",
    )
    .valid(Valid::OneOf(&["CreateTime", "LogAppendTime"]))
    .cluster_wide(),
    Definition::broker(
        "log.message.timestamp.before.max.ms",
        Kind::Long,
        Some(FOREVER),
        "Default of the topic setting `message.timestamp.before.max.ms`.",
    )
    .at_least(0)
    .ms()
    .cluster_wide(),
    Definition::broker(
        "log.message.timestamp.after.max.ms",
        Kind::Long,
        Some("3600000"),
        "Default of the topic setting `message.timestamp.after.max.ms`.",
    )
    .at_least(0)
    .ms()
    .cluster_wide(),
    Definition::broker(
        "log.cleaner.min.cleanable.ratio",
        Kind::Double,
        Some("0.5"),
        "Default of the topic setting `min.cleanable.dirty.ratio`.",
    )
    .valid(Valid::Ratio)
    .cluster_wide(),
    Definition::broker(
        "log.cleaner.delete.retention.ms",
        Kind::Long,
        Some("86400000"),
        "Default of the topic setting `delete.retention.ms`.",
    )
    .at_least(0)
    .ms()
    .cluster_wide(),
    Definition::broker(
        "log.cleaner.min.compaction.lag.ms",
        Kind::Long,
        Some("0"),
        "Default of the topic setting `min.compaction.lag.ms`.",
    )
    .at_least(0)
    .ms()
    .cluster_wide(),
    Definition::broker(
        "log.cleaner.max.compaction.lag.ms",
        Kind::Long,
        Some(FOREVER),
        "Default of the topic setting `max.compaction.lag.ms`.",
    )
    .at_least(1)
    .ms()
    .cluster_wide(),
    Definition::broker(
        "producer.id.expiration.ms",
        Kind::Int,
        Some("86400000"),
        "An idempotent producer that is silent for so long is forgotten.",
    )
    .at_least(1)
    .ms()
    .cluster_wide(),
];
