//! What `up` writes down for `status` and `profile list`: replaced whole, so that a reader never sees half of it.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::data_dir;
use crate::profiles::Listed;

/// The state of one `up`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    /// The Cluster's name.
    pub(crate) cluster: String,
    /// The process id of `up`.
    pub(crate) pid: u32,
    /// Where clients begin.
    pub(crate) bootstrap: String,
    /// The brokers.
    pub(crate) brokers: Vec<BrokerState>,
    /// The profiles it has solved.
    pub(crate) profiles: Vec<Listed>,
}

/// One broker's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrokerState {
    /// The broker's id.
    pub(crate) id: i32,
    /// Its process; none while it is not running.
    pub(crate) pid: Option<u32>,
    /// Kafka address.
    pub(crate) address: String,
    /// Metrics and status address.
    pub(crate) http: String,
    /// How many times it was started again after it died.
    pub(crate) restarts: u32,
    /// Why it does not run: it never came to serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
}

impl State {
    /// Reads what the `up` of this folder wrote last.
    pub(crate) fn read(data: &Path) -> anyhow::Result<Self> {
        let path = data_dir::state_file(data);
        let text = std::fs::read(&path).with_context(|| {
            format!("no `forebay up` has run with --data {}: can't read {}", data.display(), path.display())
        })?;
        serde_json::from_slice(&text).with_context(|| format!("can't read {}", path.display()))
    }

    /// Writes it in place of what was there.
    pub(crate) fn write(&self, data: &Path) -> anyhow::Result<()> {
        let path = data_dir::state_file(data);
        let next = path.with_extension("json.next");
        let text = serde_json::to_vec_pretty(self)?;
        std::fs::write(&next, text).with_context(|| format!("can't write {}", next.display()))?;
        std::fs::rename(&next, &path).with_context(|| format!("can't replace {}", path.display()))
    }

    /// Whether the `up` that wrote it still runs: its lock says so, whatever became of its process id.
    pub(crate) fn up_runs(&self, data: &Path) -> bool {
        data_dir::is_locked(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::data_dir::DataDir;

    fn state() -> State {
        State {
            cluster: "demo".to_owned(),
            pid: 1,
            bootstrap: "127.0.0.1:9092".to_owned(),
            brokers: vec![],
            profiles: vec![],
        }
    }

    #[test]
    fn what_is_written_is_read_and_a_folder_without_it_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let error = State::read(folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("no `forebay up` has run with --data"), "{error:#}");
        state().write(folder.path()).unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), state());
    }

    #[test]
    fn up_runs_exactly_while_it_holds_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let held = DataDir::open(folder.path()).unwrap();
        assert!(state().up_runs(folder.path()));
        drop(held);
        assert!(!state().up_runs(folder.path()));
    }
}
