//! Brokers that outlive, for a moment, an `up` that was killed: they stop by themselves, and the next `up` waits for that.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tokio::time::{Instant, sleep};

use super::State;

/// A broker that has lost its `up` stops within this; what then still has the number is another program.
const STOPS_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for the brokers that the last `up` of this data folder left behind.
pub(super) async fn await_end(data: &Path) {
    // Without a state there was none, or none that got as far as to start brokers.
    let Ok(state) = State::read(data) else { return };
    let pids: Vec<u32> = state.brokers.iter().filter_map(|broker| broker.pid).filter(|pid| is_broker(*pid)).collect();
    if pids.is_empty() {
        return;
    }
    eprintln!("waiting for the brokers of an `up` that was killed (pids {pids:?}) to stop");
    let deadline = Instant::now() + STOPS_WITHIN;
    while pids.iter().any(|pid| is_broker(*pid)) && Instant::now() < deadline {
        sleep(LOOK_EVERY).await;
    }
}

/// Whether such a process runs and, where the system tells, is a broker.
fn is_broker(pid: u32) -> bool {
    let lives = Pid::from_raw(pid.cast_signed()).is_some_and(|pid| test_kill_process(pid).is_ok());
    let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
    lives && arguments.map_or(!Path::new("/proc/self").exists(), |text| text.split('\0').any(|word| word == "broker"))
}
