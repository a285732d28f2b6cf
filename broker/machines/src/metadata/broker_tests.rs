//! Brokers come, go, stop in order and are elected, as commands against an image of three of them and a topic that all of them hold.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, PartitionIndex, Uuid};

use super::tests::{World, registration, topic};
use super::*;
use crate::replication::IsrProposal;

const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAA";

fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// Three brokers; topic `t` with one partition on 0, 1, 2; the lives of the brokers.
fn three() -> (World, Vec<BrokerLife>) {
    let mut world = World::with_brokers(0);
    let lives = (0..3).map(|id| world.start(id)).collect();
    world.create(NewTopic { assignment: Some(vec![ids(&[0, 1, 2])]), ..topic("t") }).unwrap();
    (world, lives)
}

fn partition(world: &World) -> PartitionImage {
    world.image.topic("t").unwrap().partitions[0].clone()
}

/// Leader, ISR and leader epoch.
fn state(world: &World) -> (Option<i32>, Vec<i32>, i32) {
    let partition = partition(world);
    let in_sync = partition.in_sync_replicas.iter().map(|id| id.0).collect();
    (partition.leader.map(|id| id.0), in_sync, partition.leader_epoch.0)
}

fn fence(world: &mut World, life: BrokerLife) -> Reply {
    world.submit(Command::FenceBroker(life))
}

fn propose(world: &mut World, proposer: BrokerLife, members: &[BrokerLife]) -> Result<AlteredPartition, String> {
    let current = partition(world);
    let proposal = IsrProposal {
        leader: proposer.broker_id,
        leader_epoch: current.leader_epoch,
        partition_epoch: current.partition_epoch,
        in_sync_replicas: members.iter().map(|life| (life.broker_id, Some(life.broker_epoch))).collect(),
    };
    let topic_id = world.image.topic("t").unwrap().id;
    let partitions = vec![PartitionProposal { topic_id, partition: PartitionIndex(0), proposal }];
    match world.submit(Command::AlterPartition { proposer, partitions }) {
        Reply::PartitionsAltered(mut results) => results.remove(0).map_err(|error| error.to_string()),
        other => panic!("{other:?}"),
    }
}

fn reassign(world: &mut World, replicas: Option<Vec<BrokerId>>, allow: bool) -> Result<(), String> {
    let one = Reassignment { topic: "t".to_owned(), partition: PartitionIndex(0), replicas };
    let command =
        Command::AlterPartitionReassignments { reassignments: vec![one], allow_replication_factor_change: allow };
    match world.submit(command) {
        Reply::Reassigned(mut results) => results.remove(0).map_err(|error| error.to_string()),
        other => panic!("{other:?}"),
    }
}

