//! Ordinary runs: nothing that replication promises is broken, whatever fails, and a seed tells the whole story.

use forebay_broker_sim::{Options, Report, run};

fn report(seed: u64, keep_trace: bool) -> Report {
    run(&Options { seed, keep_trace, ..Options::default() }).expect("the simulation itself runs")
}

#[test]
fn two_hundred_clusters_keep_every_promise() {
    let mut acknowledged = 0;
    for seed in 0..200 {
        let report = report(seed, false);
        assert_eq!(report.violation, None, "seed {seed}: see `cargo xtask sim --from {seed} --seeds 1 --trace`");
        acknowledged += report.acknowledged;
    }
    assert!(acknowledged > 20_000, "only {acknowledged} records were acknowledged: the runs prove little");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 17, 101] {
        let (one, other) = (report(seed, true), report(seed, true));
        let parted = one.trace.iter().zip(&other.trace).find(|(one, other)| one != other);
        assert_eq!(parted, None, "seed {seed}");
        assert_eq!(one, other, "seed {seed}");
    }
    assert_ne!(report(3, false).trace_hash, report(4, false).trace_hash);
}

/// What seeds beyond the first two hundred have found. They tell the same story as long as the simulation draws the same numbers; where it
/// could be told without it, a test beside the code does so for good.
const ONCE_FAILED: &[(u64, &str)] = &[
    (
        4156,
        "a fetch of a follower's earlier life counted for the present one, which had lost its power and its log's end",
    ),
    (
        4897,
        "a crash amid DeleteRecords left an empty log that starts inside a batch; taking the batch moved start and high watermark back",
    ),
    (
        6491,
        "a crash amid a truncation left a later part of the log, as if what came before had been deleted on purpose",
    ),
    (
        11809,
        "a power cut tore a batch's base offset, which no checksum covers; recovery passed over the batch and left a gap",
    ),
];

#[test]
fn seeds_that_once_failed_pass() {
    for (seed, found) in ONCE_FAILED {
        assert_eq!(report(*seed, false).violation, None, "seed {seed}, which once found this: {found}");
    }
}
