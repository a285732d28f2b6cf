//! Which directories are to get nothing new (`cordoned.log.dirs`, KIP-1066). What is in them is served.

use std::path::Path;

use forebay_broker_config::BrokerConfig;
use forebay_broker_machines::metadata::MetadataImage;

use crate::metadata::effective::broker_value;

const NAME: &str = "cordoned.log.dirs";
/// Stands for all of them.
const ALL: &str = "*";

/// The setting in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cordoned(String);

impl Cordoned {
    pub(crate) fn of(config: &BrokerConfig, image: &MetadataImage) -> Self {
        Self(broker_value(config, image, NAME).unwrap_or_default())
    }

    /// Whether it names a directory, written as in `log.dirs` or not quite.
    pub(crate) fn has(&self, dir: &Path) -> bool {
        let mut named = self.0.split(',').map(str::trim).filter(|name| !name.is_empty());
        named.any(|name| name == ALL || Path::new(name) == dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dir_is_cordoned_by_its_path_or_with_all_others() {
        let has = |list: &str, dir: &str| Cordoned(list.to_owned()).has(Path::new(dir));
        assert!(has("/a, /b/", "/b") && has("*", "/b"));
        assert!(!has("", "/b") && !has("/bc,/a", "/b") && !has("/b/c", "/b"));
    }
}
