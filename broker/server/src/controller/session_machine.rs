//! What the controller remembers of the brokers, and what follows from it: a state and an event give the next state; [`Machine::due`]
//! says what is to be done. No clock, no I/O: time is a parameter.
//!
//! What must hold:
//! - a broker is fenced when nothing was heard of it for the session's length, when its process was found dead, or when it says that its
//!   disk hangs, and for no other reason; a controller that is new, or was itself held up, gives everybody a whole session, since it could not have heard them; only
//!   of the one before it does it know how long it has been silent;
//! - a life that was found dead does not come back: a word of it that was under way when it died must not unfence it;
//! - a broker is unfenced only when it says, after it was fenced, that it is ready, and works by an image that has its registration;
//! - without other brokers there is nothing to wait for: no deadline, no wake-up.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_broker_machines::metadata::{
    BrokerLife, ElectionRules, Inability, MetadataImage, Settings, UnableReplicas, replicas_unable,
};
use forebay_broker_wire::types::{BrokerId, PartitionIndex, Uuid};

use super::balance::Unable;
use super::protocol::{Heartbeat, HeartbeatAnswer};

/// Turns of the machine in a session, when nothing else happens.
const TURNS_PER_SESSION: u32 = 6;
/// What a former controller's silence before an election counts for, of a session: it may have been this broker that did not listen.
const SILENCE_SHARE_MAX: u32 = 3;
/// A pause of more turns than this was the controller's own: it could not have heard anybody.
const TURNS_MISSED: u32 = 2;

/// What counts in elections, by the settings of all and a topic's own.
pub(crate) type Elections<'a> = dyn Fn(&MetadataImage, &Settings) -> ElectionRules + 'a;

/// What is known of one life of a broker.
#[derive(Debug)]
struct Session {
    broker_epoch: i64,
    /// When something was heard of it, since the machine's zero.
    heard: Duration,
    /// As its last heartbeat said: its disk hangs.
    hung: bool,
    /// As its last heartbeat said: it is ready, and works by an image that has its registration.
    can_serve: bool,
    /// Its process is gone.
    dead: bool,
    probe: Probe,
    offline: Vec<(Uuid, PartitionIndex)>,
    full: Vec<(Uuid, PartitionIndex)>,
    low: Vec<(Uuid, PartitionIndex)>,
}

/// Whether somebody looks if the process is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    Unneeded,
    Wanted,
    Running,
    /// Another sign of death came while one was running.
    RunningAndWanted,
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nobody listens at its address: the process is gone.
    Nobody,
    /// A process listens, or nobody can tell.
    Perhaps,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Look whether the process is there.
    Probe(BrokerLife),
    /// Fence it.
    Fence { life: BrokerLife, why: Why },
    /// Unfence it.
    Unfence(BrokerLife),
}

/// Why a broker is fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its process is gone.
    Dead,
    /// Nothing was heard of it for the session's length.
    Silent,
    /// It says itself that its disk hangs.
    Hung,
}

/// The controller's memory of the brokers.
#[derive(Debug)]
pub(crate) struct Machine {
    own: BrokerId,
    session_timeout: Duration,
    sessions: BTreeMap<BrokerId, Session>,
    last_turn: Duration,
}

