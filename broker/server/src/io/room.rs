//! What room for records a disk has, as others are told: they lead and keep in sync what is on a full one.
//!
//! What must hold: that there is none is said at once, that there is some again only when that has been so for a while, a longer one each
//! time it was soon used up; the file system is asked also when nobody appends, often while there is little room.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_broker_storage::Room;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::partitions::HostedDir;

const ASK_EVERY: Duration = Duration::from_secs(10);
const ASK_EVERY_WHILE_LOW: Duration = Duration::from_secs(1);
/// More room is believed after so long at first.
const BELIEVED_AFTER: Duration = Duration::from_secs(2);
const BELIEVED_AFTER_MAX: Duration = Duration::from_secs(300);
/// Room that is used up so soon is believed later the next time.
const AGAIN: Duration = Duration::from_secs(600);

/// What is said of one disk.
#[derive(Debug)]
pub(super) struct Judge {
    said: Room,
    /// Since when there has been more than is said.
    more_since: Option<Instant>,
    ample_since: Option<Instant>,
    believed_after: Duration,
}

impl Default for Judge {
    fn default() -> Self {
        Self { said: Room::Ample, more_since: None, ample_since: None, believed_after: BELIEVED_AFTER }
    }
}

impl Judge {
    /// Gives what is to be said now.
    pub(super) fn look(&mut self, now: Instant, found: Room) -> Room {
        if found < self.said {
            if self.said == Room::Ample {
                let again = self.ample_since.is_some_and(|since| now.saturating_duration_since(since) < AGAIN);
                let longer = (self.believed_after * 2).min(BELIEVED_AFTER_MAX);
                self.believed_after = if again { longer } else { BELIEVED_AFTER };
            }
            self.said = found;
        }
        if found == self.said {
            self.more_since = None;
        } else {
            let since = *self.more_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= self.believed_after {
                (self.said, self.more_since) = (found, None);
                self.ample_since = (found == Room::Ample).then_some(now);
            }
        }
        self.said
    }
}

/// Asks for the free space of a directory until `stop` is cancelled.
pub(crate) async fn ask_again_and_again(dir: Arc<HostedDir>, stop: CancellationToken) {
    let mut low = dir.watch_room();
    loop {
        let pause = if dir.is_low() { ASK_EVERY_WHILE_LOW } else { ASK_EVERY };
        tokio::select! {
            () = sleep(pause) => {}
            changed = low.changed() => if changed.is_ok() { continue } else { return },
            () = stop.cancelled() => return,
        }
        // Whoever asks a disk that hangs may wait for it.
        if !dir.is_hung() {
            let log_dir = Arc::clone(&dir.log_dir);
            let asked = tokio::task::spawn_blocking(move || log_dir.refresh_space()).await;
            if let Ok(Err(error)) = asked {
                tracing::debug!(%error, "free space is not known");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Looks at each of these times, in seconds; gives what was said.
    fn looks(judge: &mut Judge, zero: Instant, looks: &[(u64, Room)]) -> Vec<Room> {
        looks.iter().map(|(at, found)| judge.look(zero + secs(*at), *found)).collect()
    }

    #[test]
    fn less_room_is_said_at_once_and_more_when_it_has_been_so_for_a_while() {
        use Room::{Ample, None, Reserve};
        let (mut judge, zero) = (Judge::default(), Instant::now());
        let found = [(0, Ample), (1, Reserve), (2, Ample), (3, Reserve), (4, Ample), (5, None), (6, Reserve)];
        assert_eq!(looks(&mut judge, zero, &found), [Ample, Reserve, Reserve, Reserve, Reserve, None, None]);
        let found = [(7, Ample), (8, Ample), (9, Ample), (11, Ample)];
        assert_eq!(looks(&mut judge, zero, &found), [None, Ample, Ample, Ample]);
    }

    #[test]
    fn room_that_is_soon_used_up_is_believed_later_the_next_time() {
        use Room::{Ample, Reserve};
        let (mut judge, zero) = (Judge::default(), Instant::now());
        looks(&mut judge, zero, &[(0, Reserve), (1, Ample), (3, Ample)]);
        let found = [(20, Reserve), (21, Ample), (23, Ample), (25, Ample)];
        assert_eq!(looks(&mut judge, zero, &found), [Reserve, Reserve, Reserve, Ample]);
        let found = [(1000, Reserve), (1001, Ample), (1003, Ample)];
        assert_eq!(looks(&mut judge, zero, &found), [Reserve, Reserve, Ample], "there was room for long");
    }

    #[test]
    fn a_disk_that_is_full_again_and_again_is_still_believed_some_time() {
        let (mut judge, mut now) = (Judge::default(), Instant::now());
        for _ in 0..40 {
            judge.look(now, Room::Reserve);
            judge.look(now, Room::Ample);
            now += BELIEVED_AFTER_MAX;
            assert_eq!(judge.look(now, Room::Ample), Room::Ample);
        }
    }
}
