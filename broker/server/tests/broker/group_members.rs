//! Members of groups over TCP: rebalances, restarts of members and of the broker.

use forebay_broker_wire::messages::describe_groups::DescribeGroupsRequest;
use forebay_broker_wire::messages::join_group::JoinGroupRequest;
use forebay_broker_wire::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use forebay_broker_wire::messages::list_groups::ListGroupsRequest;
use forebay_broker_wire::types::ErrorCode;

use crate::group_client::{AT_ONCE, JOIN, JOIN_WITHOUT_ID, Member, coordinated};
use crate::harness::{Client, TestBroker};

fn state(client: &mut Client, group: &str) -> String {
    let request = DescribeGroupsRequest { groups: vec![group.into()], ..DescribeGroupsRequest::default() };
    client.call(&request, 5).groups.remove(0).group_state.to_string()
}

fn leave(member: &mut Member) {
    let identity = MemberIdentity { member_id: member.id.clone(), ..MemberIdentity::default() };
    let request =
        LeaveGroupRequest { group_id: member.group.into(), members: vec![identity], ..LeaveGroupRequest::default() };
    let answer = member.client.call(&request, 5);
    assert_eq!((answer.error_code, answer.members[0].error_code), (0, 0));
}

#[test]
fn two_members_share_and_the_one_that_stays_takes_over() {
    let broker = TestBroker::start_with(&[AT_ONCE]);
    let mut a = Member::new(&broker, "readers", None);
    let mut b = Member::new(&broker, "readers", None);
    assert_eq!(a.settle(), a.id.as_bytes());
    let b_settles = std::thread::spawn(move || (b.settle(), b));
    while a.heartbeat() != ErrorCode::RebalanceInProgress {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let joined = a.join();
    assert_eq!((joined.error_code, joined.members.len()), (0, 2), "the leader sees both");
    assert_eq!(a.sync(&joined).unwrap(), a.id.as_bytes());
    let (assignment, mut b) = b_settles.join().unwrap();
    assert_eq!(assignment, b.id.as_bytes());
    assert_eq!(a.generation, b.generation);
    leave(&mut b);
    assert_eq!(a.heartbeat(), ErrorCode::RebalanceInProgress);
    assert_eq!(a.join().members.len(), 1);
    assert_eq!(b.heartbeat(), ErrorCode::UnknownMemberId);
}

#[test]
fn many_members_that_join_at_once_all_get_their_part() {
    let broker = TestBroker::start_with(&["group.initial.rebalance.delay.ms=50"]);
    let threads: Vec<_> = (0..16)
        .map(|number| {
            let mut member = Member::new(&broker, "crowd", None);
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(number * 7));
                let mut part = member.settle();
                // Others may come still: all stay until nobody has to join again for a while.
                let mut quiet = 0;
                while quiet < 30 {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    quiet += 1;
                    if member.heartbeat() != ErrorCode::None {
                        part = member.settle();
                        quiet = 0;
                    }
                }
                assert_eq!(part, member.id.as_bytes());
                member.generation
            })
        })
        .collect();
    let generations: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(generations.iter().all(|generation| *generation == generations[0]), "{generations:?}");
}

#[test]
fn a_static_member_that_restarts_costs_no_rebalance_and_fences_its_old_self() {
    let broker = TestBroker::start_with(&[AT_ONCE]);
    let mut old = Member::new(&broker, "statics", Some("one"));
    old.settle();
    let mut new = Member::new(&broker, "statics", Some("one"));
    let joined = new.join();
    assert_eq!((joined.error_code, joined.generation_id), (0, old.generation));
    assert!(joined.skip_assignment, "the leader is told to leave the assignment alone");
    assert_eq!(new.sync(&Default::default()).unwrap(), old.id.as_bytes(), "what was assigned before");
    assert_eq!(old.heartbeat(), ErrorCode::FencedInstanceId);
    assert_eq!(old.commit(1), ErrorCode::UnknownTopicOrPartition, "the topic is looked at first");
}