fn elect(world: &mut World, kind: ElectionKind) -> Result<BrokerId, String> {
    let partitions = Some(vec![("t".to_owned(), PartitionIndex(0))]);
    match world.submit(Command::ElectLeaders { kind, partitions }) {
        Reply::LeadersElected(mut elections) => elections.remove(0).result.map_err(|error| error.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fenced_leader_is_followed_by_the_next_in_sync_replica() {
    let (mut world, lives) = three();
    fence(&mut world, lives[0]);
    assert_eq!(state(&world), (Some(1), vec![1, 2], 1));
    assert_eq!(world.image.live_brokers().map(|broker| broker.id.0).collect::<Vec<_>>(), [1, 2]);
    let before = world.image.version();
    assert_eq!(fence(&mut world, lives[0]), Reply::Broker(Ok(())));
    assert_eq!(world.image.version(), before, "once is enough");
}

#[test]
fn a_late_word_about_an_earlier_life_changes_nothing() {
    let (mut world, lives) = three();
    let again = world.start(0);
    let stale = Reply::Broker(Err(BrokerLifeError::StaleEpoch {
        broker_id: BrokerId(0),
        given: lives[0].broker_epoch,
        current: again.broker_epoch,
    }));
    assert_eq!(fence(&mut world, lives[0]), stale);
    assert_eq!(world.submit(Command::UnfenceBroker(lives[0])), stale);
    assert!(!world.image.broker(BrokerId(0)).unwrap().fenced);
    let error = propose(&mut world, BrokerLife { broker_id: BrokerId(1), broker_epoch: 0 }, &lives[1..]).unwrap_err();
    assert_eq!(error, "broker 1 proposes in broker epoch 0, which is not its present one");
}

#[test]
fn a_broker_that_registers_again_leaves_the_isr_even_after_a_clean_stop() {
    let (mut world, _) = three();
    world.register(registration(0, CLUSTER)).unwrap();
    assert_eq!(state(&world), (Some(1), vec![1, 2], 1));
}

#[test]
fn the_last_in_sync_replica_leads_again_when_it_is_back() {
    let (mut world, lives) = three();
    for life in [lives[1], lives[2], lives[0]] {
        fence(&mut world, life);
    }
    assert_eq!(state(&world), (None, vec![0], 1));
    world.start(1);
    assert_eq!(state(&world), (None, vec![0], 1), "broker 1 has not all that was acknowledged");
    world.start(0);
    assert_eq!(state(&world), (Some(0), vec![0], 2));
}

#[test]
fn an_only_replica_that_stopped_in_order_begins_no_new_epoch_and_one_that_did_not_does() {
    let mut world = World::with_brokers(1);
    world.create(NewTopic { partitions: Some(1), ..topic("t") }).unwrap();
    let before = partition(&world);
    world.start(0);
    assert_eq!(partition(&world), before);
    world.register(BrokerRegistration { clean_shutdown: false, ..registration(0, CLUSTER) }).unwrap();
    assert_eq!(state(&world), (Some(0), vec![0], 1));
}

#[test]
fn a_broker_with_other_disks_waits_until_the_one_at_work_is_fenced() {
    let (mut world, lives) = three();
    let other = || BrokerRegistration {
        directories: vec![Uuid([8; 16])],
        incarnation: Uuid([1; 16]),
        ..registration(0, CLUSTER)
    };
    assert_eq!(world.register(other()), Err(RegisterError::Duplicate { broker_id: 0 }));
    fence(&mut world, lives[0]);
    world.register(other()).unwrap();
}

#[test]
fn a_planned_stop_moves_leaders_to_those_at_work_and_waits_for_nobody() {
    let (mut world, lives) = three();
    assert_eq!(world.submit(Command::ControlledShutdown(lives[0])), Reply::ShuttingDown(Ok(0)));
    assert_eq!(state(&world), (Some(1), vec![1, 2], 1));
    assert!(propose(&mut world, lives[1], &lives).is_err(), "a stopping broker enters no ISR");
    assert_eq!(world.submit(Command::ControlledShutdown(lives[1])), Reply::ShuttingDown(Ok(0)));
    assert_eq!(world.submit(Command::ControlledShutdown(lives[2])), Reply::ShuttingDown(Ok(1)));
    assert_eq!(state(&world), (Some(2), vec![2], 2));
    fence(&mut world, lives[2]);
    assert_eq!(state(&world), (None, vec![2], 3));
}

#[test]
fn a_failed_disk_takes_its_own_partitions_only() {
    let (mut world, lives) = three();
    world.create(NewTopic { assignment: Some(vec![ids(&[0, 1])]), ..topic("u") }).unwrap();
    let topic_id = world.image.topic("t").unwrap().id;
    let unable = |topic_id, life| {
        let replicas = vec![(life, Inability::Offline)];
        UnableReplicas { topic_id, partition: PartitionIndex(0), replicas }
    };
    let earlier = BrokerLife { broker_epoch: lives[1].broker_epoch - 1, ..lives[1] };
    let partitions = vec![unable(topic_id, lives[0]), unable(Uuid([77; 16]), lives[0]), unable(topic_id, earlier)];
    assert_eq!(world.submit(Command::ReplicasUnable { partitions }), Reply::ReplicasLeft);
    assert_eq!(state(&world), (Some(1), vec![1, 2], 1));
    assert_eq!(world.image.topic("u").unwrap().partitions[0].leader, Some(BrokerId(0)));
}

#[test]
fn a_partition_that_nobody_else_could_lead_stays_with_the_broker_of_the_failed_disk() {
    let (mut world, lives) = three();
    let topic_id = world.image.topic("t").unwrap().id;
    let replicas = vec![(lives[0], Inability::Offline)];
    let partitions = vec![UnableReplicas { topic_id, partition: PartitionIndex(0), replicas }];
    let lost = Command::ReplicasUnable { partitions };
    let mut shrunk = partition(&world);
    shrunk.in_sync_replicas = ids(&[0, 1]);
    world.image.apply(&Record::Partition(shrunk.to_record(topic_id))).unwrap();
    world.submit(Command::ControlledShutdown(lives[1]));
    let mut both = partition(&world);
    both.in_sync_replicas = ids(&[0, 1]);
    world.image.apply(&Record::Partition(both.to_record(topic_id))).unwrap();
    let before = world.image.version();
    assert_eq!(world.submit(lost.clone()), Reply::ReplicasLeft);
    assert_eq!(state(&world), (Some(0), vec![0, 1], 0), "broker 1 is about to stop, broker 2 has not everything");
    assert_eq!(world.image.version(), before);
    world.start(1);
    propose(&mut world, lives[0], &[lives[0], lives[2]]).unwrap();
    assert_eq!(world.submit(lost), Reply::ReplicasLeft);
    assert_eq!(state(&world), (Some(2), vec![2], 1), "somebody else can");
}

#[test]
fn an_isr_is_taken_from_its_leader_with_present_members() {
    let (mut world, lives) = three();
    fence(&mut world, lives[1]);
    let error = propose(&mut world, lives[0], &lives).unwrap_err();
    assert_eq!(error, "broker 1 may not enter the in-sync replicas: it is fenced, stopping, or has registered again");
    let back = world.start(1);
    let altered = propose(&mut world, lives[0], &[lives[0], back, lives[2]]).unwrap();
    assert_eq!(altered.in_sync_replicas, ids(&[0, 1, 2]));
    assert_eq!(altered.partition_epoch, partition(&world).partition_epoch);
}

#[test]
fn the_preferred_leader_is_elected_only_when_it_is_in_sync() {
    let (mut world, lives) = three();
    assert_eq!(elect(&mut world, ElectionKind::Preferred).unwrap_err(), "broker 0 leads already");
    fence(&mut world, lives[0]);
    let back = world.start(0);
    let error = elect(&mut world, ElectionKind::Preferred).unwrap_err();
    assert_eq!(error, "broker 0, the preferred leader, is not at work or not in sync");
    propose(&mut world, lives[1], &[lives[1], lives[2], back]).unwrap();
    assert_eq!(elect(&mut world, ElectionKind::Preferred), Ok(BrokerId(0)));
    assert_eq!(state(&world), (Some(0), vec![1, 2, 0], 2));
    let all = Command::ElectLeaders { kind: ElectionKind::Preferred, partitions: None };
    assert_eq!(world.submit(all), Reply::LeadersElected(Vec::new()), "those that need none are not named");
}

#[test]
fn an_unclean_election_is_made_when_asked_or_when_the_topic_allows_it() {
    let (mut world, lives) = three();
    assert_eq!(elect(&mut world, ElectionKind::Unclean).unwrap_err(), "broker 0 leads already");
    for life in [lives[1], lives[2], lives[0]] {
        fence(&mut world, life);
    }
    assert!(elect(&mut world, ElectionKind::Unclean).unwrap_err().starts_with("no replica is at work"));
    world.start(2);
    assert_eq!(elect(&mut world, ElectionKind::Unclean), Ok(BrokerId(2)));
    assert_eq!(state(&world), (Some(2), vec![2], 2));

    let (mut world, lives) = three();
    fence(&mut world, lives[1]);
    fence(&mut world, lives[2]);
    world.start(1);
    fence(&mut world, lives[0]);
    assert_eq!(state(&world), (None, vec![0], 1));
    let operations = vec![("unclean".to_owned(), ConfigOperation::Set("true".to_owned()))];
    let resource = ConfigResource::Topic("t".to_owned());
    let change = ConfigChange { resource, operations, replace_all: false };
    world.submit(Command::AlterConfigs { changes: vec![change], validate_only: false });
    assert_eq!(state(&world), (Some(1), vec![1], 2), "at once, not at the next failure");
}

#[test]
fn a_reassignment_ends_with_the_proposal_that_makes_the_new_replicas_in_sync() {
    let (mut world, mut lives) = three();
    lives.push(world.start(3));
    reassign(&mut world, Some(ids(&[3, 1, 2])), false).unwrap();
    assert_eq!(partition(&world).replicas, ids(&[3, 1, 2, 0]));
    let error = propose(&mut world, lives[0], &lives).unwrap_err();
    assert!(error.contains("broker 3 leads in epoch 1"), "{error}");
    assert_eq!((partition(&world).replicas, state(&world)), (ids(&[3, 1, 2]), (Some(3), vec![1, 2, 3], 1)));
    let error = reassign(&mut world, None, false).unwrap_err();
    assert_eq!(error, "partition 0 of topic 't' is not being reassigned");
}

#[test]
fn reassignments_that_cannot_be_are_refused() {
    let (mut world, _) = three();
    let error = reassign(&mut world, Some(ids(&[0, 0])), true).unwrap_err();
    assert_eq!(error, "the assignment has replicas [0, 0]: must not name broker 0 twice");
    let error = reassign(&mut world, Some(ids(&[0, 9, 1])), true).unwrap_err();
    assert_eq!(error, "the assignment names broker 9, which is not registered");
    let error = reassign(&mut world, Some(ids(&[0])), false).unwrap_err();
    assert_eq!(error, "the partition has 3 replicas: must keep that number, not 1, unless the request allows another");
    reassign(&mut world, Some(ids(&[2])), true).unwrap();
    assert_eq!(state(&world), (Some(2), vec![2], 1));
}

#[test]
fn only_a_stopped_broker_is_taken_off_the_list() {
    let (mut world, lives) = three();
    let unregister = |world: &mut World, id| world.submit(Command::UnregisterBroker { broker_id: BrokerId(id) });
    assert_eq!(unregister(&mut world, 0), Reply::Unregistered(Err(UnregisterError::AtWork { broker_id: BrokerId(0) })));
    fence(&mut world, lives[0]);
    assert_eq!(unregister(&mut world, 0), Reply::Unregistered(Ok(())));
    assert_eq!(world.image.broker(BrokerId(0)), None);
    let unknown = Reply::Unregistered(Err(UnregisterError::NotRegistered { broker_id: BrokerId(0) }));
    assert_eq!(unregister(&mut world, 0), unknown);
}

#[test]
fn topics_are_made_while_a_broker_is_down_and_it_is_not_in_sync() {
    let (mut world, lives) = three();
    fence(&mut world, lives[1]);
    world.create(NewTopic { partitions: Some(3), replication_factor: Some(3), ..topic("u") }).unwrap();
    for partition in &world.image.topic("u").unwrap().partitions {
        assert_eq!((partition.replicas[2], partition.in_sync_replicas.len()), (BrokerId(1), 2));
        assert_eq!(partition.leader_epoch, LeaderEpoch(0));
    }
    let error = world.create(NewTopic { assignment: Some(vec![ids(&[1])]), ..topic("v") }).unwrap_err();
    assert_eq!(error, "assignment 0 has replicas [1]: must name a broker that is at work");
    fence(&mut world, lives[0]);
    fence(&mut world, lives[2]);
    assert_eq!(world.create(topic("v")).unwrap_err(), "no broker is at work yet: must wait until one is");
}

#[test]
fn commands_and_replies_survive_the_way_between_brokers() {
    let (mut world, lives) = three();
    let command = Command::ControlledShutdown(lives[0]);
    let text = serde_json::to_string(&command).unwrap();
    assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
    for reply in [fence(&mut world, lives[0]), fence(&mut world, BrokerLife { broker_id: BrokerId(9), ..lives[0] })] {
        let text = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply);
    }
}
