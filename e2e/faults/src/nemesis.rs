//! Which fault comes next: pure, from a seed. The same seed and the same answers to "is all healed?" give the same faults.

use std::time::Duration;

use clap::ValueEnum;

use forebay_e2e_faults::network::Peer;

/// Kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// kill -9, started again later.
    Kill,
    /// SIGTERM, started again later.
    Stop,
    /// SIGSTOP, SIGCONT later.
    Pause,
    /// One direction between two brokers, or a broker and the clients.
    CutOneWay,
    /// Both directions.
    CutBothWays,
    /// A broker from all other brokers, sometimes from the clients too.
    Isolate,
    /// Its disk is full.
    FillDisk,
    /// Writes to its disk hang.
    FreezeDisk,
    /// Its disk stands still most of the time.
    SlowDisk,
    /// kill -9, everything on its disk gone, started again.
    WipeVolume,
    /// kill -9 of all at once, all started again.
    KillAll,
    /// SIGTERM and start, one after the other.
    Roll,
    /// Each of its replicas is to move to its other log dir; kill -9 while they do, and started again.
    MoveReplicas,
}

impl Kind {
    /// All that a cluster of so many brokers must stand without a loss.
    pub(crate) fn all(brokers: i32) -> Vec<Self> {
        let needs_others = |kind: &Self| matches!(kind, Self::Isolate | Self::WipeVolume);
        Self::value_variants().iter().copied().filter(|kind| brokers >= 3 || !needs_others(kind)).collect()
    }

    /// Whether it must find everything healed: it takes on all brokers, or what it takes away must be elsewhere.
    pub(crate) fn wants_calm(self) -> bool {
        matches!(self, Self::WipeVolume | Self::KillAll | Self::Roll)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// A fault to come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) broker: i32,
    /// The directions that are cut.
    pub(crate) cuts: Vec<(Peer, Peer)>,
    pub(crate) hold: Duration,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.hold.as_secs_f64();
        match self.kind {
            Kind::KillAll => write!(f, "{} for {seconds:.1} s", self.kind),
            Kind::Roll => write!(f, "{}", self.kind),
            Kind::CutOneWay | Kind::CutBothWays | Kind::Isolate => {
                let cuts = self.cuts.iter().map(|(from, to)| format!("{from} → {to}"));
                write!(f, "{} for {seconds:.1} s: {}", self.kind, cuts.collect::<Vec<_>>().join(", "))
            }
            _ => write!(f, "{} broker {} for {seconds:.1} s", self.kind, self.broker),
        }
    }
}

/// Steele and Vigna's SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len())).copied()
    }
}

/// Decides. Kinds come like cards of a shuffled deck, so that a short run has all of them too.
#[derive(Clone, Debug)]
pub(crate) struct Nemesis {
    random: Random,
    kinds: Vec<Kind>,
    deck: Vec<Kind>,
    brokers: i32,
    every: Duration,
    /// How long faults may be held, in tenths of `every`.
    tenths: std::ops::Range<usize>,
}

impl Nemesis {
    pub(crate) fn new(seed: u64, kinds: Vec<Kind>, brokers: i32, every: Duration, overlap: bool) -> Self {
        let tenths = 3..if overlap { 14 } else { 8 };
        Self { random: Random(seed), kinds, deck: Vec::new(), brokers, every, tenths }
    }

    /// The next fault. `free` are the brokers that no fault holds now; `calm` says that none is held at all and every replica is in
    /// sync. None when nothing fits just now.
    pub(crate) fn next(&mut self, free: &[i32], calm: bool) -> Option<Fault> {
        let broker = self.random.pick(free)?;
        if self.deck.is_empty() {
            self.deck.clone_from(&self.kinds);
        }
        let fits = |kind: &Kind| calm || !kind.wants_calm();
        let fitting: Vec<usize> = (0..self.deck.len()).filter(|at| self.deck.get(*at).is_some_and(fits)).collect();
        let kind = self.deck.swap_remove(self.random.pick(&fitting)?);
        let tenths = self.tenths.start + self.random.below(self.tenths.len());
        let hold = self.every * u32::try_from(tenths).unwrap_or(1) / 10;
        let cuts = cuts(&mut self.random, kind, broker, self.brokers);
        Some(Fault { kind, broker, cuts, hold })
    }
}

/// The directions that a fault cuts.
fn cuts(random: &mut Random, kind: Kind, broker: i32, brokers: i32) -> Vec<(Peer, Peer)> {
    let me = Peer::Broker(broker);
    let others: Vec<Peer> = (0..brokers).filter(|id| *id != broker).map(Peer::Broker).collect();
    let both = |peer: Peer| [(me, peer), (peer, me)];
    match kind {
        Kind::CutOneWay | Kind::CutBothWays => {
            let peers: Vec<Peer> = others.iter().copied().chain([Peer::Clients]).collect();
            let ways = both(random.pick(&peers).unwrap_or(Peer::Clients));
            if kind == Kind::CutBothWays { ways.to_vec() } else { vec![ways[random.below(2)]] }
        }
        Kind::Isolate => {
            let clients = (random.below(2) == 0).then_some(Peer::Clients);
            others.iter().copied().chain(clients).flat_map(both).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, calm: bool) -> Vec<Fault> {
        let mut nemesis = Nemesis::new(seed, Kind::all(3), 3, Duration::from_secs(10), false);
        (0..300).filter_map(|_| nemesis.next(&[0, 1, 2], calm)).collect()
    }

    #[test]
    fn a_seed_gives_the_same_faults_and_every_kind_of_them() {
        assert_eq!(run(7, true), run(7, true));
        assert_ne!(run(7, true), run(8, true));
        for kind in Kind::all(3) {
            assert!(run(7, true).iter().take(Kind::all(3).len()).any(|fault| fault.kind == kind), "{kind}");
        }
    }

    #[test]
    fn what_takes_the_last_copy_waits_until_all_is_healed() {
        assert!(run(7, false).iter().all(|fault| !fault.kind.wants_calm()));
        assert!(!Kind::all(1).contains(&Kind::WipeVolume));
    }
}
