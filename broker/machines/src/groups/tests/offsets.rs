//! Committed offsets: who may commit, what comes back, and how long it is kept.

use super::*;

const DAY_MS: i64 = 24 * 3_600 * 1_000;

#[test]
fn a_commit_comes_back_as_it_was_given_nuls_included() {
    let mut scene = Scene::new();
    assert_eq!(scene.commit_as(nobody(), 42, "a\0b\0"), Ok(()));
    let committed = scene.committed().unwrap();
    assert_eq!((committed.offset, committed.leader_epoch), (Offset(42), LeaderEpoch(3)));
    assert_eq!(&*committed.metadata, "a\0b\0");
    assert_eq!(committed.commit_timestamp_ms, scene.now_ms);
}

#[test]
fn nothing_committed_is_said_for_each_partition_asked_for() {
    let mut scene = Scene::new();
    assert_eq!(scene.committed(), None);
    assert_eq!(
        scene.ask(Command::FetchOffsets(FetchOffsets { group: "g".into(), topics: None })),
        Reply::FetchOffsets(vec![])
    );
    assert_eq!(scene.state(), GroupState::Dead, "asking makes no group");
}

#[test]
fn metadata_over_the_limit_is_refused_for_its_partition_alone() {
    let mut scene = Scene::with(GroupConfig { offset_metadata_max_bytes: 3, ..GroupConfig::default() });
    let topics = vec![topic_commit("t", 1, 5, "four"), topic_commit("t", 2, 6, "ok")];
    let request = CommitOffsets { group: "g".into(), caller: nobody(), retention_ms: None, topics };
    let Reply::CommitOffsets(Ok(results)) = scene.ask(Command::CommitOffsets(request)) else { panic!() };
    assert_eq!(results[0].1[0].1, Err(GroupError::OffsetMetadataTooLarge { bytes: 4, max: 3 }));
    assert_eq!(results[1].1[0].1, Ok(()));
    assert_eq!(scene.log.len(), 1);
}

#[test]
fn members_commit_in_their_generation_and_nobody_else_does() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    let caller = members[0].caller();
    assert_eq!(scene.commit_as(caller.clone(), 1, ""), Ok(()));
    let old = Caller { generation: caller.generation - 1, ..caller.clone() };
    assert!(matches!(scene.commit_as(old, 2, ""), Err(GroupError::IllegalGeneration { .. })));
    let stranger = Caller { member_id: "x".into(), ..caller };
    assert!(matches!(scene.commit_as(stranger, 2, ""), Err(GroupError::UnknownMember { .. })));
    assert!(matches!(scene.commit_as(nobody(), 2, ""), Err(GroupError::UnknownMember { .. })));
    assert_eq!(scene.committed().unwrap().offset, Offset(1));
}

#[test]
fn a_generation_of_a_group_that_does_not_exist_is_refused_and_makes_none() {
    let mut scene = Scene::new();
    let caller = Caller { member_id: "m".into(), instance_id: None, generation: 3 };
    assert!(matches!(scene.commit_as(caller, 1, ""), Err(GroupError::GroupNotFound { .. })));
    assert_eq!(scene.state(), GroupState::Dead);
}

#[test]
fn commits_are_taken_while_members_are_asked_to_join_again_but_not_while_they_wait_for_assignments() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    let [mut a] = members;
    let mut b = client("b");
    let b_joins = scene.join(&b);
    assert_eq!(scene.commit_as(a.caller(), 7, ""), Ok(()));
    let a_joins = scene.join(&a);
    scene.joined(a_joins, &mut a);
    scene.joined(b_joins, &mut b);
    assert_eq!(scene.commit_as(a.caller(), 8, ""), Err(GroupError::RebalanceInProgress));
}

fn stay_for(scene: &mut Scene, member: &Client, duration_ms: i64) {
    for _ in 0..duration_ms / (SESSION_MS - 1) {
        scene.pass(SESSION_MS - 1);
        scene.heartbeat(member).unwrap();
    }
}

