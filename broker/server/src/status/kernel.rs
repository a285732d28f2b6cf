//! Kernel settings that a broker depends on, as they are in force.

use std::fs;

use forebay_broker_config::status::KernelStatus;

pub(crate) fn kernel() -> KernelStatus {
    KernelStatus {
        vm_swappiness: number("vm/swappiness"),
        vm_dirty_ratio: number("vm/dirty_ratio"),
        vm_dirty_background_ratio: number("vm/dirty_background_ratio"),
        vm_max_map_count: number("vm/max_map_count"),
        net_core_rmem_max: number("net/core/rmem_max"),
        net_core_wmem_max: number("net/core/wmem_max"),
        net_core_somaxconn: number("net/core/somaxconn"),
        transparent_hugepage: fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .ok()
            .and_then(|text| chosen(&text).map(str::to_owned)),
    }
}

/// A container may not see all of them (`net.core.*` are of the host's network namespace): those are absent.
fn number(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

/// The word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_one_in_force() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn what_every_linux_has_is_read() {
        assert!(kernel().vm_swappiness.is_some());
    }
}
