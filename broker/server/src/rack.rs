//! The broker's rack, from files that may come while it starts: which node a pod is on, and so its rack, is known to others only after
//! the pod was made.
//!
//! What must always hold: a broker starts, with a rack or without, after a bounded wait; one that is to stop waits no longer.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long the start waits to be told; well below what probes of the process allow.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Holds the rack.
const RACK: &str = "rack";
/// Holds why there is none.
const NO_RACK: &str = "no-rack";

/// What the broker was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Its rack.
    Rack(String),
    /// That it has none, and why.
    NoRack(String),
    /// Nothing, in the time that it waits.
    Nothing,
    /// To stop.
    Stop,
}

/// What the files of a folder say, waiting for them if they say nothing yet.
pub(crate) async fn told(folder: &Path, wait_max: Duration, shutdown: &CancellationToken) -> Told {
    let looking = async {
        loop {
            if let Some(told) = look(folder) {
                return told;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => Told::Stop,
        told = tokio::time::timeout(wait_max, looking) => told.unwrap_or(Told::Nothing),
    }
}

/// A file that is empty or not there says nothing.
fn look(folder: &Path) -> Option<Told> {
    let text = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    text(RACK).map(Told::Rack).or_else(|| text(NO_RACK).map(Told::NoRack))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    async fn of(files: &[(&str, &str)]) -> Told {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        told(folder.path(), Duration::from_millis(1), &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn the_rack_is_what_the_file_says_and_wins_over_a_reason_for_none() {
        assert_eq!(of(&[("rack", "zone-a\n"), ("no-rack", "")]).await, Told::Rack("zone-a".into()));
        assert_eq!(of(&[("rack", "zone-a"), ("no-rack", "node n1 had no label")]).await, Told::Rack("zone-a".into()));
        assert_eq!(of(&[("rack", ""), ("no-rack", "no label")]).await, Told::NoRack("no label".into()));
    }

    #[tokio::test]
    async fn who_is_told_nothing_waits_no_longer_than_that() {
        assert_eq!(of(&[("rack", ""), ("no-rack", " \n")]).await, Told::Nothing);
        assert_eq!(of(&[]).await, Told::Nothing);
    }

    #[tokio::test]
    async fn a_rack_that_comes_while_the_broker_waits_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rack"), "").unwrap();
        let comes = async {
            tokio::time::sleep(LOOK_EVERY / 2).await;
            std::fs::write(folder.path().join("rack"), "zone-b").unwrap();
        };
        let shutdown = CancellationToken::new();
        let (told, ()) = tokio::join!(told(folder.path(), LONG, &shutdown), comes);
        assert_eq!(told, Told::Rack("zone-b".into()));
    }

    #[tokio::test]
    async fn a_broker_that_is_to_stop_waits_no_longer() {
        let (folder, shutdown) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let stops = async { shutdown.cancel() };
        let (told, ()) = tokio::join!(told(folder.path(), LONG, &shutdown), stops);
        assert_eq!(told, Told::Stop);
    }
}
