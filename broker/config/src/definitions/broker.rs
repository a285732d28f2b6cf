//! Broker settings: identity, listeners, threads, bounds, topics' creation.

use super::{Definition, Kind, Valid};

const INT_MAX: &str = "2147483647";
/// More threads than any machine of today has use for.
const THREADS: Valid = Valid::Range(1, 1024);

pub(super) const DEFINITIONS: &[Definition] = &[
    // Identity
    Definition::broker("node.id", Kind::Int, None, "This broker's id; must stay the same for the life of its disks.").at_least(0),
    Definition::broker("broker.id", Kind::Int, None, "Older name of `node.id`; if both are given they must agree.").at_least(0),
    Definition::broker("broker.rack", Kind::String, None, "Where the broker is: replicas are spread over racks, consumers fetch from their own."),
    Definition::broker("forebay.cluster.id", Kind::String, None, "The id this broker's cluster must have; without it the first start makes one. Must be given with `controller.quorum.voters`. Disks of another cluster are refused.")
        .valid(Valid::Form(is_cluster_id, "22 characters of url-safe base64, as `kafka-storage random-uuid` prints")),
    // Listeners
    Definition::broker("listeners", Kind::List, Some("PLAINTEXT://:9092"), "Where the broker listens: NAME://host:port between commas; an empty host is all interfaces.")
        .valid(Valid::NotEmpty),
    Definition::broker("advertised.listeners", Kind::List, None, "Where clients are told to connect, for each listener name; default: `listeners`. While the broker runs it can be changed for listeners that only clients use; those not named then keep what the file says.")
        .per_broker(),
    Definition::broker("forebay.listeners.without.address", Kind::List, None, "Those of `listeners` whose address is not known at the start: it comes as a change of `advertised.listeners` while the broker runs. Until then clients that come in there are told of no such broker."),
    Definition::broker("listener.security.protocol.map", Kind::List, Some("PLAINTEXT:PLAINTEXT"), "The security protocol of each listener name; PLAINTEXT is the only one yet."),
    Definition::broker("inter.broker.listener.name", Kind::String, None, "The listener that replicas are fetched from; default: the first that is not the controller's."),
    Definition::broker("controller.quorum.voters", Kind::List, None, "The brokers that vote on metadata, 1, 3 or 5 as id@host:port of their controller listeners; the same on every broker of the cluster, voter or not. Without it the broker is a cluster of its own."),
    Definition::broker("controller.listener.names", Kind::List, Some("CONTROLLER"), "The one of `listeners` that only other brokers use, for the metadata quorum; counts only with `controller.quorum.voters`."),
    Definition::broker("metadata.log.max.record.bytes.between.snapshots", Kind::Long, Some("4194304"), "The metadata log is replaced by a snapshot when it is so long, and four times as long as the snapshot before. Kafka's default is 20971520.").at_least(1).bytes(),
    Definition::broker("forebay.http.listener", Kind::String, Some("127.0.0.1:9644"), "Where /metrics, /livez, /readyz and /status are served.")
        .valid(Valid::Form(is_address, "host:port")),
    // Threads
    Definition::broker("num.network.threads", Kind::Int, None, "Threads that serve connections; default: the cores the container may use, at most 6.").valid(THREADS),
    Definition::broker("num.io.threads", Kind::Int, None, "Threads that write to disk and read what memory does not hold; default: the cores the container may use, 2 to 16.").valid(THREADS),
    Definition::broker("num.recovery.threads.per.data.dir", Kind::Int, Some("2"), "Threads for each log dir that open logs, check them after an unclean stop, and close them.").valid(THREADS),
    Definition::broker("background.threads", Kind::Int, Some("2"), "Threads for retention, compaction and deletion. Kafka's default is 10.").valid(THREADS),
    // Bounds
    Definition::broker("queued.max.requests", Kind::Int, Some("500"), "Requests of one connection that may wait for an answer before the broker stops reading from it.").at_least(1),
    Definition::broker("queued.max.request.bytes", Kind::Long, Some("134217728"), "Bytes of requests in work, over all connections, before the broker stops reading. Kafka's default is no limit.")
        .at_least(1_048_576).bytes(),
    Definition::broker("socket.request.max.bytes", Kind::Int, Some("104857600"), "The largest request taken.").at_least(1024).bytes(),
    Definition::broker("socket.send.buffer.bytes", Kind::Int, Some("-1"), "SO_SNDBUF of client connections; -1 leaves it to the system. Kafka's default is 102400.").at_least(-1).bytes(),
    Definition::broker("socket.receive.buffer.bytes", Kind::Int, Some("-1"), "SO_RCVBUF of client connections; -1 leaves it to the system. Kafka's default is 102400.").at_least(-1).bytes(),
    Definition::broker("socket.listen.backlog.size", Kind::Int, Some("1024"), "Connections that may wait to be accepted. Kafka's default is 50.").at_least(1),
    Definition::broker("max.connections", Kind::Int, None, "Connections in all; further ones are closed at once. Default: half of the files the broker may have open, so that logs get theirs.").at_least(1),
    Definition::broker("max.connections.per.ip", Kind::Int, Some(INT_MAX), "Connections from one address; further ones are closed at once.").at_least(1),
    Definition::broker("connections.max.idle.ms", Kind::Long, Some("600000"), "A connection without a request for so long is closed.").at_least(1).ms(),
    Definition::broker("fetch.max.bytes", Kind::Int, Some("57671680"), "The most one fetch response carries, whatever the request asks.").at_least(1024).bytes(),
    Definition::broker("max.incremental.fetch.session.cache.slots", Kind::Int, Some("1000"), "Fetch sessions kept: clients in one send and get only what changed. Without a slot they fetch as ever.").at_least(0),
    Definition::broker("forebay.ulimit.nofile", Kind::Long, None, "Open files wanted; the broker raises its limit as far as it may and reports what it got.").at_least(1024),
    // Topics
    Definition::broker("auto.create.topics.enable", Kind::Boolean, Some("true"), "Whether asking for a topic that does not exist creates it."),
    Definition::broker("delete.topic.enable", Kind::Boolean, Some("true"), "Whether topics can be deleted."),
    Definition::broker("num.partitions", Kind::Int, Some("1"), "Partitions of a topic that is created without saying how many.").at_least(1).cluster_wide(),
    Definition::broker("default.replication.factor", Kind::Int, Some("1"), "Replicas of a topic that is created without saying how many.").at_least(1).cluster_wide(),
    Definition::broker("message.max.bytes", Kind::Int, Some("1048588"), "Default of the topic setting `max.message.bytes`.").at_least(0).bytes().cluster_wide(),
    Definition::broker("compression.type", Kind::String, Some("producer"), "Default of the topic setting `compression.type`.")
        .valid(Valid::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])).cluster_wide(),
];

fn is_cluster_id(value: &str) -> bool {
    value.len() == 22 && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn is_address(value: &str) -> bool {
    value.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
