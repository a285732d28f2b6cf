//! The golden scripts of `testdata/` and what does not fit into one.
//!
//! A script tells what happens to one replica, line by line; a line that begins with `=>` says what it does about it and how it then stands.

use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset, PartitionIndex};

use super::*;
use crate::metadata::PartitionImage;

/// The words of a line as `name=value`.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.text(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    }

    fn offset(&self, name: &str) -> Offset {
        Offset(self.number(name).unwrap_or_else(|| panic!("{name}= is missing")))
    }

    fn brokers(&self, name: &str) -> Vec<BrokerId> {
        let text = self.text(name).unwrap_or_default();
        text.split(',').filter(|id| !id.is_empty()).map(|id| BrokerId(id.parse().unwrap())).collect()
    }

    /// `epoch:end`.
    fn epoch_end(&self, name: &str) -> Option<EpochEnd> {
        let (epoch, end) = self.text(name)?.split_once(':').unwrap();
        Some(EpochEnd { epoch: LeaderEpoch(epoch.parse().unwrap()), end: Offset(end.parse().unwrap()) })
    }
}

struct Script {
    replica: Replica,
    proposal: Option<IsrProposal>,
    now_ms: i64,
}

impl Script {
    fn begin(words: &Words<'_>) -> Self {
        let settings = Settings {
            rule: if words.text("rule") == Some("flushed") { CommitRule::Flushed } else { CommitRule::Written },
            min_insync_replicas: words.number("min-isr").unwrap_or(1),
            lag_time_max_ms: words.number("lag").unwrap_or(1000),
            mutation: None,
        };
        let local = BrokerId(words.number("broker").unwrap());
        let replica = Replica::new(local, settings, words.offset("hw"), words.offset("end"));
        Self { replica, proposal: None, now_ms: 0 }
    }

    fn event(&self, name: &str, words: &Words<'_>) -> Event {
        let answered = |answer| Event::IsrAnswered { proposal: self.proposal.clone().unwrap(), answer };
        match name {
            "assigned" => Event::Assigned(PartitionImage {
                index: PartitionIndex(0),
                replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
                in_sync_replicas: words.brokers("isr"),
                leader: words.number("leader").map(BrokerId),
                leader_epoch: LeaderEpoch(words.number("epoch").unwrap()),
                partition_epoch: words.number("state").unwrap(),
                eligible_leader_replicas: words.brokers("elr"),
                ..PartitionImage::default()
            }),
            "written" => Event::Written { log_end: words.offset("end") },
            "flushed" => Event::Flushed { upto: words.offset("upto") },
            "truncated" => Event::Truncated { log_end: words.offset("end") },
            "fetched" => Event::FollowerFetched {
                follower: BrokerId(words.number("by").unwrap()),
                broker_epoch: words.number("life").unwrap_or(1),
                offset: words.offset("from"),
                starts_with_leader: words.text("start") != Some("earlier"),
            },
            "accepted" => answered(IsrAnswer::Accepted {
                partition_epoch: words.number("state").unwrap(),
                in_sync_replicas: words.brokers("isr"),
                may_lead_out_of_sync: words.brokers("elr"),
            }),
            "refused" => answered(IsrAnswer::Refused),
            "stale" => answered(IsrAnswer::Stale),
            "unanswered" => answered(IsrAnswer::Unknown),
            "check" => Event::CheckFollowers,
            "answered" => Event::LeaderAnswered { high_watermark: words.offset("hw") },
            "diverged" => Event::Diverged {
                leader_epoch: LeaderEpoch(words.number("epoch").unwrap()),
                leader_end: words.epoch_end("leader-has").unwrap(),
                local_end: words.epoch_end("here"),
            },
            other => panic!("no event is called {other}"),
        }
    }

    fn step(&mut self, name: &str, words: &Words<'_>) -> String {
        self.now_ms = words.number("at").unwrap_or(self.now_ms);
        let effects = self.replica.step(&self.event(name, words), self.now_ms);
        let mut told = vec![format!("hw {} of {}", self.replica.high_watermark(), self.replica.log_end())];
        if effects.leadership_changed {
            let role = match self.replica.follower().map(|follower| follower.leader) {
                None => "leads".to_owned(),
                Some(Some(leader)) => format!("follows {leader}"),
                Some(None) => "follows nobody".to_owned(),
            };
            told.push(format!("{role} in epoch {}", self.replica.epoch()));
        }
        if let Some(proposal) = effects.proposal {
            let member = |(id, life): &(BrokerId, Option<i64>)| match life {
                Some(life) => format!("{id}@{life}"),
                None => id.to_string(),
            };
            let members: Vec<_> = proposal.in_sync_replicas.iter().map(member).collect();
            told.push(format!("proposes {} on state {}", members.join(","), proposal.partition_epoch));
            self.proposal = Some(proposal);
        }
        told.extend(effects.truncate_to.map(|offset| format!("cuts at {offset}")));
        told.extend(effects.below_min_isr.then(|| "too few in sync".to_owned()));
        told.join("; ")
    }
}

