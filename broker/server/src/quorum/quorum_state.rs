//! The `quorum-state` file beside the log: whose log this is, the vote, and where the log begins.
//!
//! What must hold: a vote is on disk before it is given, so that nobody votes twice in a term; the file is replaced whole; a log that is
//! begun gets an identity that no log had before, whatever the directory around it was used for.

use std::path::{Path, PathBuf};

use forebay_broker_storage::{Disk, DiskError};
use forebay_broker_wire::types::Uuid;
use serde::{Deserialize, Serialize};

use super::types::{LogId, Vote};
use crate::metadata::random_id;

const FILE_NAME: &str = "quorum-state";
const VERSION: u16 = 1;

/// Why the file can't be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuorumStateError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Not the file that is expected.
    #[error(
        "{file}: {message}; it says how this broker has voted: restore it from a copy or, where other brokers have the metadata too, empty this broker's log dirs"
    )]
    Form { file: String, message: String },
}

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QuorumState {
    version: u16,
    /// The voter's directory id.
    directory: Option<String>,
    pub(super) vote: Option<Vote>,
    /// The last entry that a snapshot has taken the place of.
    pub(super) purged: Option<LogId>,
}

/// The file, and what it says now.
#[derive(Debug)]
pub(super) struct QuorumStateFile {
    disk: Disk,
    path: PathBuf,
    state: QuorumState,
    directory: Uuid,
}

impl QuorumStateFile {
    /// Reads the file in the log's directory; a log that has none yet gets it, with an identity.
    pub(super) fn open(disk: &Disk, dir: &Path) -> Result<Self, QuorumStateError> {
        let path = dir.join(FILE_NAME);
        let wrong = |message: String| QuorumStateError::Form { file: path.display().to_string(), message };
        let found = disk.read(&path)?;
        let is_new = found.is_none();
        let state = match found {
            None => QuorumState { directory: Some(random_id().to_string()), ..QuorumState::default() },
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?,
        };
        if state.version > VERSION {
            return Err(wrong(format!("version {}: this program reads versions up to {VERSION}", state.version)));
        }
        let directory = state.directory.as_deref().unwrap_or_default();
        let directory = directory.parse().map_err(|_error| wrong(format!("directory '{directory}': must be an id")))?;
        let mut file = Self { disk: disk.clone(), path, state, directory };
        if is_new {
            file.change(|_state| {})?;
        }
        Ok(file)
    }

    /// The directory id under which this log votes.
    pub(super) fn directory(&self) -> Uuid {
        self.directory
    }

    pub(super) fn state(&self) -> &QuorumState {
        &self.state
    }

    /// Durable on return; on an error it says what it said before.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut QuorumState)) -> Result<(), QuorumStateError> {
        let mut state = self.state.clone();
        change(&mut state);
        state.version = VERSION;
        let form = |error: serde_json::Error| QuorumStateError::Form {
            file: self.path.display().to_string(),
            message: error.to_string(),
        };
        self.disk.replace(&self.path, &serde_json::to_vec(&state).map_err(form)?)?;
        self.state = state;
        Ok(())
    }
}