impl Machine {
    /// A controller that was replaced because it was silent for so long has used up some of its session.
    pub(crate) fn was_silent(&mut self, id: BrokerId, silence: Duration) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| id != self.own) {
            session.heard = session.heard.saturating_sub(silence.min(self.session_timeout / SILENCE_SHARE_MAX));
        }
    }

    /// Begins with an image: all that is in it is heard of now, and those that are relied on are looked for.
    pub(crate) fn new(own: BrokerId, session_timeout: Duration, image: &MetadataImage, now: Duration) -> Self {
        let mut machine = Self { own, session_timeout, sessions: BTreeMap::new(), last_turn: now };
        machine.follow(image, now);
        for life in image.live_brokers() {
            machine.want_probe(life.id);
        }
        machine
    }

    /// The metadata has changed: new lives begin, others end.
    fn follow(&mut self, image: &MetadataImage, now: Duration) {
        if now.saturating_sub(self.last_turn) > self.session_timeout * TURNS_MISSED / TURNS_PER_SESSION {
            self.sessions.values_mut().for_each(|session| session.heard = now);
        }
        self.last_turn = now;
        self.sessions.retain(|id, _| image.broker(*id).is_some());
        for broker in image.brokers() {
            let known = self.sessions.get(&broker.id).map(|session| session.broker_epoch);
            if known.is_none_or(|known| known < broker.epoch) {
                let session = Session {
                    broker_epoch: broker.epoch,
                    heard: now,
                    hung: false,
                    can_serve: false,
                    dead: false,
                    probe: Probe::Unneeded,
                    offline: Vec::new(),
                    full: Vec::new(),
                    low: Vec::new(),
                };
                self.sessions.insert(broker.id, session);
            }
        }
    }

    /// A broker says that it is there.
    pub(crate) fn heartbeat(&mut self, beat: &Heartbeat, image: &MetadataImage, now: Duration) -> HeartbeatAnswer {
        self.follow(image, now);
        let BrokerLife { broker_id, broker_epoch } = beat.life;
        let current = |session: &&mut Session| session.broker_epoch == broker_epoch && !session.dead;
        let Some(session) = self.sessions.get_mut(&broker_id).filter(current) else {
            return HeartbeatAnswer::NotRegistered;
        };
        session.heard = now;
        session.hung = beat.hung;
        session.can_serve = beat.ready && !beat.hung && beat.applied_version > broker_epoch;
        session.offline.clone_from(&beat.offline);
        session.full.clone_from(&beat.full);
        session.low.clone_from(&beat.low);
        match image.broker(broker_id) {
            Some(broker) if !broker.fenced => HeartbeatAnswer::Live,
            _ => HeartbeatAnswer::Fenced,
        }
    }

    /// A connection of a broker has closed: perhaps its process is gone.
    pub(crate) fn want_probe(&mut self, id: BrokerId) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| id != self.own) {
            session.probe = match session.probe {
                Probe::Unneeded | Probe::Wanted => Probe::Wanted,
                Probe::Running | Probe::RunningAndWanted => Probe::RunningAndWanted,
            };
        }
    }

    /// A probe of that life has ended.
    pub(crate) fn probed(&mut self, life: BrokerLife, found: Found) {
        let current = |session: &&mut Session| session.broker_epoch == life.broker_epoch;
        if let Some(session) = self.sessions.get_mut(&life.broker_id).filter(current) {
            session.dead |= found == Found::Nobody;
            session.probe = match session.probe {
                Probe::RunningAndWanted => Probe::Wanted,
                _ => Probe::Unneeded,
            };
        }
    }

    /// What is to be done now. Whatever is not done is due again.
    pub(crate) fn due(&mut self, image: &MetadataImage, now: Duration) -> Vec<Action> {
        self.follow(image, now);
        let mut actions = Vec::new();
        for (id, session) in &mut self.sessions {
            let life = BrokerLife { broker_id: *id, broker_epoch: session.broker_epoch };
            let Some(broker) = image.broker(*id).filter(|broker| broker.epoch == session.broker_epoch) else {
                continue;
            };
            let fault = session.fault(*id == self.own, now, self.session_timeout);
            if !broker.fenced {
                if let Some(why) = fault {
                    // What it said before counts no more.
                    session.can_serve = false;
                    actions.push(Action::Fence { life, why });
                } else if session.probe == Probe::Wanted {
                    session.probe = Probe::Running;
                    actions.push(Action::Probe(life));
                }
            } else if session.can_serve && fault.is_none() && !broker.in_controlled_shutdown {
                actions.push(Action::Unfence(life));
            }
        }
        actions
    }

    /// Replicas that can't be written to, of the partitions in which others can take their part.
    pub(crate) fn still_relied_on(&self, image: &MetadataImage, elections: &Elections<'_>) -> Vec<UnableReplicas> {
        let mut unable: BTreeMap<_, Vec<(BrokerLife, Inability)>> = BTreeMap::new();
        for (id, session) in &self.sessions {
            let at_work = |epoch| image.broker(*id).is_some_and(|broker| broker.epoch == epoch && !broker.fenced);
            if at_work(session.broker_epoch) {
                let life = BrokerLife { broker_id: *id, broker_epoch: session.broker_epoch };
                session.unable().for_each(|(key, why)| unable.entry(*key).or_default().push((life, why)));
            }
        }
        let relieved = |((topic_id, partition), replicas): (&(Uuid, PartitionIndex), &Vec<(BrokerLife, Inability)>)| {
            let topic = image.topic_by_id(*topic_id)?;
            let now = topic.partition(*partition)?;
            let of: Vec<_> = replicas.iter().map(|(life, why)| (life.broker_id, *why)).collect();
            replicas_unable(now, &of, &|id| image.may_lead(id), &elections(image, &topic.config))?;
            Some(UnableReplicas { topic_id: *topic_id, partition: *partition, replicas: replicas.clone() })
        };
        unable.iter().filter_map(relieved).collect()
    }

    /// All replicas that can't be written to, as last heard.
    pub(crate) fn unable(&self) -> Unable {
        let of =
            |(id, session): (&BrokerId, &Session)| session.unable().map(|(key, _)| (*id, *key)).collect::<Vec<_>>();
        self.sessions.iter().flat_map(of).collect()
    }

    /// When something is due although nothing happens; none if that can't be.
    pub(crate) fn deadline(&self, image: &MetadataImage) -> Option<Duration> {
        let live = |id: &BrokerId| *id != self.own && image.broker(*id).is_some_and(|broker| !broker.fenced);
        let live = self.sessions.iter().filter(|(id, _)| live(id));
        let first = live.map(|(_, session)| session.heard + self.session_timeout).min()?;
        Some(first.min(self.last_turn + self.session_timeout / TURNS_PER_SESSION))
    }
}

