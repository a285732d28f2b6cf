//! The process itself, from `/proc/self`, under the names that every Prometheus client library uses.

/// CPU seconds and bytes in memory; none where there is no `/proc`.
pub(super) fn read() -> Option<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some((cpu_seconds(&stat)?, resident_bytes(&statm)?))
}

/// Ticks are hundredths of a second and pages 4 KiB on every Linux that this runs on.
const TICKS_A_SECOND: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// Fields 14 and 15; the second one, the program's name in brackets, may hold spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS_A_SECOND)
}

fn resident_bytes(statm: &str) -> Option<f64> {
    Some(statm.split_whitespace().nth(1)?.parse::<f64>().ok()? * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_moves_no_field() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 3 0 100 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(resident_bytes("100 3 2 1 0 5 0"), Some(12288.0));
        assert!(read().is_some_and(|(_, bytes)| bytes > 0.0));
    }
}
