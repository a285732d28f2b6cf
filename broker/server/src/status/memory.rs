//! What this process itself has had of memory. What it reads and writes is in the page cache, which is not in it, but counts towards the
//! same limit of a container.

use std::fs;

/// The most that has been resident since the start, as `/proc/self/status` tells it (proc(5), `VmHWM`).
pub(crate) fn peak_bytes() -> Option<u64> {
    parse_peak(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        assert_eq!(parse_peak("VmPeak:\t  9000 kB\nVmHWM:\t    5120 kB\nVmRSS:\t 100 kB\n"), Some(5 << 20));
        assert_eq!(parse_peak("VmRSS:\t 100 kB\n"), None);
        assert!(peak_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
