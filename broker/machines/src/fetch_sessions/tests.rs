//! Sessions against a client that believes what it is told, and the rules of who makes room.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Sessions = FetchSessions<u32, i64>;

fn told(high_watermark: i64, log_start: i64) -> Told {
    Told { high_watermark, log_start, news: false, failed: false }
}

fn asked(session_id: i32, epoch: i32, partitions: &[(u32, i64)]) -> Asked<u32, i64> {
    let (partitions, forgotten) = (partitions.to_vec(), Vec::new());
    Asked { session_id, epoch, by_topic_id: true, of_replica: false, partitions, forgotten }
}

/// Begins a session of some partitions that nothing is known of; gives its id.
fn begin(sessions: &mut Sessions, id: i32, partitions: u32, of_replica: bool, now_ms: i64) -> i32 {
    let wanted: Vec<_> = (0..partitions).map(|key| (key, 0)).collect();
    let (wanted, ticket) = sessions.begin(Asked { of_replica, ..asked(0, 0, &wanted) }, now_ms).unwrap();
    let fetched = wanted.into_iter().map(|(key, position)| (key, position, told(0, 0))).collect();
    sessions.finish(ticket, fetched, &mut || id, now_ms).unwrap().session_id
}

/// Goes on with a session of which everything is as it was.
fn go_on(sessions: &mut Sessions, id: i32, epoch: i32, now_ms: i64) -> Result<Answer, SessionError> {
    let (wanted, ticket) = sessions.begin(asked(id, epoch, &[]), now_ms)?;
    let fetched = wanted.into_iter().map(|(key, position)| (key, position, told(0, 0))).collect();
    sessions.finish(ticket, fetched, &mut || 1, now_ms)
}

#[test]
fn a_fetch_outside_sessions_is_told_everything_and_ends_the_session_it_names() {
    let mut sessions = Sessions::new(10);
    let id = begin(&mut sessions, 7, 2, false, 0);
    let (wanted, ticket) = sessions.begin(asked(id, -1, &[(5, 50)]), 1).unwrap();
    assert_eq!(wanted, [(5, 50)]);
    let answer = sessions.finish(ticket, vec![(5, 50, told(9, 0))], &mut || 8, 1).unwrap();
    assert_eq!((answer, sessions.len()), (Answer { session_id: 0, told: vec![true] }, 0));
}

#[test]
fn a_session_goes_on_by_its_epoch_and_by_nothing_else() {
    let mut sessions = Sessions::new(10);
    let id = begin(&mut sessions, 7, 2, false, 0);
    assert_eq!(go_on(&mut sessions, 8, 1, 1), Err(SessionError::NotFound { id: 8 }));
    assert_eq!(go_on(&mut sessions, 0, 3, 1), Err(SessionError::NotFound { id: 0 }));
    assert_eq!(go_on(&mut sessions, id, 1, 1).unwrap().told, [false, false], "nothing has changed");
    assert_eq!(go_on(&mut sessions, id, 1, 1), Err(SessionError::Epoch { id, expected: 2, found: 1 }));
    assert!(go_on(&mut sessions, id, 2, 1).is_ok(), "an error ends nothing");
    let by_name = Asked { by_topic_id: false, ..asked(id, 3, &[(1, 1)]) };
    assert_eq!(sessions.begin(by_name, 1).unwrap_err(), SessionError::TopicNaming { id, by_topic_id: true });
    // As it would be after two thousand million fetches.
    sessions.sessions.get_mut(&id).unwrap().epoch = i32::MAX;
    go_on(&mut sessions, id, i32::MAX, 1).unwrap();
    go_on(&mut sessions, id, 1, 1).unwrap();
}

#[test]
fn of_two_answers_to_one_session_at_a_time_the_older_is_refused() {
    let mut sessions = Sessions::new(10);
    let id = begin(&mut sessions, 7, 1, false, 0);
    let (_, first) = sessions.begin(asked(id, 1, &[]), 1).unwrap();
    let (_, second) = sessions.begin(asked(id, 2, &[]), 1).unwrap();
    let fetched = || vec![(0, 0, told(5, 0))];
    assert!(matches!(sessions.finish(first, fetched(), &mut || 1, 1), Err(SessionError::Epoch { .. })));
    assert_eq!(sessions.finish(second, fetched(), &mut || 1, 1).unwrap().told, [true]);
}

