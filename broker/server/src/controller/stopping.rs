//! A stop in order: the leaders move away first, clients hear where they are, and only then connections close.
//!
//! What must hold: a stop ends. What nobody else could lead is given a few tries and then left; a quorum that does not answer is not
//! waited for.

use std::sync::Arc;
use std::time::Duration;

use forebay_broker_config::status::BrokerState;
use forebay_broker_machines::metadata::{BrokerLifeError, Command, MetadataImage, Reply};
use forebay_broker_wire::types::BrokerId;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::metadata::SubmitError;

/// How long one command may hold up the stop.
const COMMAND_MAX: Duration = Duration::from_secs(3);
/// Requests that come on old connections are still told who leads now.
const LAST_HINTS: Duration = Duration::from_millis(250);

/// Stops the broker when `asked` is cancelled, in order if it can.
pub(crate) async fn when_asked(broker: Arc<Broker>, asked: CancellationToken) {
    tokio::select! {
        () = asked.cancelled() => {}
        () = broker.shutdown.cancelled() => return,
    }
    if broker.lifecycle.state() == BrokerState::Running {
        broker.lifecycle.enter(BrokerState::Stopping);
        broker.ready.send_replace(false);
        let image = broker.metadata.image();
        let others = image.live_brokers().any(|other| other.id != broker.id());
        if others && broker.config.membership.controlled_shutdown {
            hand_over(&broker).await;
        }
    }
    broker.shutdown.cancel();
}

async fn hand_over(broker: &Arc<Broker>) {
    broker.pass_on.keep_records();
    let membership = &broker.config.membership;
    for attempt in 0..=membership.controlled_shutdown_retries {
        let leads = match submit(broker, Command::ControlledShutdown(broker.life())).await {
            Some(Reply::ShuttingDown(Ok(leads))) => leads,
            Some(Reply::ShuttingDown(Err(error))) => return not_in_order(&error),
            _ => return,
        };
        if leads == 0 {
            tracing::info!("all leaders have moved away");
            break;
        }
        let last = attempt == membership.controlled_shutdown_retries;
        if last || !may_still_move(&broker.metadata.image(), broker.id()) {
            tracing::warn!(partitions = leads, "stopping although nobody else could lead some partitions");
            break;
        }
        sleep(membership.controlled_shutdown_backoff).await;
    }
    sleep(LAST_HINTS).await;
    submit(broker, Command::FenceBroker(broker.life())).await;
}

fn not_in_order(error: &BrokerLifeError) {
    tracing::warn!(%error, "the leaders could not be moved away");
}

/// Whether a partition that is led here has another replica at work, which may yet be in sync.
fn may_still_move(image: &MetadataImage, own: BrokerId) -> bool {
    let mut led_here =
        image.topics().flat_map(|topic| &topic.partitions).filter(|partition| partition.leader == Some(own));
    led_here.any(|partition| partition.replicas.iter().any(|id| *id != own && image.may_lead(*id)))
}

/// The reply, once this broker follows what was decided.
async fn submit(broker: &Arc<Broker>, command: Command) -> Option<Reply> {
    let submitted = timeout(COMMAND_MAX, async {
        let (reply, version) = broker.metadata.submit(command).await?;
        // Ends only with the process.
        let mut followed = broker.followed();
        let _ended = followed.wait_for(|followed| *followed >= version).await.is_err();
        Ok::<_, SubmitError>(reply)
    });
    match submitted.await {
        Ok(Ok(reply)) => Some(reply),
        Ok(Err(error)) => {
            tracing::warn!(%error, "stopping without the controller");
            None
        }
        Err(_elapsed) => {
            tracing::warn!("stopping without the controller: it has not answered in {} s", COMMAND_MAX.as_secs());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::{BrokerRecord, PartitionRecord, Record, TopicRecord};
    use forebay_broker_wire::types::Uuid;

    use super::*;

    fn led_by_one(replicas: &[i32], fenced: &[i32]) -> MetadataImage {
        let mut image = MetadataImage::default();
        for broker_id in 1..=3 {
            let record = BrokerRecord { broker_id, fenced: fenced.contains(&broker_id), ..BrokerRecord::default() };
            image.apply(&Record::Broker(record)).unwrap();
        }
        let topic_id = Uuid([1; 16]);
        image.apply(&Record::Topic(TopicRecord { topic_id, name: "t".to_owned() })).unwrap();
        let replicas = replicas.to_vec();
        let partition = PartitionRecord { topic_id, replicas, leader: 1, ..PartitionRecord::default() };
        image.apply(&Record::Partition(partition)).unwrap();
        image
    }

    #[test]
    fn a_stop_waits_only_for_replicas_that_could_still_lead() {
        assert!(may_still_move(&led_by_one(&[1, 2], &[3]), BrokerId(1)));
        assert!(!may_still_move(&led_by_one(&[1, 2], &[2]), BrokerId(1)), "it is down");
        assert!(!may_still_move(&led_by_one(&[1], &[]), BrokerId(1)), "there is no other");
        assert!(!may_still_move(&led_by_one(&[2, 1], &[]), BrokerId(2)), "it leads nothing");
    }
}
