//! Sees disks that hang: writes that neither succeed nor fail (a frozen file system, a server of files that is away, a dying drive).
//!
//! What must hold: a disk hangs when work that somebody waits for has not ended for `forebay.log.dir.hung.ms`, and is well again when all
//! of it has ended for a while, a longer one each time it hangs again; a pause of this process is nobody's fault. The thread needs neither
//! a disk nor a network thread. By the way it looks whether a disk is full (`room.rs`).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_broker_storage::Work;
use parking_lot::{Condvar, Mutex};

use super::room;
use super::stop_on_panic::PanicAlarm;
use crate::partitions::HostedDir;

/// Looks within the time after which a disk hangs.
const LOOKS: u32 = 8;
/// What a flush that nobody waits for may take, in times of what others may.
const BACKGROUND_FACTOR: u32 = 5;
/// A disk that hangs again so soon is trusted later.
const AGAIN: Duration = Duration::from_secs(60);
const TRUSTED_AFTER_MAX: Duration = Duration::from_secs(30);

/// What is known of one disk.
#[derive(Debug, Default)]
struct Judge {
    hung: bool,
    /// Since when nothing has been in progress for long, while it counts as hung.
    prompt_since: Option<Instant>,
    ended_at: Option<Instant>,
    trusted_after: Duration,
}

impl Judge {
    /// Gives whether it hangs now.
    fn look(&mut self, now: Instant, awaited: Duration, background: Duration, hung_after: Duration) -> bool {
        let is_hung = awaited >= hung_after || background >= hung_after * BACKGROUND_FACTOR;
        if !self.hung && is_hung {
            let again = self.ended_at.is_some_and(|ended| now.saturating_duration_since(ended) < AGAIN);
            let first = hung_after / 2;
            self.trusted_after = if again { (self.trusted_after * 2).clamp(first, TRUSTED_AFTER_MAX) } else { first };
            (self.hung, self.prompt_since) = (true, None);
        } else if self.hung && (is_hung || awaited >= hung_after / 2) {
            self.prompt_since = None;
        } else if self.hung {
            let since = *self.prompt_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= self.trusted_after {
                (self.hung, self.ended_at) = (false, Some(now));
            }
        }
        self.hung
    }
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stopping: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watchdog {
    /// Watches the directories; `changed` hears of each that begins or ceases to hang, or has less or more room.
    pub(crate) fn start(
        dirs: Vec<Arc<HostedDir>>,
        hung_after: Duration,
        changed: impl Fn(&HostedDir) + Send + 'static,
        alarm: &PanicAlarm,
    ) -> std::io::Result<Self> {
        let stopping = Arc::new((Mutex::new(false), Condvar::new()));
        let (stop, watch) = (Arc::clone(&stopping), alarm.watch());
        let thread = std::thread::Builder::new().name("disk-watch".to_owned()).spawn(move || {
            let _watch = watch;
            run(&dirs, hung_after, &changed, &stop);
        })?;
        Ok(Self { stopping, thread: Mutex::new(Some(thread)) })
    }

    /// Blocks.
    pub(crate) fn stop(&self) {
        *self.stopping.0.lock() = true;
        self.stopping.1.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _panicked = thread.join();
        }
    }
}

fn run(
    dirs: &[Arc<HostedDir>],
    hung_after: Duration,
    changed: &dyn Fn(&HostedDir),
    (stopping, stop): &(Mutex<bool>, Condvar),
) {
    let pause = hung_after / LOOKS;
    let mut judges: Vec<(Judge, room::Judge)> = dirs.iter().map(|_| Default::default()).collect();
    let mut looked_at = Instant::now();
    loop {
        let mut stopping = stopping.lock();
        if !*stopping {
            stop.wait_for(&mut stopping, pause);
        }
        if *stopping {
            return;
        }
        drop(stopping);
        let now = Instant::now();
        // After a pause of this process everything looks as if it had taken long.
        let paused = now.saturating_duration_since(looked_at) > pause * 3;
        looked_at = now;
        if paused {
            continue;
        }
        for (dir, (judge, room)) in dirs.iter().zip(&mut judges) {
            let age = |work| dir.log_dir.progress().oldest(work, now).unwrap_or_default();
            let hung = judge.look(now, age(Work::Awaited), age(Work::Background), hung_after);
            if dir.note_hung(hung) {
                tell(dir, hung, hung_after);
                changed(dir);
            }
            if dir.note_room(room.look(now, dir.log_dir.room())) {
                changed(dir);
            }
        }
    }
}

fn tell(dir: &HostedDir, hung: bool, hung_after: Duration) {
    let (dir, ms) = (dir.log_dir.path().display(), hung_after.as_millis());
    if hung {
        tracing::error!(%dir, ms, "log directory hangs: what is written there does not end; others are to lead and keep in sync what is there");
    } else {
        tracing::warn!(%dir, "log directory hangs no more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUNG_AFTER: Duration = Duration::from_secs(2);

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    /// Looks at each of these times, in seconds, at work that is so old; gives what it said.
    fn looks(judge: &mut Judge, zero: Instant, looks: &[(f64, f64)]) -> Vec<bool> {
        let look = |(at, age): &(f64, f64)| judge.look(zero + secs(*at), secs(*age), Duration::ZERO, HUNG_AFTER);
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_disk_hangs_when_work_does_not_end_and_is_well_when_it_has_ended_for_a_while() {
        let (mut judge, zero) = (Judge::default(), Instant::now());
        let said = looks(
            &mut judge,
            zero,
            &[(1.0, 1.0), (2.0, 2.0), (9.0, 9.0), (9.5, 0.0), (10.0, 1.5), (10.5, 0.0), (11.4, 0.0), (11.5, 0.0)],
        );
        assert_eq!(said, [false, true, true, true, true, true, true, false]);
    }

    #[test]
    fn a_disk_that_hangs_again_is_trusted_later() {
        let (mut judge, zero) = (Judge::default(), Instant::now());
        looks(&mut judge, zero, &[(2.0, 2.0), (3.0, 0.0), (4.0, 0.0)]);
        let said = looks(&mut judge, zero, &[(20.0, 2.0), (21.0, 0.0), (22.0, 0.0), (23.0, 0.0)]);
        assert_eq!(said, [true, true, true, false]);
        let said = looks(&mut judge, zero, &[(100.0, 2.0), (101.0, 0.0), (102.0, 0.0)]);
        assert_eq!(said, [true, true, false], "it was prompt for long");
    }

    #[test]
    fn a_flush_that_nobody_waits_for_may_take_its_time() {
        let (mut judge, now) = (Judge::default(), Instant::now());
        assert!(!judge.look(now, Duration::ZERO, HUNG_AFTER * 4, HUNG_AFTER));
        assert!(judge.look(now, Duration::ZERO, HUNG_AFTER * 5, HUNG_AFTER));
    }
}
