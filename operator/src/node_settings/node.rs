//! The node's files: reads and writes, no decision.

use std::fs;
use std::path::{Path, PathBuf};

use super::setting::Setting;

pub(super) struct Node {
    root: PathBuf,
}

impl Node {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// What is in force; an error names the file.
    pub(super) fn read(&self, setting: Setting) -> Result<String, String> {
        let path = self.root.join(setting.file());
        let text = fs::read_to_string(&path).map_err(|error| format!("{} can't be read: {error}", path.display()))?;
        Ok(chosen(text.trim()).to_owned())
    }

    /// Writes, and reads back: the kernel takes some values for others.
    pub(super) fn write(&self, setting: Setting, value: &str) -> Result<(), String> {
        let path = self.root.join(setting.file());
        fs::write(&path, value).map_err(|error| format!("{} does not take {value:?}: {error}", path.display()))?;
        let now = self.read(setting)?;
        if now == value { Ok(()) } else { Err(format!("{} is {now:?} after {value:?} was written", path.display())) }
    }
}

/// The word in brackets of `always [madvise] never`, or all of it.
fn chosen(text: &str) -> &str {
    let in_brackets = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    in_brackets.map_or(text, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_errors_name_file_and_value() {
        let root = tempfile::tempdir().unwrap();
        let node = Node::new(root.path());
        let missing = node.read(Setting::Swappiness).unwrap_err();
        assert!(missing.contains("proc/sys/vm/swappiness can't be read"), "{missing}");
        let refused = node.write(Setting::Swappiness, "1").unwrap_err();
        assert!(refused.contains("proc/sys/vm/swappiness does not take \"1\""), "{refused}");
        fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        fs::write(root.path().join("proc/sys/vm/swappiness"), "60\n").unwrap();
        assert_eq!(node.read(Setting::Swappiness).unwrap(), "60");
        node.write(Setting::Swappiness, "1").unwrap();
        assert_eq!(node.read(Setting::Swappiness).unwrap(), "1");
    }

    #[test]
    fn huge_pages_are_read_as_the_word_in_brackets() {
        assert_eq!((chosen("always [madvise] never"), chosen("1")), ("madvise", "1"));
    }
}