fn play(file: &str, text: &str) {
    let mut script: Option<Script> = None;
    let mut told = String::new();
    for (number, line) in text.lines().enumerate().map(|(n, line)| (n + 1, line.trim())) {
        if let Some(expected) = line.strip_prefix("=> ") {
            assert_eq!(told, expected, "{file}:{number}");
        } else if !line.is_empty() && !line.starts_with('#') {
            let words = Words(line.split_whitespace().collect());
            match (words.0[0], &mut script) {
                ("replica", script) => *script = Some(Script::begin(&words)),
                (name, Some(script)) => told = script.step(name, &words),
                (name, None) => panic!("{file}:{number}: {name} before `replica`"),
            }
        }
    }
}

#[test]
fn a_leader_does_as_the_script_says() {
    play("leader.txt", include_str!("testdata/leader.txt"));
}

#[test]
fn the_isr_changes_as_the_script_says() {
    play("isr.txt", include_str!("testdata/isr.txt"));
}

#[test]
fn a_follower_does_as_the_script_says() {
    play("follower.txt", include_str!("testdata/follower.txt"));
}

fn image(leader: i32, epoch: i32) -> PartitionImage {
    PartitionImage {
        index: PartitionIndex(0),
        replicas: vec![BrokerId(1), BrokerId(2)],
        in_sync_replicas: vec![BrokerId(1), BrokerId(2)],
        leader: Some(BrokerId(leader)),
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: epoch,
        ..PartitionImage::default()
    }
}

fn follower(rule: CommitRule) -> Replica {
    let settings = Settings { rule, ..Settings::default() };
    let mut replica = Replica::new(BrokerId(1), settings, Offset(0), Offset(50));
    replica.step(&Event::Assigned(image(2, 4)), 0);
    replica
}

#[test]
fn a_follower_believes_only_answers_to_what_it_would_ask_now() {
    let mut replica = follower(CommitRule::Written);
    assert!(replica.may_believe(LeaderEpoch(4), Offset(50), true));
    assert!(!replica.may_believe(LeaderEpoch(4), Offset(50), false), "of another log of that length");
    assert!(!replica.may_believe(LeaderEpoch(3), Offset(50), true), "of an earlier leader");
    assert!(!replica.may_believe(LeaderEpoch(4), Offset(40), true), "of an earlier position");
    replica.step(&Event::Assigned(image(1, 5)), 0);
    assert!(!replica.may_believe(LeaderEpoch(5), Offset(50), true), "leaders copy from nobody");
    assert_eq!(replica.may_fetch(), None);
}

#[test]
fn with_flush_messages_1_a_follower_asks_for_more_only_when_what_it_has_is_flushed() {
    let mut replica = follower(CommitRule::Flushed);
    assert_eq!(replica.may_fetch(), Some((BrokerId(2), LeaderEpoch(4))));
    replica.step(&Event::Written { log_end: Offset(60) }, 0);
    assert_eq!(replica.may_fetch(), None);
    replica.step(&Event::Flushed { upto: Offset(60) }, 0);
    assert!(replica.may_fetch().is_some());
    replica.step(&Event::Truncated { log_end: Offset(90) }, 0);
    assert!(replica.may_fetch().is_some(), "an empty log that begins further on has nothing to flush");
}

#[test]
fn a_partition_with_fewer_replicas_than_min_insync_replicas_wants_all_of_them() {
    let settings = Settings { min_insync_replicas: 3, ..Settings::default() };
    let mut replica = Replica::new(BrokerId(1), settings, Offset(0), Offset(50));
    replica.step(&Event::Assigned(image(1, 4)), 0);
    let (follower, broker_epoch, offset) = (BrokerId(2), 1, Offset(50));
    let fetched = Event::FollowerFetched { follower, broker_epoch, offset, starts_with_leader: true };
    assert_eq!(replica.step(&fetched, 0).high_watermark, Some(Offset(50)));
}