#[test]
fn members_do_not_notice_that_the_broker_restarted() {
    let broker = TestBroker::start_with(&[AT_ONCE]);
    broker.client().create_topic("orders");
    let mut member = Member::new(&broker, "faithful", None);
    let assignment = member.settle();
    assert_eq!(member.commit(17), ErrorCode::None);
    let broker = TestBroker::start_in(broker.stop(), &[AT_ONCE]);
    member.client = coordinated(&broker, "faithful");
    assert_eq!(state(&mut member.client, "faithful"), "Stable");
    assert_eq!(member.heartbeat(), ErrorCode::None);
    assert_eq!(member.sync(&Default::default()).unwrap(), assignment);
    assert_eq!(member.commit(18), ErrorCode::None);
}

#[test]
fn a_join_that_waits_does_not_hold_up_the_stop() {
    let broker = TestBroker::start_with(&["group.initial.rebalance.delay.ms=60000"]);
    let mut member = Member::new(&broker, "patient", None);
    member.client.send(&JoinGroupRequest { rebalance_timeout_ms: 600_000, ..member.join_request() }, JOIN_WITHOUT_ID);
    while state(&mut broker.client(), "patient") != "PreparingRebalance" {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let began = std::time::Instant::now();
    broker.stop();
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "the stop gives stuck connections 5 s");
    let (_, answer) = member.client.receive::<JoinGroupRequest>(JOIN_WITHOUT_ID);
    assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::NotCoordinator);
}

#[test]
fn every_version_of_join_is_answered_as_it_should() {
    let broker = TestBroker::start_with(&[AT_ONCE]);
    for version in 0..=JOIN {
        let mut member = Member::new(&broker, "versions", None);
        let mut joined = member.client.call(&member.join_request(), version);
        if version >= 4 {
            assert_eq!(ErrorCode::from_code(joined.error_code), ErrorCode::MemberIdRequired, "version {version}");
            member.id = joined.member_id;
            joined = member.client.call(&member.join_request(), version);
        }
        assert_eq!(joined.error_code, 0, "version {version}");
        assert_eq!(joined.protocol_type.is_some(), version >= 7, "version {version}");
        member.id = joined.member_id.clone();
        assert_eq!(joined.leader, member.id, "version {version}");
        leave(&mut member);
    }
}

#[test]
fn a_session_timeout_outside_the_limits_is_refused_with_its_own_error() {
    let broker = TestBroker::start_with(&[AT_ONCE]);
    let mut member = Member::new(&broker, "hasty", None);
    for version in [0, 5, 9] {
        let request = JoinGroupRequest { session_timeout_ms: 10, ..member.join_request() };
        let answer = member.client.call(&request, version);
        assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::InvalidSessionTimeout);
    }
    assert_eq!(state(&mut member.client, "hasty"), "Dead");
}

#[test]
fn groups_are_listed_by_state_and_described_with_their_members() {
    let broker = TestBroker::start_with(&[AT_ONCE]);
    let mut member = Member::new(&broker, "listed", Some("one"));
    member.settle();
    let listed = |client: &mut Client, states: &[&str]| {
        let states_filter = states.iter().map(|state| (*state).into()).collect();
        client.call(&ListGroupsRequest { states_filter, ..ListGroupsRequest::default() }, 5).groups
    };
    assert_eq!(listed(&mut member.client, &["Empty"]), []);
    let groups = listed(&mut member.client, &["Stable", "Empty"]);
    assert_eq!((&*groups[0].group_id, &*groups[0].group_type, groups.len()), ("listed", "classic", 1));
    for version in 0..=6 {
        let request = DescribeGroupsRequest {
            groups: vec!["listed".into(), "missing".into()],
            include_authorized_operations: version >= 3,
        };
        let groups = member.client.call(&request, version).groups;
        let described = &groups[0].members[0];
        assert_eq!((&*groups[0].group_state, &*groups[0].protocol_data), ("Stable", "range"));
        assert_eq!((&*described.client_id, &*described.client_host), ("test", "/127.0.0.1"));
        assert_eq!(described.group_instance_id.is_some(), version >= 4, "version {version}");
        assert_eq!(described.member_assignment, member.id.as_bytes());
        let missing = if version >= 6 { ErrorCode::GroupIdNotFound } else { ErrorCode::None };
        assert_eq!((ErrorCode::from_code(groups[1].error_code), &*groups[1].group_state), (missing, "Dead"));
    }
}
