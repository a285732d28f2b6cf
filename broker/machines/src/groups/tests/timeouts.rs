//! What happens to members who say nothing: every wait ends.

use super::*;

#[test]
fn a_member_without_heartbeats_is_removed_after_its_session_timeout() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    for _ in 0..3 {
        scene.pass(SESSION_MS / 2 - 1);
        let _ = scene.heartbeat(&members[0]);
    }
    assert!(matches!(scene.heartbeat(&members[1]), Err(GroupError::UnknownMember { .. })));
    assert_eq!(scene.heartbeat(&members[0]), Err(GroupError::RebalanceInProgress));
}

#[test]
fn heartbeats_keep_a_member_for_ever() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    for _ in 0..50 {
        scene.pass(SESSION_MS - 1);
        assert_eq!(scene.heartbeat(&members[0]), Ok(()));
    }
    scene.pass(SESSION_MS);
    assert_eq!(scene.state(), GroupState::Empty);
}

#[test]
fn commits_count_as_a_sign_of_life() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    for offset in 0..5 {
        scene.pass(SESSION_MS - 1);
        assert_eq!(scene.commit_as(members[0].caller(), offset, ""), Ok(()));
    }
    assert_eq!(scene.state(), GroupState::Stable);
}

#[test]
fn a_member_that_does_not_come_back_into_a_rebalance_is_left_behind() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    let [a] = members;
    let mut b = client("b");
    let token = scene.join(&b);
    let mut waited_ms = 0;
    while waited_ms < REBALANCE_MS {
        assert_eq!(scene.reply(token), None);
        scene.pass(SESSION_MS / 2);
        waited_ms += SESSION_MS / 2;
        let _ = scene.heartbeat(&a); // alive, but does not join
    }
    assert_eq!(scene.joined(token, &mut b).members.len(), 1);
    assert!(matches!(scene.heartbeat(&a), Err(GroupError::UnknownMember { .. })));
}

#[test]
fn a_member_that_never_asks_for_its_assignment_is_removed() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members[..1]);
    let [mut a, mut b] = members;
    let b_joins = scene.join(&b);
    let a_joins = scene.join(&a);
    scene.joined(a_joins, &mut a);
    scene.joined(b_joins, &mut b);
    let _ = scene.sync(&a, &[(&a, "mine")]);
    let mut waited_ms = 0;
    while waited_ms < REBALANCE_MS {
        scene.pass(SESSION_MS / 2);
        waited_ms += SESSION_MS / 2;
        let _ = scene.heartbeat(&a);
        let _ = scene.heartbeat(&b);
    }
    assert!(matches!(scene.heartbeat(&b), Err(GroupError::UnknownMember { .. })), "b beat but never synced");
    assert_eq!(scene.heartbeat(&a), Err(GroupError::RebalanceInProgress));
}

#[test]
fn followers_are_not_left_waiting_when_the_leader_dies_before_assigning() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members[..1]);
    let [mut a, mut b] = members;
    let b_joins = scene.join(&b);
    let a_joins = scene.join(&a);
    scene.joined(a_joins, &mut a);
    scene.joined(b_joins, &mut b);
    let b_syncs = scene.sync(&b, &[]);
    scene.pass(SESSION_MS);
    assert_eq!(scene.refused(b_syncs), GroupError::RebalanceInProgress);
    let b_joins = scene.join(&b);
    assert_eq!(scene.joined(b_joins, &mut b).leader, b.id);
}

#[test]
fn a_first_join_whose_client_went_away_does_not_count_for_ever() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    let [a] = members;
    let b_joins = scene.join(&client("b"));
    for _ in 0..4 {
        scene.pass(SESSION_MS - 1);
        assert_eq!(scene.heartbeat(&a), Err(GroupError::RebalanceInProgress));
    }
    assert_eq!(scene.reply(b_joins), None, "a waiting first join outlives the session timeout");
}

#[test]
fn an_id_that_is_never_used_holds_up_the_others_no_longer_than_a_session() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    let [mut a] = members;
    let token = scene.join(&Client { knows_ids: true, ..client("b") });
    assert_eq!(scene.refused(token), GroupError::MemberIdRequired);
    let a_joins = scene.join(&a);
    assert_eq!(scene.reply(a_joins), None, "b is expected");
    scene.pass(SESSION_MS - 1);
    assert_eq!(scene.reply(a_joins), None);
    scene.pass(1);
    assert_eq!(scene.joined(a_joins, &mut a).members.len(), 1);
}

#[test]
fn a_second_sync_of_the_same_member_answers_the_first() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members[..1]);
    let [mut a, mut b] = members;
    let b_joins = scene.join(&b);
    let a_joins = scene.join(&a);
    scene.joined(a_joins, &mut a);
    scene.joined(b_joins, &mut b);
    let first = scene.sync(&b, &[]);
    let second = scene.sync(&b, &[]);
    assert_eq!(scene.refused(first), GroupError::RebalanceInProgress);
    let _ = scene.sync(&a, &[(&b, "hers")]);
    assert_eq!(scene.assignment(second), "hers");
}

#[test]
fn a_second_join_of_the_same_member_answers_the_first() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b"), client("c")];
    scene.settle(&mut members[..2]);
    let _ = scene.join(&members[2]);
    let first = scene.join(&members[0]);
    let second = scene.join(&members[0]);
    assert_eq!(scene.refused(first), GroupError::RebalanceInProgress);
    assert_eq!(scene.reply(second), None);
}
