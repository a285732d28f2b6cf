//! Joining, assigning, leaving: the way of a group while everybody behaves.

use super::*;

#[test]
fn one_member_joins_leads_and_gets_what_it_assigns_itself() {
    let mut scene = Scene::new();
    let mut a = client("a");
    let token = scene.join(&a);
    let joined = scene.joined(token, &mut a);
    assert_eq!((joined.generation, &joined.leader), (1, &a.id));
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(scene.state(), GroupState::CompletingRebalance);
    let token = scene.sync(&a, &[(&a, "all")]);
    assert_eq!(scene.assignment(token), "all");
    assert_eq!(scene.heartbeat(&a), Ok(()));
}

#[test]
fn a_dynamic_member_of_a_new_client_gets_an_id_first_and_joins_with_it() {
    let mut scene = Scene::new();
    let mut a = Client { knows_ids: true, ..client("a") };
    let request = scene.join_request(&a);
    let Reply::Join(Err(refusal)) = scene.ask(Command::Join(request.clone())) else { panic!("must be refused") };
    assert_eq!(refusal, JoinRefusal { error: GroupError::MemberIdRequired, member_id: request.new_member_id });
    a.id = refusal.member_id;
    let token = scene.join(&a);
    let given = a.id.clone();
    assert_eq!(scene.joined(token, &mut a).member_id, given);
}

#[test]
fn an_id_that_is_never_used_leaves_nothing_behind() {
    let mut scene = Scene::new();
    let a = Client { knows_ids: true, ..client("a") };
    let token = scene.join(&a);
    assert_eq!(scene.refused(token), GroupError::MemberIdRequired);
    assert_eq!(scene.state(), GroupState::Empty);
    scene.pass(SESSION_MS);
    assert_eq!(scene.state(), GroupState::Dead);
    assert!(scene.log.is_empty());
}

#[test]
fn the_first_rebalance_of_an_empty_group_waits_for_more_members() {
    let mut scene = Scene::with(GroupConfig::default());
    let (mut a, mut b) = (client("a"), client("b"));
    let first = scene.join(&a);
    scene.pass(2_999);
    let second = scene.join(&b);
    scene.pass(1);
    assert_eq!(scene.reply(first), None, "b came, so the wait is prolonged");
    scene.pass(3_000);
    assert_eq!(scene.joined(first, &mut a).members.len(), 2);
    assert_eq!(scene.joined(second, &mut b).members.len(), 0, "only the leader sees the members");
    assert_eq!((a.generation, b.generation), (1, 1));
}

#[test]
fn the_initial_wait_ends_at_the_rebalance_timeout_however_many_come() {
    let mut scene = Scene::with(GroupConfig::default());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut first = None;
    for _ in 0..6 {
        for name in names {
            let token = scene.join(&client(name));
            first = first.or(Some(token));
            scene.pass(1_000);
        }
    }
    let mut a = client("a");
    assert_eq!(scene.joined(first.unwrap(), &mut a).generation, 1);
}

#[test]
fn a_second_member_makes_the_first_join_again_and_both_get_their_part() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members[..1]);
    let [mut a, mut b] = members;
    let b_joins = scene.join(&b);
    assert_eq!(scene.reply(b_joins), None, "b waits for a");
    assert_eq!(scene.heartbeat(&a), Err(GroupError::RebalanceInProgress));
    let a_joins = scene.join(&a);
    assert_eq!(scene.joined(a_joins, &mut a).leader, a.id);
    scene.joined(b_joins, &mut b);
    let b_syncs = scene.sync(&b, &[]);
    assert_eq!(scene.reply(b_syncs), None, "b waits for the leader's assignment");
    let a_syncs = scene.sync(&a, &[(&a, "0,1"), (&b, "2,3")]);
    assert_eq!(scene.assignment(a_syncs), "0,1");
    assert_eq!(scene.assignment(b_syncs), "2,3");
}

#[test]
fn a_member_that_leaves_makes_the_others_share_what_it_had() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    assert_eq!(scene.leave(members[1].id.as_str(), None), Ok(()));
    assert_eq!(scene.heartbeat(&members[0]), Err(GroupError::RebalanceInProgress));
    let token = scene.join(&members[0]);
    assert_eq!(scene.joined(token, &mut members[0]).members.len(), 1);
    assert!(matches!(scene.heartbeat(&members[1]), Err(GroupError::UnknownMember { .. })));
}

#[test]
fn a_new_leader_is_found_when_the_leader_leaves() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    scene.leave(members[0].id.as_str(), None).unwrap();
    let token = scene.join(&members[1]);
    assert_eq!(scene.joined(token, &mut members[1]).leader, members[1].id);
}

#[test]
fn the_last_member_leaves_an_empty_group_that_keeps_its_offsets() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    scene.commit_as(members[0].caller(), 5, "").unwrap();
    scene.leave(members[0].id.as_str(), None).unwrap();
    assert_eq!(scene.state(), GroupState::Empty);
    assert_eq!(scene.committed().unwrap().offset, Offset(5));
    let token = scene.join(&client("b"));
    assert_eq!(scene.joined(token, &mut members[0]).generation, 3, "generations go on");
}