#[test]
fn partitions_come_and_go_and_the_last_takes_the_session_along() {
    let mut sessions = Sessions::new(10);
    let id = begin(&mut sessions, 7, 2, false, 0);
    let (wanted, _) = sessions.begin(Asked { forgotten: vec![0, 99], ..asked(id, 1, &[(1, 11), (2, 22)]) }, 1).unwrap();
    assert_eq!(wanted, [(1, 11), (2, 22)]);
    let (wanted, ticket) = sessions.begin(Asked { forgotten: vec![1, 2], ..asked(id, 2, &[]) }, 1).unwrap();
    assert_eq!((wanted.len(), sessions.len()), (0, 0));
    assert_eq!(sessions.finish(ticket, Vec::new(), &mut || 1, 1).unwrap().session_id, 0);
}

#[test]
fn who_brought_records_comes_last_the_next_time() {
    let mut sessions = Sessions::new(10);
    let id = begin(&mut sessions, 7, 3, false, 0);
    let (wanted, ticket) = sessions.begin(asked(id, 1, &[]), 1).unwrap();
    let fetched = wanted.iter().map(|(key, position)| (*key, *position, Told { news: *key == 0, ..told(0, 0) }));
    assert_eq!(sessions.finish(ticket, fetched.collect(), &mut || 1, 1).unwrap().told, [true, false, false]);
    let (wanted, _) = sessions.begin(asked(id, 2, &[(0, 9)]), 1).unwrap();
    assert_eq!(wanted, [(1, 0), (2, 0), (0, 9)]);
}

#[test]
fn without_room_there_is_no_session_and_the_answer_is_whole() {
    let mut sessions = Sessions::new(1);
    assert_eq!(begin(&mut sessions, 1, 3, false, 0), 1);
    assert_eq!(begin(&mut sessions, 2, 9, false, SAFE_MS), NO_SESSION, "the first is young still");
    assert_eq!(begin(&mut sessions, 3, 0, false, SAFE_MS), NO_SESSION, "a session of nothing is none");
    assert_eq!(begin(&mut Sessions::new(0), 4, 3, false, 0), NO_SESSION);
}

#[test]
fn a_session_unused_for_two_minutes_makes_room_first() {
    let mut sessions = Sessions::new(2);
    for id in [1, 2] {
        begin(&mut sessions, id, 5, false, 0);
    }
    go_on(&mut sessions, 1, 1, 10).unwrap();
    assert_eq!(begin(&mut sessions, 3, 1, false, SAFE_MS + 1), 3);
    assert_eq!(go_on(&mut sessions, 2, 1, SAFE_MS + 1), Err(SessionError::NotFound { id: 2 }));
    assert!(go_on(&mut sessions, 1, 2, SAFE_MS + 1).is_ok());
    assert_eq!(sessions.evictions(), 1);
}

#[test]
fn a_session_in_use_makes_room_for_a_larger_one_only() {
    let mut sessions = Sessions::new(2);
    for (id, partitions) in [(1, 5), (2, 3)] {
        begin(&mut sessions, id, partitions, false, 0);
        go_on(&mut sessions, id, 1, SAFE_MS).unwrap();
    }
    assert_eq!(begin(&mut sessions, 3, 3, false, SAFE_MS + 1), NO_SESSION);
    assert_eq!(begin(&mut sessions, 4, 4, false, SAFE_MS + 1), 4);
    assert!(go_on(&mut sessions, 1, 2, SAFE_MS + 2).is_ok(), "the smallest has gone");
}

#[test]
fn replicas_take_the_place_of_consumers_and_never_the_other_way_round() {
    let mut sessions = Sessions::new(1);
    begin(&mut sessions, 1, 50, false, 0);
    assert_eq!(begin(&mut sessions, 2, 1, true, 1), 2, "even that of a young and larger session");
    go_on(&mut sessions, 2, 1, SAFE_MS).unwrap();
    assert_eq!(begin(&mut sessions, 3, 50, false, SAFE_MS + 2), NO_SESSION);
}

