//! What must be true, kept beside the cluster: every record that was ever safe, who led when, and what clients were promised.

use std::collections::{BTreeMap, HashMap};

use forebay_broker_partition::RoleKind;
use forebay_broker_wire::types::{BrokerId, LeaderEpoch, Offset};

/// A record as it was when a high watermark first passed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) epoch: LeaderEpoch,
    pub(crate) value: String,
}

/// What one replica shows at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) broker: BrokerId,
    pub(crate) life: u64,
    pub(crate) role: RoleKind,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) log_start: Offset,
    pub(crate) high_watermark: Offset,
    pub(crate) log_end: Offset,
}

/// One partition's history.
#[derive(Debug, Default)]
pub(crate) struct PartitionShadow {
    pub(crate) safe: BTreeMap<Offset, Entry>,
    leaders: BTreeMap<LeaderEpoch, (BrokerId, u64)>,
    /// By life of a process: its high watermark, and up to where its log was compared.
    lives: HashMap<u64, (Offset, Offset)>,
    pub(crate) acknowledged: u64,
}

impl PartitionShadow {
    /// Checks what can be said without reading. Gives the offset from which the replica's safe records have to be compared, if any are new.
    pub(crate) fn look(&mut self, seen: &Seen) -> Result<Option<Offset>, String> {
        let Seen { broker, life, epoch, high_watermark, log_end, log_start, .. } = *seen;
        if high_watermark > log_end {
            return Err(format!("broker {broker}: high watermark {high_watermark} is above the log's end {log_end}"));
        }
        let (known, compared) = self.lives.entry(life).or_default();
        if high_watermark < *known {
            return Err(format!("broker {broker}: high watermark went back from {known} to {high_watermark}"));
        }
        *known = high_watermark;
        *compared = (*compared).max(log_start);
        let from = *compared;
        if seen.role == RoleKind::Leader {
            let leader = *self.leaders.entry(epoch).or_insert((broker, life));
            if leader != (broker, life) {
                let (other, other_life) = leader;
                return Err(format!(
                    "epoch {epoch} has two leaders: broker {other} in life {other_life}, broker {broker} in life {life}"
                ));
            }
        }
        Ok((from < high_watermark).then_some(from))
    }

    /// A replica's log was compared up to there. A high watermark may lie inside a batch; its records then come later.
    pub(crate) fn compared(&mut self, life: u64, upto: Offset) {
        self.lives.entry(life).and_modify(|(_, compared)| *compared = upto);
    }

    /// A replica says that this record is safe.
    pub(crate) fn safe(&mut self, broker: BrokerId, offset: Offset, entry: &Entry) -> Result<(), String> {
        let known = self.safe.entry(offset).or_insert_with(|| entry.clone());
        if known == entry {
            return Ok(());
        }
        Err(format!(
            "offset {offset} on broker {broker} is {:?} of epoch {}, but {:?} of epoch {} was safe",
            entry.value, entry.epoch, known.value, known.epoch
        ))
    }

    /// A client was promised that these are kept.
    pub(crate) fn acknowledged(&mut self, base: Offset, values: &[String]) -> Result<(), String> {
        for (offset, value) in (base.0..).zip(values) {
            match self.safe.get(&Offset(offset)) {
                Some(known) if known.value == *value => self.acknowledged += 1,
                found => {
                    return Err(format!("{value:?} was acknowledged at offset {offset}, where {found:?} is safe"));
                }
            }
        }
        Ok(())
    }

    /// The first offset that was never safe.
    pub(crate) fn end(&self) -> Offset {
        self.safe.last_key_value().map_or(Offset(0), |(offset, _)| Offset(offset.0 + 1))
    }
}