#[test]
fn the_protocol_is_the_one_that_most_members_prefer_among_those_that_all_know() {
    let (range, sticky, own) = (protocol("range", &["t"]), protocol("sticky", &["t"]), protocol("own", &["t"]));
    let mut scene = Scene::new();
    let mut members = [
        client("a").with_protocols(vec![own.clone(), range.clone(), sticky.clone()]),
        client("b").with_protocols(vec![sticky.clone(), range.clone()]),
        client("c").with_protocols(vec![sticky, range]),
    ];
    scene.settle(&mut members);
    let Reply::Describe(Ok(group)) = scene.ask(Command::Describe { group: "g".into() }) else { panic!() };
    assert_eq!(&*group.protocol_name, "sticky");
    let token = scene.join(&client("d").with_protocols(vec![own]));
    assert_eq!(scene.refused(token), GroupError::InconsistentProtocol);
}

#[test]
fn a_join_repeated_after_a_lost_answer_gets_the_same_generation() {
    let mut scene = Scene::new();
    let mut a = client("a");
    let token = scene.join(&a);
    scene.joined(token, &mut a);
    let token = scene.join(&a);
    let again = scene.joined(token, &mut a);
    assert_eq!((again.generation, again.members.len()), (1, 1));
}

#[test]
fn a_follower_that_joins_again_unchanged_disturbs_nobody_but_the_leader_may() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    let [a, mut b] = members;
    let generation = b.generation;
    let token = scene.join(&b);
    assert_eq!(scene.joined(token, &mut b).generation, generation);
    assert_eq!(scene.heartbeat(&a), Ok(()));
    let token = scene.join(&a);
    assert_eq!(scene.reply(token), None, "the leader wants a new assignment, so all must join");
    assert_eq!(scene.heartbeat(&b), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_changed_subscription_starts_a_rebalance() {
    let mut scene = Scene::new();
    let mut members = [client("a"), client("b")];
    scene.settle(&mut members);
    members[1].protocols = vec![protocol("range", &["t", "u"])];
    let token = scene.join(&members[1]);
    assert_eq!(scene.reply(token), None);
    assert_eq!(scene.state(), GroupState::PreparingRebalance);
}

#[test]
fn old_generations_wrong_protocols_and_strangers_are_refused() {
    let mut scene = Scene::new();
    let mut members = [client("a")];
    scene.settle(&mut members);
    let [a] = members;
    let old = Client { generation: a.generation - 1, ..a.clone() };
    assert!(matches!(scene.heartbeat(&old), Err(GroupError::IllegalGeneration { .. })));
    let token = scene.sync(&old, &[]);
    assert!(matches!(scene.refused(token), GroupError::IllegalGeneration { .. }));
    let stranger = Client { id: "x".into(), ..a.clone() };
    assert!(matches!(scene.heartbeat(&stranger), Err(GroupError::UnknownMember { .. })));
    let token = scene.join(&stranger);
    assert!(matches!(scene.refused(token), GroupError::UnknownMember { .. }));
    let token = scene.send(Command::Sync(Sync {
        group: "g".into(),
        caller: a.caller(),
        protocol_type: Some("connect".into()),
        protocol_name: None,
        assignments: vec![],
    }));
    assert_eq!(scene.refused(token), GroupError::InconsistentProtocol);
}

#[test]
fn session_timeouts_outside_the_limits_and_empty_group_ids_are_refused() {
    let mut scene = Scene::new();
    let a = client("a");
    for session_timeout_ms in [0, 5_999, 1_800_001, -1] {
        let request = Join { session_timeout_ms, ..scene.join_request(&a) };
        let token = scene.send(Command::Join(request));
        assert!(matches!(scene.refused(token), GroupError::InvalidSessionTimeout { .. }), "{session_timeout_ms}");
    }
    let request = Join { group: "".into(), ..scene.join_request(&a) };
    let token = scene.send(Command::Join(request));
    assert_eq!(scene.refused(token), GroupError::InvalidGroupId);
    assert_eq!(scene.state(), GroupState::Dead, "refused joins leave no group behind");
}

#[test]
fn a_full_group_takes_no_more_members_but_keeps_those_it_has() {
    let mut scene = Scene::with(GroupConfig { max_size: 1, initial_rebalance_delay_ms: 0, ..GroupConfig::default() });
    let mut members = [client("a")];
    scene.settle(&mut members);
    let token = scene.join(&client("b"));
    assert_eq!(scene.refused(token), GroupError::MaxSizeReached { max: 1 });
    let token = scene.join(&members[0]);
    scene.joined(token, &mut members[0]);
}

#[test]
fn an_assignment_too_large_to_be_stored_is_refused_and_nothing_is_written() {
    let config = GroupConfig { max_record_bytes: 1_000, initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
    let mut scene = Scene::with(config);
    let mut a = client("a");
    let token = scene.join(&a);
    scene.joined(token, &mut a);
    let token = scene.sync(&a, &[(&a, &"x".repeat(1_000))]);
    assert!(matches!(scene.refused(token), GroupError::AssignmentTooLarge { .. }));
    assert!(scene.log.is_empty());
    assert_eq!(scene.heartbeat(&a), Err(GroupError::RebalanceInProgress));
}
