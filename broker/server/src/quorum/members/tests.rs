//! What brokers conclude from each other's answers, and how voters are replaced.

use forebay_broker_wire::types::Uuid;

use super::*;

fn voter(broker: i32, disk: u8) -> VoterId {
    VoterId { broker: BrokerId(broker), directory: Uuid([disk; 16]) }
}

fn address(broker: i32) -> Address {
    Address { host: format!("b{broker}"), port: 9093 }
}

fn welcome(broker: i32, disk: u8, pristine: bool, leader: Option<(i32, u8)>) -> Welcome {
    let leader = leader.map(|(broker, disk)| Leader { voter: voter(broker, disk), address: address(broker) });
    Welcome { cluster_id: "c".to_owned(), voter: voter(broker, disk), pristine, leader }
}

/// What a broker does, given what it says itself and what the other voters of 0, 1 and 2 say; none is silence.
fn step(own: &Welcome, others: &[(i32, Option<Welcome>)]) -> Step {
    let answers: Answers = others
        .iter()
        .map(|(id, said)| {
            let said = said.clone().map(|welcome| (welcome, address(*id))).ok_or_else(|| format!("b{id} refuses"));
            (BrokerId(*id), said)
        })
        .collect();
    next_step(own, &address(own.voter.broker.0), &[0, 1, 2].map(BrokerId), &answers)
}

#[test]
fn the_first_voter_founds_when_all_say_that_they_know_of_nothing() {
    let [a, b, c] = [0, 1, 2].map(|id| welcome(id, 10, true, None));
    let Step::Found(members) = step(&a, &[(1, Some(b.clone())), (2, Some(c.clone()))]) else { panic!("not founded") };
    assert_eq!(members.keys().copied().collect::<Vec<_>>(), [voter(0, 10), voter(1, 10), voter(2, 10)]);
    assert_eq!(step(&b, &[(0, Some(a)), (2, Some(c))]), Step::Wait("broker 0 to found the cluster".to_owned()));
}

#[test]
fn a_broker_that_does_not_vote_founds_nothing_whatever_its_id() {
    let [a, b, c] = [0, 1, 2].map(|id| Some(welcome(id, 10, true, None)));
    let other = welcome(-1, 10, true, None);
    assert_eq!(step(&other, &[(0, a), (1, b), (2, c)]), Step::Wait("broker 0 to found the cluster".to_owned()));
}

#[test]
fn nobody_founds_while_one_is_silent_since_it_may_be_the_last_that_has_the_data() {
    let [a, b] = [0, 1].map(|id| welcome(id, 10, true, None));
    let words = "all voters, since no metadata is known of yet; not heard of: broker 2 (b2 refuses)";
    assert_eq!(step(&a, &[(1, Some(b)), (2, None)]), Step::Wait(words.to_owned()));
}

#[test]
fn nobody_founds_where_one_has_data() {
    let [a, b] = [0, 1].map(|id| welcome(id, 10, true, None));
    let has_data = welcome(2, 10, false, None);
    assert_eq!(
        step(&a, &[(1, Some(b.clone())), (2, Some(has_data.clone()))]),
        Step::Wait("a leader of the metadata quorum".to_owned())
    );
    assert_eq!(
        step(&has_data, &[(0, Some(a)), (1, Some(b))]),
        Step::Wait("a leader of the metadata quorum".to_owned())
    );
}

#[test]
fn a_new_disk_asks_the_leader_that_says_so_itself() {
    let own = welcome(1, 99, true, None);
    let leads = welcome(0, 10, false, Some((0, 10)));
    let out_of_date = welcome(2, 10, false, Some((1, 10)));
    let leader = Leader { voter: voter(0, 10), address: address(0) };
    assert_eq!(step(&own, &[(0, Some(leads)), (2, Some(out_of_date))]), Step::Join(leader));
}

fn membership(voters: &[VoterId], learners: &[VoterId]) -> Membership {
    let nodes = voters.iter().chain(learners).map(|id| (*id, address(id.broker.0)));
    Membership::new(vec![voters.iter().copied().collect()], nodes.collect::<BTreeMap<_, _>>()).unwrap()
}

fn wanted(ids: &[i32]) -> BTreeSet<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

#[test]
fn a_learner_votes_when_it_has_caught_up_and_its_lost_disk_no_more() {
    let members = membership(&[voter(0, 1), voter(1, 1), voter(2, 1)], &[voter(1, 2)]);
    assert_eq!(change_of(&members, &wanted(&[0, 1, 2]), &|_| false), None);
    let change = ChangeMembers::Batch(vec![
        ChangeMembers::AddVoterIds(BTreeSet::from([voter(1, 2)])),
        ChangeMembers::RemoveVoters(BTreeSet::from([voter(1, 1)])),
    ]);
    assert_eq!(change_of(&members, &wanted(&[0, 1, 2]), &|_| true), Some((change, false)));
}

#[test]
fn brokers_that_are_not_to_vote_stay_learners() {
    let members = membership(&[voter(0, 1), voter(1, 1), voter(2, 1)], &[voter(3, 1)]);
    assert_eq!(change_of(&members, &wanted(&[0, 1, 2]), &|_| true), None);
}

#[test]
fn votes_are_taken_only_when_all_who_are_to_vote_do() {
    let members = membership(&[voter(0, 1), voter(1, 1), voter(2, 1)], &[]);
    assert_eq!(change_of(&members, &wanted(&[0, 1, 3]), &|_| true), None, "broker 3 is not there yet");
    let members = membership(&[voter(0, 1), voter(1, 1), voter(2, 1), voter(3, 1)], &[]);
    let change = ChangeMembers::RemoveVoters(BTreeSet::from([voter(2, 1)]));
    assert_eq!(change_of(&members, &wanted(&[0, 1, 3]), &|_| true), Some((change, true)));
}
