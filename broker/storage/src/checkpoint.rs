//! Kafka's checkpoint files: a version line, a count line, then one entry a line.
//!
//! `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint` (entries `topic partition offset`) and each log's
//! `leader-epoch-checkpoint` (entries `epoch offset`) have this form. Replaced whole, so that a crash leaves the old or the new file;
//! one that cannot be read is an error, never an empty one.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use forebay_broker_wire::types::{LeaderEpoch, Offset};

use crate::disk::{Disk, DiskError};

const VERSION: &str = "0";

/// A checkpoint file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The content is not a checkpoint's.
    #[error("checkpoint {path}: line {line} is {text:?}, expected {expected}")]
    Malformed {
        /// The file.
        path: String,
        /// Line number from 1.
        line: usize,
        /// What stands there.
        text: String,
        /// What should.
        expected: &'static str,
    },
}

/// Offsets of partitions by (topic, partition index).
pub(crate) type PartitionOffsets = BTreeMap<(String, i32), Offset>;

/// Reads a file of `topic partition offset` lines; a missing file is empty.
pub(crate) fn read_partition_offsets(disk: &Disk, path: &Path) -> Result<PartitionOffsets, CheckpointError> {
    let parse = |line: &str| {
        // A topic's name holds no space, but let the last two words decide all the same.
        let mut words = line.rsplitn(3, ' ');
        let offset = words.next()?.parse().ok()?;
        let partition = words.next()?.parse().ok()?;
        Some(((words.next()?.to_owned(), partition), Offset(offset)))
    };
    Ok(read(disk, path, "topic, partition and offset", parse)?.into_iter().collect())
}

/// Replaces a file of `topic partition offset` lines.
pub(crate) fn write_partition_offsets(disk: &Disk, path: &Path, offsets: &PartitionOffsets) -> Result<(), DiskError> {
    let lines = offsets.iter().map(|((topic, partition), offset)| format!("{topic} {partition} {}", offset.0));
    // One a directory: worth a spare, so that a full disk keeps nobody from deleting records.
    disk.replace_by_turns(path, content(lines).as_bytes())
}

/// Reads a file of `epoch offset` lines; a missing file is empty.
pub(crate) fn read_epochs(disk: &Disk, path: &Path) -> Result<Vec<(LeaderEpoch, Offset)>, CheckpointError> {
    read(disk, path, "epoch and start offset", |line| {
        let (epoch, offset) = line.split_once(' ')?;
        Some((LeaderEpoch(epoch.parse().ok()?), Offset(offset.parse().ok()?)))
    })
}

/// Replaces a file of `epoch offset` lines.
pub(crate) fn write_epochs(disk: &Disk, path: &Path, epochs: &[(LeaderEpoch, Offset)]) -> Result<(), DiskError> {
    let lines = epochs.iter().map(|(epoch, offset)| format!("{} {}", epoch.0, offset.0));
    disk.replace(path, content(lines).as_bytes())
}

fn read<T>(
    disk: &Disk,
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, CheckpointError> {
    let Some(content) = disk.read(path)? else { return Ok(Vec::new()) };
    let text = String::from_utf8_lossy(&content);
    let malformed = |line: usize, text: &str, expected| CheckpointError::Malformed {
        path: path.display().to_string(),
        line,
        text: text.to_owned(),
        expected,
    };
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default();
    if version != VERSION {
        return Err(malformed(1, version, "version 0"));
    }
    let count = lines.next().unwrap_or_default();
    let count: usize = count.parse().map_err(|_| malformed(2, count, "the number of entries"))?;
    let mut entries = Vec::new();
    for (index, line) in lines.enumerate() {
        entries.push(parse(line).ok_or_else(|| malformed(index + 3, line, expected))?);
    }
    if entries.len() != count {
        return Err(malformed(2, &count.to_string(), "as many as there are entries"));
    }
    Ok(entries)
}

fn content(lines: impl ExactSizeIterator<Item = String>) -> String {
    let mut content = format!("{VERSION}\n{}\n", lines.len());
    for line in lines {
        writeln!(content, "{line}").unwrap_or_default(); // writing to a String cannot fail
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, path) = (Disk::real(), dir.path().join("checkpoint"));
        assert!(read_epochs(&disk, &path).unwrap().is_empty(), "a missing file is empty");
        let epochs = vec![(LeaderEpoch(0), Offset(0)), (LeaderEpoch(7), Offset(1000))];
        write_epochs(&disk, &path, &epochs).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n2\n0 0\n7 1000\n");
        assert_eq!(read_epochs(&disk, &path).unwrap(), epochs);
        let offsets = PartitionOffsets::from([(("a-b".to_owned(), 3), Offset(17)), (("c".to_owned(), 0), Offset(0))]);
        write_partition_offsets(&disk, &path, &offsets).unwrap();
        assert_eq!(read_partition_offsets(&disk, &path).unwrap(), offsets);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, path) = (Disk::real(), dir.path().join("checkpoint"));
        for (content, line) in [
            ("", "line 1"),
            ("1\n0\n", "line 1"),
            ("0\nx\n", "line 2"),
            ("0\n2\n1 2\n", "line 2"),
            ("0\n1\n1 x\n", "line 3"),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = read_epochs(&disk, &path).unwrap_err().to_string();
            assert!(error.contains(line), "{content:?}: {error}");
        }
    }
}
