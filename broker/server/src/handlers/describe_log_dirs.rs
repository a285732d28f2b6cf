//! DescribeLogDirs: what each disk holds, and how much room is left on it. Sizes are known in memory: nobody walks a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_broker_wire::messages::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};
use forebay_broker_wire::types::{ErrorCode, Str};

use super::request::RequestContext;
use crate::broker::Broker;
use crate::log_dirs::FailedDir;
use crate::log_dirs::cordoned::Cordoned;
use crate::moves::Move;
use crate::partitions::{Hosted, HostedDir};

/// "Not known", by the protocol.
const UNKNOWN_BYTES: i64 = -1;

pub(super) async fn handle(
    broker: &Arc<Broker>,
    _: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let working = Arc::clone(broker);
    // Asking a file system for its space may block.
    let work = tokio::task::spawn_blocking(move || describe(&working, request.topics.as_deref()));
    match work.await {
        Ok(results) => DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() },
        Err(error) => {
            tracing::error!(%error, "describing log dirs failed");
            let error_code = ErrorCode::UnknownServerError.code();
            DescribeLogDirsResponse { error_code, ..DescribeLogDirsResponse::default() }
        }
    }
}

fn describe(broker: &Broker, asked: Option<&[DescribableLogDirTopic]>) -> Vec<DescribeLogDirsResult> {
    let all = broker.partitions.all();
    let asked = asked.map(|topics| {
        topics.iter().flat_map(|topic| topic.partitions.iter().map(|index| (&*topic.topic, *index))).collect()
    });
    let cordoned = Cordoned::of(&broker.config, &broker.metadata.image());
    let describe = |dir: &Arc<HostedDir>| DescribeLogDirsResult {
        is_cordoned: cordoned.has(dir.log_dir.path()),
        ..describe_dir(dir, &all, &broker.moves.to(dir), asked.as_ref())
    };
    let used = broker.partitions.dirs.iter().map(describe);
    used.chain(broker.failed_dirs.iter().map(describe_failed)).collect()
}

fn describe_failed(dir: &FailedDir) -> DescribeLogDirsResult {
    DescribeLogDirsResult {
        error_code: ErrorCode::KafkaStorageError.code(),
        log_dir: dir.path.display().to_string().into(),
        total_bytes: UNKNOWN_BYTES,
        usable_bytes: UNKNOWN_BYTES,
        ..DescribeLogDirsResult::default()
    }
}

fn describe_dir(
    dir: &Arc<HostedDir>,
    all: &[Arc<Hosted>],
    moves: &[Arc<Move>],
    asked: Option<&BTreeSet<(&str, i32)>>,
) -> DescribeLogDirsResult {
    let wanted = |hosted: &&Arc<Hosted>| asked.is_none_or(|asked| asked.contains(&(&*hosted.topic, hosted.index.0)));
    let here = all.iter().filter(|hosted| Arc::ptr_eq(&hosted.dir(), dir)).filter(wanted);
    let mut topics: BTreeMap<&str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for hosted in here {
        topics.entry(&hosted.topic).or_default().push(DescribeLogDirsPartition {
            partition_index: hosted.index.0,
            partition_size: bytes(hosted.partition.size_bytes()),
            offset_lag: 0,
            is_future_key: false,
        });
    }
    for one in moves.iter().filter(|one| wanted(&&one.hosted)) {
        topics.entry(&one.hosted.topic).or_default().push(DescribeLogDirsPartition {
            partition_index: one.hosted.index.0,
            partition_size: bytes(one.copied_bytes()),
            offset_lag: one.lag(),
            is_future_key: true,
        });
    }
    let space = dir.log_dir.refresh_space().ok();
    let poisoned = dir.log_dir.poisoned().is_some();
    DescribeLogDirsResult {
        error_code: if poisoned { ErrorCode::KafkaStorageError.code() } else { 0 },
        log_dir: dir.log_dir.path().display().to_string().into(),
        topics: topics
            .into_iter()
            .map(|(name, partitions)| DescribeLogDirsTopic { name: Str::from(name), partitions })
            .collect(),
        total_bytes: space.as_ref().map_or(UNKNOWN_BYTES, |space| bytes(space.total_bytes)),
        usable_bytes: space.as_ref().map_or(UNKNOWN_BYTES, |space| bytes(space.free_bytes)),
        is_cordoned: false,
    }
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
