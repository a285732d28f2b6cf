//! Which mount a directory is on, from `/proc/self/mountinfo`: the options really in force, not those once asked for.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    pub(crate) fs_type: String,
    /// Options of the mount and of its file system, each once.
    pub(crate) options: Vec<String>,
}

/// The mount that `path` is on.
pub(crate) fn mount_of(path: &Path) -> Option<Mount> {
    let path = fs::canonicalize(path).ok()?;
    find(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

/// The longest mount point that `path` is below wins; of equal ones the last, which covers those before it.
fn find(mountinfo: &str, path: &Path) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(parse).filter(|mount| path.starts_with(&mount.point));
    mounts.max_by_key(|mount| mount.point.components().count())
}

/// `id parent major:minor root POINT OPTIONS [tag]... - TYPE source FS_OPTIONS`
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(4);
    let point = PathBuf::from(unescape(before.next()?));
    let mount_options = before.next()?;
    let mut after = after.split(' ');
    let fs_type = after.next()?.to_owned();
    let fs_options = after.nth(1).unwrap_or_default();
    let mut options: Vec<String> = Vec::new();
    for option in mount_options.split(',').chain(fs_options.split(',')).filter(|option| !option.is_empty()) {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount { point, fs_type, options })
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                result.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                result.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 0:21 / / rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b
40 22 259:1 / /var/lib/forebay/d0 rw,noatime shared:7 master:1 - ext4 /dev/nvme1n1 rw,nodelalloc
41 22 259:2 / /var/lib/forebay/my\\040disk rw - xfs /dev/nvme2n1 rw
42 22 0:50 / /var rw,nosuid - tmpfs tmpfs rw,size=10k
";

    #[test]
    fn the_innermost_mount_is_found_with_all_its_options() {
        let mount = find(MOUNTINFO, Path::new("/var/lib/forebay/d0/log")).unwrap();
        assert_eq!(mount.point, Path::new("/var/lib/forebay/d0"));
        assert_eq!((mount.fs_type.as_str(), mount.options.join(",")), ("ext4", "rw,noatime,nodelalloc".to_owned()));
        assert_eq!(find(MOUNTINFO, Path::new("/variety")).unwrap().fs_type, "overlay");
    }

    #[test]
    fn a_mount_point_with_a_blank_is_found() {
        assert_eq!(find(MOUNTINFO, Path::new("/var/lib/forebay/my disk")).unwrap().fs_type, "xfs");
    }
}
