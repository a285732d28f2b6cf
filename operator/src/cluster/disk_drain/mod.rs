//! Removal of disks: what is on them moves to the other disks of the same broker, and they go when they are empty on all brokers. A
//! step function over what is seen, so a restart of the operator loses nothing.
//!
//! What must always hold: a disk goes only when every broker has taken in that nothing new comes to it and then says that nothing is on
//! it; one with a broker's metadata never does; nothing moves to a disk that has not the room.

mod choose;
pub(crate) mod removal;
pub(crate) mod step;
#[cfg(test)]
mod tests;

use forebay_broker_config::status::{BrokerStatus, LogDirStatus};
use forebay_crds::cluster::Disk;

use self::choose::Layout;
use crate::kafka::log_dirs::{DirMove, DirSeen};

/// Replicas on their way at a time, over all brokers.
pub(crate) const DIR_MOVES_AT_ONCE: usize = 100;

/// A broker and its disks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokerDisks<'a> {
    pub(crate) id: i32,
    pub(crate) ready: bool,
    /// The disks that its pod was made with, by name.
    pub(crate) mounts: &'a [String],
    /// What it says of itself.
    pub(crate) said: Option<&'a BrokerStatus>,
    /// What is on its disks; asked after it had said the above.
    pub(crate) dirs: Option<&'a Result<Vec<DirSeen>, String>>,
}

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// Disks that are to go and may have something.
    pub(crate) removing: &'a [Disk],
    /// Every broker that there is to be.
    pub(crate) brokers: &'a [BrokerDisks<'a>],
}

/// The next step, and what people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// No disk is to be emptied.
    Nothing,
    /// It can't be done as asked.
    Refuse(String),
    /// Something has to come first, or is under way.
    Wait(String),
    /// Replicas are to move.
    Move { moves: Vec<DirMove>, text: String },
    /// These disks have nothing any more: they may go.
    Emptied(Vec<String>),
}

pub(crate) fn next(situation: &Situation<'_>) -> Step {
    let Situation { removing, brokers } = *situation;
    if removing.is_empty() {
        return Step::Nothing;
    }
    if let Some(why) = metadata(removing, brokers) {
        return Step::Refuse(why);
    }
    let mut layouts = Vec::new();
    for broker in brokers {
        let has: Vec<&Disk> = removing.iter().filter(|disk| broker.mounts.contains(&disk.name)).collect();
        match look(broker, &has) {
            Ok(None) => {}
            Ok(Some((said, dirs))) => layouts.push(Layout::of(broker.id, &has, said, dirs)),
            Err(why) => return Step::Wait(why),
        }
    }
    let who = disks(removing);
    let (mut left, mut under_way, mut waiting) = (0, 0, Vec::new());
    for layout in &layouts {
        let (moves, count) = match layout.choose() {
            Ok(chosen) => chosen,
            Err(why) => return Step::Refuse(format!("{who} can't be removed: {why}")),
        };
        (left, under_way) = (left + count, under_way + count.saturating_sub(moves.len()));
        waiting.push(moves);
    }
    if left == 0 {
        if let Some(why) = unserved(removing, brokers) {
            return Step::Wait(why);
        }
        return Step::Emptied(removing.iter().map(|disk| disk.name.clone()).collect());
    }
    let moves = fairly(waiting, DIR_MOVES_AT_ONCE.saturating_sub(under_way));
    match moves.len() {
        0 => Step::Wait(format!("{who}: {left} replicas left, {under_way} of them on their way")),
        begin => Step::Move { moves, text: format!("{who}: {left} replicas left, {begin} more begin to move") },
    }
}

/// What a broker has on the disks that are to go; nothing if its pod has none of them.
fn look<'a>(broker: &BrokerDisks<'a>, has: &[&Disk]) -> Result<Option<(&'a BrokerStatus, &'a [DirSeen])>, String> {
    let (id, who) = (broker.id, disks(has.iter().copied()));
    if !broker.ready {
        return Err(format!("broker {id} is not ready, and what it has on its disks is not known"));
    }
    if has.is_empty() {
        return Ok(None);
    }
    let said = broker.said.ok_or_else(|| format!("broker {id} does not say how its disks are"))?;
    for disk in has {
        let without = || format!("broker {id} runs without disk {}, and what is on it is not known", disk.name);
        let dir = dir_of(said, disk).ok_or_else(without)?;
        if dir.poisoned || dir.hung {
            let why = dir.failure.clone().unwrap_or_else(|| "it does not answer".to_owned());
            return Err(format!(
                "disk {} of broker {id} can't be read, nor can what is on it be moved: {why}",
                disk.name
            ));
        }
        if !dir.cordoned {
            return Err(format!("broker {id} has not taken in yet that nothing new is to come to {who}"));
        }
    }
    let dirs = match broker.dirs {
        None => return Err(format!("broker {id} has not been asked yet what is on {who}")),
        Some(Err(error)) => return Err(format!("broker {id} does not say what is on {who}: {error}")),
        Some(Ok(dirs)) => dirs,
    };
    match has.iter().find(|disk| dirs.iter().all(|dir| dir.path != disk.effective_mount_path())) {
        Some(disk) => Err(format!("broker {id} does not say what is on disk {}", disk.name)),
        None => Ok(Some((said, dirs))),
    }
}