#[test]
fn a_group_with_members_loses_offsets_of_topics_that_it_reads_no_more() {
    let config =
        GroupConfig { offsets_retention_ms: 3_600_000, initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
    let mut scene = Scene::with(config);
    let mut members = [client("a").with_protocols(vec![protocol("range", &["other"])])];
    scene.settle(&mut members);
    scene.commit_as(members[0].caller(), 5, "").unwrap();
    stay_for(&mut scene, &members[0], 3_500_000);
    assert!(scene.committed().is_some());
    stay_for(&mut scene, &members[0], 800_000);
    assert_eq!(scene.committed(), None);
}

#[test]
fn offsets_of_an_empty_group_are_kept_for_the_retention_from_when_it_became_empty() {
    let config = GroupConfig { offsets_retention_ms: DAY_MS, initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
    let mut scene = Scene::with(config);
    let mut members = [client("a")];
    scene.settle(&mut members);
    scene.commit_as(members[0].caller(), 5, "").unwrap();
    stay_for(&mut scene, &members[0], DAY_MS + 700_000);
    assert!(scene.committed().is_some(), "a stable group that reads the topic keeps its offsets");
    scene.leave(members[0].id.as_str(), None).unwrap();
    scene.pass(DAY_MS - 1);
    assert!(scene.committed().is_some());
    scene.pass(600_000);
    assert_eq!(scene.committed(), None);
    assert_eq!(scene.state(), GroupState::Dead, "an empty group without offsets goes too");
    assert_eq!(scene.log.last(), Some(&Record::GroupMetadata { group: "g".into(), value: None }));
}

#[test]
fn offsets_of_a_simple_consumer_are_kept_from_the_last_commit() {
    let mut scene = Scene::new();
    scene.commit_as(nobody(), 5, "").unwrap();
    scene.pass(6 * DAY_MS);
    scene.commit_as(nobody(), 6, "").unwrap();
    scene.pass(6 * DAY_MS);
    assert_eq!(scene.committed().unwrap().offset, Offset(6));
    scene.pass(DAY_MS + 600_000);
    assert_eq!(scene.committed(), None);
}

#[test]
fn a_client_of_old_chooses_its_own_retention() {
    let mut scene = Scene::new();
    let request = CommitOffsets {
        group: "g".into(),
        caller: nobody(),
        retention_ms: Some(1_000),
        topics: vec![topic_commit("t", 1, 5, "")],
    };
    scene.ask(Command::CommitOffsets(request));
    scene.pass(600_000);
    assert_eq!(scene.committed(), None);
}

#[test]
fn offsets_of_a_deleted_topic_go_but_not_those_of_its_namesake() {
    let mut scene = Scene::new();
    scene.commit_as(nobody(), 5, "").unwrap();
    scene.ask(Command::ForgetTopics { topics: vec![("t".into(), Uuid([9; 16]))] });
    assert!(scene.committed().is_some(), "another topic of the same name was deleted");
    scene.ask(Command::ForgetTopics { topics: vec![("t".into(), Uuid([7; 16]))] });
    assert_eq!(scene.committed(), None);
}

fn delete_offsets(scene: &mut Scene, topic: &str) -> Result<(), GroupError> {
    let topics = vec![(topic.into(), vec![PartitionIndex(1)])];
    match scene.ask(Command::DeleteOffsets(DeleteOffsets { group: "g".into(), topics })) {
        Reply::DeleteOffsets(result) => result.and_then(|topics| topics[0].1[0].1.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn offsets_can_be_deleted_unless_the_group_reads_the_topic() {
    let mut scene = Scene::new();
    assert!(matches!(delete_offsets(&mut scene, "t"), Err(GroupError::GroupNotFound { .. })));
    let mut members = [client("a")];
    scene.settle(&mut members);
    scene.commit_as(members[0].caller(), 5, "").unwrap();
    assert!(matches!(delete_offsets(&mut scene, "t"), Err(GroupError::SubscribedToTopic { .. })));
    assert_eq!(delete_offsets(&mut scene, "u"), Ok(()));
    scene.leave(members[0].id.as_str(), None).unwrap();
    assert_eq!(delete_offsets(&mut scene, "t"), Ok(()));
    assert_eq!(scene.committed(), None);
}

#[test]
fn only_an_empty_group_can_be_deleted_and_everything_of_it_goes() {
    let mut scene = Scene::new();
    let delete = Command::Delete { group: "g".into() };
    assert_eq!(scene.ask(delete.clone()), Reply::Delete(Err(GroupError::GroupNotFound { group: "g".into() })));
    let mut members = [client("a")];
    scene.settle(&mut members);
    scene.commit_as(members[0].caller(), 5, "").unwrap();
    assert!(matches!(scene.ask(delete.clone()), Reply::Delete(Err(GroupError::NonEmptyGroup { .. }))));
    scene.leave(members[0].id.as_str(), None).unwrap();
    assert_eq!(scene.ask(delete), Reply::Delete(Ok(())));
    assert_eq!(scene.state(), GroupState::Dead);
    assert!(scene.rebuilt().groups.is_empty());
}

#[test]
fn listing_and_summaries_name_every_group_with_its_state() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    scene.commit_as(members[0].caller(), 5, "").unwrap();
    let listing = GroupListing { group: "g".into(), protocol_type: "consumer".into(), state: GroupState::Stable };
    assert_eq!(scene.ask(Command::List), Reply::List(vec![listing]));
    let Reply::Summarize(summaries) = scene.ask(Command::Summarize) else { panic!() };
    assert_eq!(summaries[0].subscribed_topics, [TopicName::from("t")]);
    assert_eq!(summaries[0].members, 1);
    assert_eq!(
        summaries[0].offsets,
        [OffsetSummary {
            topic: "t".into(),
            partition: PartitionIndex(1),
            offset: Offset(5),
            commit_timestamp_ms: scene.now_ms,
        }]
    );
}