impl Session {
    /// Why the broker can't be relied on. The controller's own is, as long as it is the controller.
    fn fault(&self, own: bool, now: Duration, session_timeout: Duration) -> Option<Why> {
        let silent = now >= self.heard + session_timeout;
        match self {
            Self { dead: true, .. } => Some(Why::Dead),
            _ if own => None,
            Self { hung: true, .. } => Some(Why::Hung),
            _ => silent.then_some(Why::Silent),
        }
    }

    fn unable(&self) -> impl Iterator<Item = (&(Uuid, PartitionIndex), Inability)> {
        let named = [(&self.offline, Inability::Offline), (&self.full, Inability::Full), (&self.low, Inability::Low)];
        named.into_iter().flat_map(|(keys, why)| keys.iter().map(move |key| (key, why)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_broker_machines::metadata::{BrokerRecord, PartitionRecord, Record, TopicRecord};

    use super::*;

    const SESSION: Duration = Duration::from_secs(3);
    const TOPIC: Uuid = Uuid([7; 16]);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Brokers by id: epoch, and whether fenced. A topic's partition is on 0 and 1, led by 1.
    fn image(brokers: &[(i32, i64, bool)]) -> MetadataImage {
        let mut image = MetadataImage::default();
        for (broker_id, broker_epoch, fenced) in brokers.iter().copied() {
            let record = BrokerRecord { broker_id, broker_epoch, fenced, ..BrokerRecord::default() };
            image.apply(&Record::Broker(record)).unwrap();
        }
        let topic = TopicRecord { topic_id: TOPIC, name: "t".to_owned() };
        let (replicas, in_sync_replicas) = (vec![0, 1], vec![0, 1]);
        let partition =
            PartitionRecord { topic_id: TOPIC, replicas, in_sync_replicas, leader: 1, ..PartitionRecord::default() };
        image.apply(&Record::Topic(topic)).unwrap();
        image.apply(&Record::Partition(partition)).unwrap();
        image
    }

    fn life(id: i32, broker_epoch: i64) -> BrokerLife {
        BrokerLife { broker_id: BrokerId(id), broker_epoch }
    }

    fn beat(life: BrokerLife) -> Heartbeat {
        Heartbeat {
            life,
            applied_version: life.broker_epoch + 1,
            ready: true,
            hung: false,
            offline: Vec::new(),
            full: Vec::new(),
            low: Vec::new(),
        }
    }

    fn of_first(life: BrokerLife, why: Inability) -> Vec<UnableReplicas> {
        vec![UnableReplicas { topic_id: TOPIC, partition: PartitionIndex(0), replicas: vec![(life, why)] }]
    }

    fn relied_on(machine: &Machine, image: &MetadataImage) -> Vec<UnableReplicas> {
        machine.still_relied_on(image, &|_, _| ElectionRules::default())
    }

    /// Broker 0 is the controller; all probes of the takeover found somebody.
    fn settled(image: &MetadataImage) -> Machine {
        let mut machine = Machine::new(BrokerId(0), SESSION, image, ms(0));
        for action in machine.due(image, ms(0)) {
            let Action::Probe(life) = action else { panic!("{action:?}") };
            machine.probed(life, Found::Perhaps);
        }
        machine
    }

    /// The machine is asked in every turn, as the task does; gives what was due and when.
    fn run(machine: &mut Machine, image: &MetadataImage, from: Duration, to: Duration) -> Vec<(Duration, Action)> {
        let mut seen = Vec::new();
        let mut now = from;
        while let Some(next) = machine.deadline(image).filter(|next| *next <= to) {
            now = next.max(now);
            seen.extend(machine.due(image, now).into_iter().map(|action| (now, action)));
            if !seen.is_empty() {
                break;
            }
        }
        seen
    }

    #[test]
    fn a_new_controller_looks_for_everybody_at_once_and_fences_the_dead() {
        let image = image(&[(0, 1, false), (1, 2, false), (2, 3, false), (3, 4, true)]);
        let mut machine = Machine::new(BrokerId(0), SESSION, &image, ms(0));
        let probes = [Action::Probe(life(1, 2)), Action::Probe(life(2, 3))];
        assert_eq!(machine.due(&image, ms(0)), probes, "not for itself, nor for those fenced already");
        assert_eq!(machine.due(&image, ms(1)), [], "once");
        machine.probed(life(1, 2), Found::Nobody);
        machine.probed(life(2, 3), Found::Perhaps);
        assert_eq!(machine.due(&image, ms(2)), [Action::Fence { life: life(1, 2), why: Why::Dead }]);
    }

    #[test]
    fn a_silent_controller_that_was_replaced_is_fenced_sooner_but_not_at_once() {
        let image = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = Machine::new(BrokerId(0), SESSION, &image, ms(10_000));
        machine.was_silent(BrokerId(1), ms(60_000));
        machine.due(&image, ms(10_000));
        machine.probed(life(1, 2), Found::Perhaps);
        let fenced = run(&mut machine, &image, ms(10_000), ms(20_000));
        assert_eq!(fenced, [(ms(12_000), Action::Fence { life: life(1, 2), why: Why::Silent })]);
    }

    #[test]
    fn silence_fences_after_a_whole_session_and_a_word_begins_another() {
        let image = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&image);
        assert_eq!(run(&mut machine, &image, ms(0), ms(2_000)), []);
        assert_eq!(machine.heartbeat(&beat(life(1, 2)), &image, ms(2_000)), HeartbeatAnswer::Live);
        let fenced = run(&mut machine, &image, ms(2_000), ms(9_000));
        assert_eq!(fenced, [(ms(5_000), Action::Fence { life: life(1, 2), why: Why::Silent })]);
    }

    #[test]
    fn a_silent_broker_stays_fenced_until_it_is_heard_of() {
        let live = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&live);
        machine.heartbeat(&beat(life(1, 2)), &live, ms(10));
        let (at, fence) = run(&mut machine, &live, ms(10), ms(9_000)).remove(0);
        assert_eq!(fence, Action::Fence { life: life(1, 2), why: Why::Silent });
        let fenced = image(&[(0, 1, false), (1, 2, true)]);
        for later in [1, 100, 60_000] {
            assert_eq!(machine.due(&fenced, at + ms(later)), [], "also when the controller itself was held up");
        }
        machine.heartbeat(&beat(life(1, 2)), &fenced, at + ms(60_010));
        assert_eq!(machine.due(&fenced, at + ms(60_010)), [Action::Unfence(life(1, 2))]);
    }

    #[test]
    fn a_controller_that_was_held_up_itself_blames_nobody() {
        let image = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&image);
        assert_eq!(machine.due(&image, ms(8_000)), []);
        let fenced = run(&mut machine, &image, ms(8_000), ms(20_000));
        assert_eq!(fenced, [(ms(11_000), Action::Fence { life: life(1, 2), why: Why::Silent })]);
    }

