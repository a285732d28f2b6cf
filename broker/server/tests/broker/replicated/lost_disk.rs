//! A broker comes back with an empty disk: what others have stays.

use super::SETTINGS;
use super::cluster::Cluster;

#[test]
fn what_was_acknowledged_stays_when_all_stop_and_the_last_one_loses_its_disk() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    for number in 0..50 {
        cluster.produce("orders", &number.to_string());
    }
    for (last, lost) in [(0, ""), (2, ""), (1, "orders-0")] {
        // Each leaves the in-sync replicas when it stops; the last one is alone in them.
        (0..3).filter(|id| *id != last).for_each(|id| cluster.stop(id));
        cluster.stop(last);
        std::fs::remove_dir_all(cluster.data(last).join(lost)).unwrap();
        cluster.start_all();
        cluster.await_records("orders", 50);
        cluster.await_in_sync("orders", 3);
        cluster.await_records("orders", 50);
    }
}

#[test]
fn what_was_acknowledged_stays_when_all_are_killed_at_once_and_any_one_loses_its_disk() {
    let mut cluster = Cluster::start(SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    for number in 0..50 {
        cluster.produce("orders", &number.to_string());
    }
    // Whoever registers last is alone in the in-sync replicas, since the others have crashed: that may be any of them.
    for lost in 0..3 {
        cluster.await_in_sync("orders", 3);
        (0..3).for_each(|id| cluster.kill(id));
        std::fs::remove_dir_all(cluster.data(lost)).unwrap();
        cluster.start_all();
        cluster.await_records("orders", 50);
    }
}
