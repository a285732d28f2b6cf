//! The open-files limit: raised at start as far as this process may, and read back as it is in force.
//!
//! Kubernetes' pod spec has no ulimits, so the broker raises soft to hard itself; beyond the hard limit only when it has
//! the capability for it. Not getting what was wanted is reported, never fatal.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Soft and hard limit on open files; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nofile {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

/// Raises soft to hard, and hard to `wanted` when that is higher and permitted. What came of it is read back with [`nofile`].
pub(crate) fn raise_nofile(wanted: Option<u64>) {
    let now = getrlimit(Resource::Nofile);
    if let (Some(wanted), Some(hard)) = (wanted, now.maximum)
        && wanted > hard
    {
        let asked = Rlimit { current: Some(wanted), maximum: Some(wanted) };
        match setrlimit(Resource::Nofile, asked) {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(wanted, hard, %error, "open files: the hard limit is lower than wanted and may not be raised");
            }
        }
    }
    if now.current != now.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })
    {
        tracing::warn!(soft = now.current, hard = now.maximum, %error, "open files: the soft limit could not be raised");
    }
}

/// What the kernel enforces now, as `/proc/self/limits` shows it.
pub(crate) fn nofile() -> Option<Nofile> {
    parse_nofile(&fs::read_to_string("/proc/self/limits").ok()?)
}

fn parse_nofile(limits: &str) -> Option<Nofile> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut columns = line.split_whitespace();
    let mut limit = || match columns.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Nofile { soft: limit()?, hard: limit()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_open_files_is_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             96354                96354                processes \n\
                      Max open files            1024                 1048576              files     \n";
        assert_eq!(parse_nofile(limits), Some(Nofile { soft: Some(1_024), hard: Some(1_048_576) }));
        let limits = "Max open files            unlimited            unlimited            files";
        assert_eq!(parse_nofile(limits), Some(Nofile { soft: None, hard: None }));
        assert_eq!(parse_nofile("Max open files   many few files"), None);
    }

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        raise_nofile(None);
        let nofile = nofile().unwrap();
        assert_eq!(nofile.soft, nofile.hard);
    }
}
