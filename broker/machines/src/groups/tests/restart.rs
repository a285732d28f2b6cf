//! A broker that comes back knows what it promised.

use super::*;

#[test]
fn members_of_a_stable_group_go_on_after_a_restart_as_if_nothing_had_happened() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    scene.commit_as(members[0].caller(), 11, "m").unwrap();
    scene.restart();
    assert_eq!(scene.state(), GroupState::Stable);
    assert_eq!(scene.committed().unwrap().offset, Offset(11));
    for member in &members {
        assert_eq!(scene.heartbeat(member), Ok(()));
        let token = scene.sync(member, &[]);
        assert_eq!(scene.assignment(token), member.name);
    }
}

#[test]
fn members_that_died_with_the_broker_are_removed_after_their_session_timeout() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    scene.restart();
    scene.pass(SESSION_MS - 1);
    scene.heartbeat(&members[0]).unwrap();
    scene.pass(1);
    assert_eq!(scene.heartbeat(&members[0]), Err(GroupError::RebalanceInProgress));
    assert!(matches!(scene.heartbeat(&members[1]), Err(GroupError::UnknownMember { .. })));
}

#[test]
fn a_restart_during_a_rebalance_goes_back_to_the_last_generation_and_its_members_rebalance_again() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    let [mut a] = members;
    let _ = scene.join(&client("b"));
    let token = scene.join(&a);
    let generation = a.generation;
    scene.joined(token, &mut a);
    assert_eq!(a.generation, generation + 1);
    scene.restart();
    assert!(matches!(scene.heartbeat(&a), Err(GroupError::IllegalGeneration { .. })));
    let token = scene.join(&a);
    scene.joined(token, &mut a);
    let token = scene.sync(&a, &[(&a, "all")]);
    assert_eq!(scene.assignment(token), "all");
}

#[test]
fn a_group_over_a_lowered_limit_rebalances_after_the_restart_until_it_fits() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    scene.machine.config.max_size = 1;
    scene.restart();
    let [mut a, b] = members;
    assert_eq!(scene.heartbeat(&a), Err(GroupError::RebalanceInProgress));
    let first = scene.join(&a);
    let second = scene.join(&b);
    assert_eq!(scene.refused(second), GroupError::MaxSizeReached { max: 1 });
    scene.pass(REBALANCE_MS);
    assert_eq!(scene.joined(first, &mut a).members.len(), 1);
}

#[test]
fn offsets_of_topics_that_were_deleted_meanwhile_go_after_a_restart() {
    let mut scene = Scene::new();
    scene.commit_as(nobody(), 5, "").unwrap();
    scene.restart();
    scene.ask(Command::KeepTopics { topics: vec![("t".into(), Uuid([7; 16])), ("u".into(), Uuid([8; 16]))] });
    assert!(scene.committed().is_some());
    scene.ask(Command::KeepTopics { topics: vec![("t".into(), Uuid([9; 16]))] });
    assert_eq!(scene.committed(), None, "a namesake made since is another topic");
}

#[test]
fn a_static_member_restarting_together_with_the_broker_keeps_its_place() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one")];
    scene.settle(&mut members);
    scene.restart();
    let mut again = static_client("a", "one");
    let token = scene.join(&again);
    assert_eq!(scene.joined(token, &mut again).generation, members[0].generation);
    let token = scene.sync(&again, &[]);
    assert_eq!(scene.assignment(token), "a");
}
