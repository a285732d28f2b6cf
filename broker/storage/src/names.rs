//! Names of directories and files, all of them Kafka's: `topic-partition` and `00000000000000000000.log`.

use std::fmt;

use forebay_broker_wire::types::{Offset, Uuid};

/// Suffix of a file that is removed after a delay.
pub(crate) const DELETED: &str = ".deleted";
const DELETED_DIR: &str = "-delete";
const FUTURE_DIR: &str = "-future";
/// File systems take so many bytes for one name.
const NAME_BYTES_MAX: usize = 255;

/// Which log: a topic's partition. Its directory is `topic-partition`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogName {
    /// The topic.
    pub topic: String,
    /// The partition's index.
    pub partition: i32,
}

impl LogName {
    /// The log of a topic's partition.
    pub fn new(topic: &str, partition: i32) -> Self {
        Self { topic: topic.to_owned(), partition }
    }

    /// Reads a directory's name; `None` when it is not a log's.
    pub fn parse(name: &str) -> Option<Self> {
        let (topic, partition) = name.rsplit_once('-')?;
        let digits = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
        let partition = partition.parse().ok().filter(|_| digits && !topic.is_empty())?;
        Some(Self::new(topic, partition))
    }

    pub(crate) fn key(&self) -> (String, i32) {
        (self.topic.clone(), self.partition)
    }
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// True for the directory of a deleted log.
pub(crate) fn is_deleted(name: &str) -> bool {
    name.ends_with(DELETED_DIR)
}

/// The name under which a deleted log waits for its removal; unique by the time.
pub(crate) fn deleted_dir(name: &LogName, now_ms: i64) -> String {
    beside(name, u128::from(now_ms.unsigned_abs()), DELETED_DIR)
}

/// True for the directory of a log that is being copied to here.
pub(crate) fn is_future(name: &str) -> bool {
    name.ends_with(FUTURE_DIR)
}

/// The name under which a log is copied to another directory.
pub(crate) fn future_dir(name: &LogName, id: Uuid) -> String {
    beside(name, id.as_u128(), FUTURE_DIR)
}

fn beside(name: &LogName, id: u128, suffix: &str) -> String {
    let suffix = format!(".{id:032x}{suffix}");
    let mut prefix = name.to_string();
    prefix.truncate(prefix.floor_char_boundary(NAME_BYTES_MAX - suffix.len()));
    prefix + &suffix
}

/// `00000000000000000000.log` and its like.
pub(crate) fn segment_file(base_offset: Offset, suffix: &str) -> String {
    format!("{:020}{suffix}", base_offset.0)
}

/// The base offset in a file name with this suffix.
pub(crate) fn parse_segment_file(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20).then(|| digits.parse().ok().map(Offset))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_named_topic_dash_partition() {
        assert_eq!(LogName::parse("a-b-12"), Some(LogName::new("a-b", 12)));
        for other in ["a", "-1", "a-", "a-x", "a-+1", "a-99999999999", "a-0.00ff-delete"] {
            assert_eq!(LogName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_deleted_logs_name_fits_and_is_known_again() {
        let name = deleted_dir(&LogName::new(&"t".repeat(249), 123), 1_700_000_000_000);
        assert!(name.len() <= 255 && is_deleted(&name), "{name}");
        assert_eq!(LogName::parse(&name), None);
    }

    #[test]
    fn a_log_on_its_way_is_not_taken_for_one_that_is_there() {
        let name = future_dir(&LogName::new(&"t".repeat(249), 123), Uuid([0xab; 16]));
        assert!(name.len() <= 255 && is_future(&name) && !is_deleted(&name), "{name}");
        assert_eq!(LogName::parse(&name), None);
        assert_eq!(future_dir(&LogName::new("t", 7), Uuid([1; 16])), "t-7.01010101010101010101010101010101-future");
    }

    #[test]
    fn segment_files_have_twenty_digits() {
        assert_eq!(segment_file(Offset(42), ".log"), "00000000000000000042.log");
        assert_eq!(parse_segment_file("00000000000000000042.log", ".log"), Some(Offset(42)));
        assert_eq!(parse_segment_file("42.log", ".log"), None);
        assert_eq!(parse_segment_file("00000000000000000042.index", ".log"), None);
    }
}