/// Logs that a broker has and does not serve, as damaged ones, are no replicas to it; they may be the last that have some records.
fn unserved(removing: &[Disk], brokers: &[BrokerDisks<'_>]) -> Option<String> {
    let pairs = brokers.iter().flat_map(|broker| removing.iter().map(move |disk| (broker, disk)));
    let mut used = pairs.filter(|(broker, disk)| broker.mounts.contains(&disk.name));
    used.find_map(|(broker, disk)| {
        let (id, name) = (broker.id, &disk.name);
        match broker.said.and_then(|said| dir_of(said, disk)).and_then(|dir| dir.logs) {
            Some(0) => None,
            None => Some(format!("broker {id} does not say how many logs lie on disk {name}")),
            Some(logs) => Some(format!(
                "disk {name} of broker {id} has {logs} logs that it does not serve, as damaged ones (its log names them): they are mended or taken away by hand"
            )),
        }
    })
}

/// Disks that were found empty and have something again, on a broker that runs and still has them; an error when one does not say.
pub(crate) fn refilled(emptied: &[Disk], brokers: &[BrokerDisks<'_>]) -> Result<Vec<String>, String> {
    let mut refilled = Vec::new();
    for broker in brokers.iter().filter(|broker| broker.ready) {
        let mounted: Vec<&Disk> = emptied.iter().filter(|disk| broker.mounts.contains(&disk.name)).collect();
        // One that it runs without, or that has failed, has been given nothing since.
        let in_use = |disk: &&&Disk| {
            let dir = broker.said.map(|said| dir_of(said, disk));
            dir.is_none_or(|dir| dir.is_some_and(|dir| !dir.poisoned && !dir.hung))
        };
        let has: Vec<&Disk> = mounted.iter().filter(in_use).copied().collect();
        let Some((_, dirs)) = look(broker, &has)? else { continue };
        let is_on = |disk: &&&Disk| {
            let mut of_disk = dirs.iter().filter(|dir| dir.path == disk.effective_mount_path());
            of_disk.any(|dir| !dir.replicas.is_empty())
        };
        refilled.extend(has.iter().filter(is_on).map(|disk| disk.name.clone()));
    }
    refilled.dedup();
    Ok(refilled)
}

/// A disk that has the metadata of a broker can't go.
fn metadata(removing: &[Disk], brokers: &[BrokerDisks<'_>]) -> Option<String> {
    let has = |disk: &Disk| {
        let has = |broker: &&BrokerDisks<'_>| {
            broker.said.and_then(|said| dir_of(said, disk)).is_some_and(|dir| dir.has_metadata)
        };
        brokers.iter().filter(has).map(|broker| broker.id.to_string()).collect::<Vec<_>>()
    };
    let (disk, ids) = removing.iter().map(|disk| (disk, has(disk))).find(|(_, ids)| !ids.is_empty())?;
    let (name, who) = (&disk.name, if ids.len() == 1 { "broker" } else { "brokers" });
    Some(format!(
        "disk {name} can't be removed: the metadata of {who} {} is on it, and stays where it was begun; put {name} back into spec.disks",
        ids.join(", ")
    ))
}

fn dir_of<'a>(said: &'a BrokerStatus, disk: &Disk) -> Option<&'a LogDirStatus> {
    said.log_dirs.iter().find(|dir| dir.path == disk.effective_mount_path())
}

/// So many of the moves, the same number of each broker as far as there are.
fn fairly(waiting: Vec<Vec<DirMove>>, most: usize) -> Vec<DirMove> {
    let mut queues: Vec<_> = waiting.into_iter().map(Vec::into_iter).collect();
    let mut chosen = Vec::new();
    loop {
        let before = chosen.len();
        for queue in &mut queues {
            chosen.extend(queue.next().filter(|_| chosen.len() < most));
        }
        if chosen.len() == before {
            return chosen;
        }
    }
}

pub(crate) fn disks<'a>(disks: impl IntoIterator<Item = &'a Disk>) -> String {
    let names: Vec<&str> = disks.into_iter().map(|disk| disk.name.as_str()).collect();
    format!("{} {}", if names.len() == 1 { "disk" } else { "disks" }, names.join(", "))
}
