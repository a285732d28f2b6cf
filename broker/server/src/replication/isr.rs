//! Changes of ISRs: what partitions propose goes to the controller, many at a time, and its answers go back.
//!
//! What must hold: one command is under way at a time, so proposals of one partition arrive in their order; no answer counts as unknown,
//! and the partition says what to do about that; followers are looked at a few times within `replica.lag.time.max.ms`.

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_machines::metadata::{
    AlterPartitionError, AlteredPartition, BrokerLife, Command, PartitionProposal, Reply,
};
use forebay_broker_partition::{IsrAnswer, IsrProposal};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::io::append::now_ms;
use crate::partitions::Hosted;

/// Proposals in one command.
const BATCH_MAX: usize = 500;
/// Looks at the followers within the time that they may lag.
const LOOKS_PER_LAG_TIME: u64 = 4;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(10);
/// Pauses when the controller gives no answer.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Proposals on their way to the task. As many as there are partitions, since each has one at a time.
#[derive(Default)]
pub(crate) struct Proposals {
    waiting: Mutex<Vec<(Arc<Hosted>, IsrProposal)>>,
    wake: Notify,
}

impl Proposals {
    /// Takes a partition's proposal, if it has one.
    pub(crate) fn take_from(&self, hosted: &Arc<Hosted>) {
        if let Some(proposal) = hosted.partition.take_isr_proposal() {
            self.waiting.lock().push((Arc::clone(hosted), proposal));
            self.wake.notify_one();
        }
    }

    fn next_batch(&self) -> Vec<(Arc<Hosted>, IsrProposal)> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(BATCH_MAX);
        waiting.drain(..count).collect()
    }
}

/// Runs until stopped.
pub(super) async fn run(broker: Arc<Broker>, stop: CancellationToken) {
    let lag_time = Duration::from_millis(broker.config.replica.lag_time_max_ms / LOOKS_PER_LAG_TIME);
    let look_every = lag_time.clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
    let mut look_at = Instant::now() + look_every;
    let mut pause = PAUSE_MIN;
    loop {
        tokio::select! {
            () = broker.replication.proposals.wake.notified() => {}
            () = sleep_until(look_at) => {
                look(&broker).await;
                look_at = Instant::now() + look_every;
            }
            () = stop.cancelled() => return,
        }
        loop {
            let batch = broker.replication.proposals.next_batch();
            if batch.is_empty() {
                break;
            }
            let answered = tokio::select! {
                answered = propose(&broker, batch) => answered,
                () = stop.cancelled() => return,
            };
            pause = if answered { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            if !answered {
                sleep(pause).await;
            }
        }
    }
}

/// Looks for followers that lag, and for partitions that may be opened by now.
async fn look(broker: &Arc<Broker>) {
    for hosted in broker.partitions.all() {
        hosted.partition.check_followers(now_ms());
        broker.replication.proposals.take_from(&hosted);
    }
    if broker.partitions.failed() > 0 {
        broker.follow_again().await;
    }
}

/// Gives whether there was an answer.
async fn propose(broker: &Arc<Broker>, batch: Vec<(Arc<Hosted>, IsrProposal)>) -> bool {
    let named = batch.iter().map(|(hosted, proposal)| PartitionProposal {
        topic_id: hosted.topic_id,
        partition: hosted.index,
        proposal: proposal.clone(),
    });
    let proposer = BrokerLife { broker_id: broker.id(), broker_epoch: broker.broker_epoch() };
    let reply = broker.submit(Command::AlterPartition { proposer, partitions: named.collect() }).await;
    let answers: Vec<_> = match reply {
        Ok(Reply::PartitionsAltered(answers)) if answers.len() == batch.len() => {
            answers.into_iter().map(answer_of).collect()
        }
        Ok(other) => {
            tracing::error!(?other, "a change of in-sync replicas was answered by something else");
            Vec::new()
        }
        Err(error) => {
            tracing::info!(%error, partitions = batch.len(), "no answer to a change of in-sync replicas");
            Vec::new()
        }
    };
    let answered = !answers.is_empty();
    let answers = answers.into_iter().chain(std::iter::repeat(IsrAnswer::Unknown));
    for ((hosted, proposal), answer) in batch.into_iter().zip(answers) {
        if let IsrAnswer::Accepted { in_sync_replicas, .. } = &answer {
            tracing::info!(topic = %hosted.topic, partition = %hosted.index, ?in_sync_replicas, "in-sync replicas");
        }
        hosted.partition.isr_answered(proposal, answer, now_ms());
        broker.replication.proposals.take_from(&hosted);
    }
    answered
}

fn answer_of(result: Result<AlteredPartition, AlterPartitionError>) -> IsrAnswer {
    match result {
        Ok(partition) => IsrAnswer::Accepted {
            partition_epoch: partition.partition_epoch,
            in_sync_replicas: partition.in_sync_replicas,
            may_lead_out_of_sync: partition.may_lead_out_of_sync,
        },
        Err(error @ (AlterPartitionError::NotReplicas { .. } | AlterPartitionError::Ineligible { .. })) => {
            tracing::info!(%error, "a change of in-sync replicas was refused");
            IsrAnswer::Refused
        }
        // The metadata says what has changed, or will.
        Err(_) => IsrAnswer::Stale,
    }
}