/// What happens to one of a few partitions of a broker, or what its client does.
#[derive(Debug, Clone)]
enum Step {
    Append(u32),
    Delete(u32),
    Fail(u32),
    Mend(u32),
    Want(u32),
    Forget(u32),
    Fetch,
    /// The answer does not arrive.
    Lose,
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let partition = 0..4_u32;
    let step = prop_oneof![
        3 => partition.clone().prop_map(Step::Append),
        1 => partition.clone().prop_map(Step::Delete),
        1 => partition.clone().prop_map(Step::Fail),
        1 => partition.clone().prop_map(Step::Mend),
        2 => partition.clone().prop_map(Step::Want),
        1 => partition.prop_map(Step::Forget),
        6 => Just(Step::Fetch),
        1 => Just(Step::Lose),
        1 => Just(Step::Evict),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A broker's partitions, and a client with what it wants, what it has read and what it believes.
#[derive(Default)]
struct World {
    real: BTreeMap<u32, Told>,
    wanted: BTreeMap<u32, i64>,
    /// Changes that were not told to the broker yet.
    to_want: BTreeMap<u32, i64>,
    to_forget: Vec<u32>,
    believed: BTreeMap<u32, (i64, i64, bool)>,
    session: (i32, i32),
    next_id: i32,
}

impl World {
    fn real(&self, key: u32) -> Told {
        self.real.get(&key).copied().unwrap_or(told(0, 0))
    }

    fn change(&mut self, key: u32, change: impl FnOnce(&mut Told)) {
        let mut now = self.real(key);
        change(&mut now);
        self.real.insert(key, now);
    }

    fn request(&mut self) -> Asked<u32, i64> {
        let (session_id, epoch) = self.session;
        let all = epoch == 0;
        let (to_want, forgotten) = (std::mem::take(&mut self.to_want), std::mem::take(&mut self.to_forget));
        let partitions: Vec<_> = if all { self.wanted.clone() } else { to_want }.into_iter().collect();
        Asked { forgotten: if all { Vec::new() } else { forgotten }, ..asked(session_id, epoch, &partitions) }
    }

    fn fetch(&mut self, sessions: &mut Sessions, arrives: bool) {
        let request = self.request();
        let answer = sessions.begin(request, 0).and_then(|(wanted, ticket)| {
            assert_eq!(
                wanted.iter().copied().collect::<BTreeMap<_, _>>(),
                self.wanted,
                "the broker knows what is wanted"
            );
            let fetched: Vec<_> = wanted
                .iter()
                .map(|(key, from)| {
                    let now = self.real(*key);
                    (*key, *from, Told { news: !now.failed && now.high_watermark > *from, ..now })
                })
                .collect();
            self.next_id += 1;
            let answer = sessions.finish(ticket, fetched.clone(), &mut || self.next_id, 0)?;
            Ok((answer, fetched))
        });
        if !arrives {
            return;
        }
        let Ok((answer, fetched)) = answer else {
            self.session = (self.session.0, 0);
            return;
        };
        let full = self.session.1 == 0;
        self.session = if answer.session_id == 0 { (0, 0) } else { (answer.session_id, self.session.1 + 1) };
        for ((key, from, told), is_told) in fetched.into_iter().zip(answer.told) {
            assert!(is_told || !(full || told.news || told.failed), "{key} has news");
            if is_told {
                self.believed.insert(key, (told.high_watermark, told.log_start, told.failed));
            }
            if told.news {
                self.wanted.insert(key, told.high_watermark);
                self.to_want.insert(key, told.high_watermark);
            }
            assert_eq!(self.believed[&key], (told.high_watermark, told.log_start, told.failed), "{key} from {from}");
        }
    }

    fn step(&mut self, sessions: &mut Sessions, step: &Step) {
        match *step {
            Step::Append(key) => self.change(key, |told| told.high_watermark += 1),
            Step::Delete(key) => self.change(key, |told| told.log_start = told.high_watermark),
            Step::Fail(key) => self.change(key, |told| told.failed = true),
            Step::Mend(key) => self.change(key, |told| told.failed = false),
            Step::Want(key) => {
                if !self.wanted.contains_key(&key) {
                    self.to_forget.retain(|forgotten| *forgotten != key);
                    self.wanted.insert(key, 0);
                    self.to_want.insert(key, 0);
                }
            }
            Step::Forget(key) => {
                if self.wanted.remove(&key).is_some() {
                    self.to_want.remove(&key);
                    self.to_forget.push(key);
                }
            }
            Step::Fetch => self.fetch(sessions, true),
            Step::Lose => self.fetch(sessions, false),
            Step::Evict => sessions.sessions.clear(),
        }
    }
}

proptest! {
    #[test]
    fn a_client_that_takes_in_every_answer_knows_what_full_answers_would_have_told_it(steps in steps()) {
        let mut sessions = Sessions::new(4);
        let mut world = World::default();
        for step in &steps {
            world.step(&mut sessions, step);
            prop_assert!(sessions.len() <= 4);
        }
        // Two fetches end any disagreement: one that is refused, one that begins anew.
        world.fetch(&mut sessions, true);
        world.fetch(&mut sessions, true);
        for key in world.wanted.keys() {
            let real = world.real(*key);
            prop_assert_eq!(world.believed[key], (real.high_watermark, real.log_start, real.failed));
        }
    }
}
