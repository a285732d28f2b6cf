//! The process itself, from `/proc/self`, under the names that every Prometheus client library uses.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: f64,
    pub(crate) start_time_seconds: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) virtual_bytes: f64,
    pub(crate) open_fds: f64,
    pub(crate) threads: f64,
}

pub(crate) fn process() -> Option<Process> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let open_fds = fs::read_dir("/proc/self/fd").ok()?.count();
    parse(&stat, &boot, as_float(clock_ticks_per_second()), as_float(u64::try_from(page_size()).ok()?), open_fds)
}

/// The fields of `/proc/self/stat` are counted from the `)` behind the program's name, which may hold anything.
fn parse(stat: &str, boot: &str, ticks_per_second: f64, page_bytes: f64, open_fds: usize) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Field 3 of proc(5), the state, is the first one here.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let boot_seconds: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Process {
        cpu_seconds: (field(14)? + field(15)?) / ticks_per_second,
        start_time_seconds: boot_seconds + field(22)? / ticks_per_second,
        resident_bytes: field(24)? * page_bytes,
        virtual_bytes: field(23)?,
        open_fds: as_float(u64::try_from(open_fds).ok()?),
        threads: field(20)?,
    })
}

/// Metrics are floats; 53 bits are enough for any of them.
#[expect(clippy::cast_precision_loss, reason = "the loss begins at 2^53, beyond every size and count reported")]
pub(crate) fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_stat_are_found_behind_a_hostile_name() {
        let stat =
            "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 7 0 1000 4096000 25 18446744073709551615";
        let process = parse(stat, "cpu 1 2\nbtime 1700000000\n", 100.0, 4096.0, 9).unwrap();
        assert_eq!(
            process,
            Process {
                cpu_seconds: 2.0,
                start_time_seconds: 1_700_000_010.0,
                resident_bytes: 102_400.0,
                virtual_bytes: 4_096_000.0,
                open_fds: 9.0,
                threads: 7.0
            }
        );
    }

    #[test]
    fn this_process_has_a_past_and_a_size() {
        let process = process().unwrap();
        assert!(process.resident_bytes > 100_000.0 && process.open_fds >= 3.0 && process.threads >= 1.0);
    }
}
