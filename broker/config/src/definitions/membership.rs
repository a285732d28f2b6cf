//! Broker settings of its life in a cluster: sessions with the controller, stopping in order, preferred leaders.

use super::{Definition, Kind, Valid};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::broker("broker.session.timeout.ms", Kind::Int, Some("3000"), "A broker that the controller hears nothing of for so long is fenced; one whose process is gone is fenced at once. Kafka's default is 9000.")
        .at_least(100).ms(),
    Definition::broker("broker.heartbeat.interval.ms", Kind::Int, Some("500"), "How often a broker tells the controller that it is there. Kafka's default is 2000.").at_least(10).ms(),
    Definition::broker("controlled.shutdown.enable", Kind::Boolean, Some("true"), "Whether leaders move away before a broker stops."),
    Definition::broker("controlled.shutdown.max.retries", Kind::Int, Some("3"), "How often a stopping broker tries again to hand over partitions whose other replicas are not in sync.").at_least(0),
    Definition::broker("controlled.shutdown.retry.backoff.ms", Kind::Long, Some("1000"), "How long it waits before it tries again. Kafka's default was 5000.").at_least(1).ms(),
    Definition::broker("auto.leader.rebalance.enable", Kind::Boolean, Some("true"), "Whether preferred leaders get their partitions back."),
    Definition::broker("leader.imbalance.check.interval.seconds", Kind::Long, Some("5"), "How long after a change the controller looks whether preferred leaders can have their partitions back. Kafka's default is 300.")
        .at_least(1),
    Definition::broker("leader.imbalance.per.broker.percentage", Kind::Int, Some("0"), "A broker gets its partitions back when others lead more than this share of those that prefer it. Kafka's default is 10.")
        .valid(Valid::Range(0, 100)),
];
