//! AlterReplicaLogDirs: replicas move to other log dirs of this broker. That a move is taken does not say that it is done: DescribeLogDirs
//! says what is on its way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_broker_wire::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
};
use forebay_broker_wire::types::{ErrorCode, PartitionIndex, Str, Uuid};

use super::error_code::Failure;
use super::lookup::find_topic;
use super::repeated::Repeated;
use super::request::RequestContext;
use crate::broker::Broker;
use crate::log_dirs::cordoned::Cordoned;
use crate::partitions::{Hosted, HostedDir};

/// Codes by topic and partition.
type Results = BTreeMap<Str, BTreeMap<i32, ErrorCode>>;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let asked = request.clone();
    let working = Arc::clone(broker);
    // A move that is called off may be changing hands, which has to be waited for.
    let work = tokio::task::spawn_blocking(move || alter(&working, &request));
    let results = work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "moving replicas to other log dirs failed");
        let failed = each(&asked).map(|(_, topic, index)| (topic.clone(), index, ErrorCode::UnknownServerError));
        collect(failed)
    });
    let of = |(topic_name, partitions): (Str, BTreeMap<i32, ErrorCode>)| AlterReplicaLogDirTopicResult {
        topic_name,
        partitions: partitions.into_iter().map(|(partition_index, code)| answer(partition_index, code)).collect(),
    };
    AlterReplicaLogDirsResponse {
        results: results.into_iter().map(of).collect(),
        ..AlterReplicaLogDirsResponse::default()
    }
}

fn answer(partition_index: i32, code: ErrorCode) -> AlterReplicaLogDirPartitionResult {
    AlterReplicaLogDirPartitionResult { partition_index, error_code: code.code() }
}

fn each(request: &AlterReplicaLogDirsRequest) -> impl Iterator<Item = (&AlterReplicaLogDir, &Str, i32)> {
    request.dirs.iter().flat_map(|dir| {
        dir.topics.iter().flat_map(move |topic| topic.partitions.iter().map(move |index| (dir, &topic.name, *index)))
    })
}

fn collect(all: impl Iterator<Item = (Str, i32, ErrorCode)>) -> Results {
    let mut results = Results::new();
    for (topic, index, code) in all {
        results.entry(topic).or_default().insert(index, code);
    }
    results
}

fn alter(broker: &Arc<Broker>, request: &AlterReplicaLogDirsRequest) -> Results {
    let repeated = Repeated::among(each(request).map(|(_, topic, index)| (&**topic, index)));
    let cordoned = Cordoned::of(&broker.config, &broker.metadata.image());
    collect(each(request).map(|(dir, topic, index)| {
        let once = repeated.refuse((&**topic, index), "partition");
        let result = once.and_then(|()| alter_one(broker, &dir.path, topic, index, &cordoned));
        if let Err(failure) = &result {
            tracing::debug!(%topic, partition = index, dir = %dir.path, failure.message, "a replica is not moved");
        }
        (topic.clone(), index, result.map_or_else(|failure| failure.code, |()| ErrorCode::None))
    }))
}

fn alter_one(broker: &Arc<Broker>, path: &str, topic: &Str, index: i32, cordoned: &Cordoned) -> Result<(), Failure> {
    let target = find_dir(broker, Path::new(path))?;
    let hosted = find_replica(broker, topic, PartitionIndex(index))?;
    if cordoned.has(target.log_dir.path()) && !Arc::ptr_eq(&hosted.dir(), target) {
        let message = format!("log dir {path} is cordoned: nothing new comes to it");
        return Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message));
    }
    broker.moves.ask(broker, &hosted, target);
    Ok(())
}

fn find_dir<'a>(broker: &'a Broker, path: &Path) -> Result<&'a Arc<HostedDir>, Failure> {
    let offline = || Failure::new(ErrorCode::KafkaStorageError, format!("log dir {} takes no writes", path.display()));
    match broker.partitions.dirs.iter().find(|dir| dir.log_dir.path() == path) {
        Some(dir) if dir.is_out() => Err(offline()),
        Some(dir) => Ok(dir),
        None if broker.failed_dirs.iter().any(|dir| dir.path == path) => Err(offline()),
        None => {
            let message = format!("{} is not in log.dirs of this broker", path.display());
            Err(Failure::new(ErrorCode::LogDirNotFound, message))
        }
    }
}

fn find_replica(broker: &Broker, name: &Str, index: PartitionIndex) -> Result<Arc<Hosted>, Failure> {
    let none = || {
        let message = format!("this broker has no replica of partition {index} of topic '{}'", &**name);
        Failure::new(ErrorCode::ReplicaNotAvailable, message)
    };
    let topic = find_topic(broker, name, Uuid::ZERO).map_err(|_unknown| none())?;
    let hosted = topic.partition(broker, index).map_err(|failure| match failure.code {
        // It has one and can't serve it.
        ErrorCode::KafkaStorageError => failure,
        _ => none(),
    })?;
    if hosted.dir().is_out() {
        let message = format!("log dir {} takes no writes", hosted.dir().log_dir.path().display());
        return Err(Failure::new(ErrorCode::KafkaStorageError, message));
    }
    Ok(hosted)
}
