//! Static members: a restart within the session timeout costs no rebalance.

use super::*;

#[test]
fn a_static_member_that_restarts_gets_its_assignment_back_without_a_rebalance() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one"), static_client("b", "two")];
    scene.settle(&mut members);
    let [a, old_b] = members;
    let mut b = static_client("b", "two");
    let token = scene.join(&b);
    let joined = scene.joined(token, &mut b);
    assert_eq!(joined.generation, a.generation);
    assert_ne!(b.id, old_b.id);
    let token = scene.sync(&b, &[]);
    assert_eq!(scene.assignment(token), "b");
    assert_eq!(scene.heartbeat(&a), Ok(()));
}

#[test]
fn a_restarted_static_leader_is_told_that_the_assignment_stands() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one"), static_client("b", "two")];
    scene.settle(&mut members);
    let old_leader = members[0].id.clone();
    let mut modern = Client { knows_ids: true, ..static_client("a", "one") };
    let token = scene.join(&modern);
    let joined = scene.joined(token, &mut modern);
    assert!(joined.skip_assignment);
    assert_eq!((&joined.leader, joined.members.len()), (&modern.id, 2));
    let mut older = static_client("a", "one");
    let token = scene.join(&older);
    let joined = scene.joined(token, &mut older);
    assert_eq!((joined.leader, joined.members.len()), (modern.id, 0), "so that it computes nothing");
    assert_ne!(older.id, old_leader);
}

#[test]
fn the_old_self_of_a_static_member_is_fenced_everywhere() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one")];
    scene.settle(&mut members);
    let [old] = members;
    let _ = scene.join(&static_client("a", "one"));
    let fenced = |error: Result<(), GroupError>| matches!(error, Err(GroupError::FencedInstance { .. }));
    assert!(fenced(scene.heartbeat(&old)));
    assert!(fenced(scene.commit_as(old.caller(), 1, "")));
    assert!(fenced(scene.leave(old.id.as_str(), Some("one"))));
    let token = scene.sync(&old, &[]);
    assert!(fenced(Err(scene.refused(token))));
    let token = scene.join(&old);
    assert!(fenced(Err(scene.refused(token))));
}

#[test]
fn a_join_that_waits_under_the_old_id_is_fenced_when_the_new_self_comes() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one"), client("b")];
    scene.settle(&mut members);
    let _ = scene.join(&client("c"));
    let waits = scene.join(&members[0]);
    let comes = scene.join(&static_client("a", "one"));
    assert!(matches!(scene.refused(waits), GroupError::FencedInstance { .. }));
    assert_eq!(scene.reply(comes), None);
}

#[test]
fn a_static_member_that_comes_back_for_other_topics_starts_a_rebalance() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one"), static_client("b", "two")];
    scene.settle(&mut members);
    let token = scene.join(&static_client("b", "two").with_protocols(vec![protocol("range", &["other"])]));
    assert_eq!(scene.reply(token), None);
    assert_eq!(scene.state(), GroupState::PreparingRebalance);
}

#[test]
fn static_members_keep_their_place_in_a_rebalance_until_their_session_ends() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one"), client("b")];
    scene.settle(&mut members);
    let [_, mut b] = members;
    scene.leave("x", None).unwrap_err();
    let c = client("c");
    let c_joins = scene.join(&c);
    let b_joins = scene.join(&b);
    assert_eq!(scene.reply(b_joins), None, "the static member is still expected");
    scene.pass(SESSION_MS);
    assert_eq!(scene.joined(b_joins, &mut b).generation, b.generation);
    assert!(scene.reply(c_joins).is_some());
}

#[test]
fn an_administrator_removes_a_static_member_by_its_instance_id() {
    let mut scene = Scene::new();
    let mut members = [static_client("a", "one")];
    scene.settle(&mut members);
    assert!(matches!(scene.leave("", Some("none")), Err(GroupError::UnknownMember { .. })));
    assert_eq!(scene.leave("", Some("one")), Ok(()));
    assert_eq!(scene.state(), GroupState::Empty);
}