    #[test]
    fn a_dead_life_does_not_come_back_and_the_next_one_does() {
        let before = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&before);
        machine.want_probe(BrokerId(1));
        machine.due(&before, ms(10));
        machine.probed(life(1, 2), Found::Nobody);
        let fenced = image(&[(0, 1, false), (1, 2, true)]);
        assert_eq!(machine.heartbeat(&beat(life(1, 2)), &fenced, ms(20)), HeartbeatAnswer::NotRegistered);
        assert_eq!(machine.due(&fenced, ms(30)), []);
        let again = image(&[(0, 1, false), (1, 9, true)]);
        assert_eq!(machine.heartbeat(&beat(life(1, 2)), &again, ms(40)), HeartbeatAnswer::NotRegistered);
        assert_eq!(machine.heartbeat(&beat(life(1, 9)), &again, ms(50)), HeartbeatAnswer::Fenced);
        assert_eq!(machine.due(&again, ms(50)), [Action::Unfence(life(1, 9))]);
    }

    #[test]
    fn a_broker_is_unfenced_when_it_is_ready_and_knows_of_its_registration() {
        let image = image(&[(0, 1, false), (1, 9, true)]);
        let mut machine = settled(&image);
        let too_early =
            [Heartbeat { ready: false, ..beat(life(1, 9)) }, Heartbeat { applied_version: 9, ..beat(life(1, 9)) }];
        for beat in too_early {
            assert_eq!(machine.heartbeat(&beat, &image, ms(10)), HeartbeatAnswer::Fenced);
            assert_eq!(machine.due(&image, ms(10)), []);
        }
        machine.heartbeat(&beat(life(1, 9)), &image, ms(20));
        assert_eq!(machine.due(&image, ms(20)), [Action::Unfence(life(1, 9))]);
    }

    #[test]
    fn a_sign_of_death_during_a_probe_is_looked_into_afterwards() {
        let image = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&image);
        machine.want_probe(BrokerId(1));
        assert_eq!(machine.due(&image, ms(1)), [Action::Probe(life(1, 2))]);
        machine.want_probe(BrokerId(1));
        assert_eq!(machine.due(&image, ms(2)), []);
        machine.probed(life(1, 2), Found::Perhaps);
        assert_eq!(machine.due(&image, ms(3)), [Action::Probe(life(1, 2))]);
    }

    #[test]
    fn a_broker_whose_disk_hangs_is_fenced_at_its_word_and_back_when_it_goes_on() {
        let before = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&before);
        let hung = Heartbeat { hung: true, ..beat(life(1, 2)) };
        machine.heartbeat(&hung, &before, ms(10));
        assert_eq!(machine.due(&before, ms(10)), [Action::Fence { life: life(1, 2), why: Why::Hung }]);
        let fenced = image(&[(0, 1, false), (1, 2, true)]);
        assert_eq!(machine.heartbeat(&hung, &fenced, ms(20)), HeartbeatAnswer::Fenced);
        assert_eq!(machine.due(&fenced, ms(20)), []);
        machine.heartbeat(&beat(life(1, 2)), &fenced, ms(30));
        assert_eq!(machine.due(&fenced, ms(30)), [Action::Unfence(life(1, 2))]);
    }

    #[test]
    fn a_broker_alone_waits_for_nothing() {
        let image = image(&[(0, 1, false)]);
        let mut machine = settled(&image);
        machine.heartbeat(&beat(life(0, 1)), &image, ms(5));
        assert_eq!((machine.due(&image, ms(60_000)), machine.deadline(&image)), (vec![], None));
    }

    #[test]
    fn partitions_of_a_failed_disk_are_taken_from_their_broker() {
        let image = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&image);
        let offline = vec![(TOPIC, PartitionIndex(0)), (TOPIC, PartitionIndex(5))];
        machine.heartbeat(&Heartbeat { offline, ..beat(life(1, 2)) }, &image, ms(5));
        assert_eq!(relied_on(&machine, &image), of_first(life(1, 2), Inability::Offline));
    }

    #[test]
    fn a_full_disk_is_relieved_until_its_broker_says_no_more_of_it_and_never_if_all_are_full() {
        let image = image(&[(0, 1, false), (1, 2, false)]);
        let mut machine = settled(&image);
        let full = |life| Heartbeat { full: vec![(TOPIC, PartitionIndex(0))], ..beat(life) };
        machine.heartbeat(&full(life(1, 2)), &image, ms(5));
        assert_eq!(relied_on(&machine, &image), of_first(life(1, 2), Inability::Full));
        machine.heartbeat(&full(life(0, 1)), &image, ms(6));
        assert_eq!(relied_on(&machine, &image), []);
        machine.heartbeat(&beat(life(1, 2)), &image, ms(7));
        assert_eq!(relied_on(&machine, &image), of_first(life(0, 1), Inability::Full));
        let low = Heartbeat { low: vec![(TOPIC, PartitionIndex(0))], ..beat(life(1, 2)) };
        machine.heartbeat(&low, &image, ms(8));
        machine.heartbeat(&beat(life(0, 1)), &image, ms(8));
        assert_eq!(relied_on(&machine, &image), of_first(life(1, 2), Inability::Low));
        machine.heartbeat(&beat(life(1, 2)), &image, ms(9));
        assert_eq!(relied_on(&machine, &image), []);
    }

    #[test]
    fn a_partition_that_only_the_broker_of_the_failed_disk_has_stays_its_own() {
        let mut image = image(&[(0, 1, false), (1, 2, false)]);
        let (replicas, in_sync_replicas) = (vec![0, 1], vec![1]);
        let only =
            PartitionRecord { topic_id: TOPIC, replicas, in_sync_replicas, leader: 1, ..PartitionRecord::default() };
        image.apply(&Record::Partition(only)).unwrap();
        let mut machine = settled(&image);
        let offline = vec![(TOPIC, PartitionIndex(0))];
        machine.heartbeat(&Heartbeat { offline, ..beat(life(1, 2)) }, &image, ms(5));
        assert_eq!(relied_on(&machine, &image), []);
    }
}
