//! Replicas change disks on all brokers at once, while the leader is written to and changes.

use std::collections::BTreeMap;

use forebay_broker_wire::types::ErrorCode;

use super::SETTINGS;
use super::cluster::Cluster;
use crate::harness::eventually;
use crate::moving::{ask, await_moved};

#[test]
fn what_was_acknowledged_stays_while_all_replicas_change_disks_and_the_leader_dies() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    dirs.iter().for_each(|dir| std::fs::create_dir(dir.path().join("second")).unwrap());
    let mut cluster = Cluster::start_in(dirs, SETTINGS);
    cluster.create_replicated("orders", 3, "2");
    let mut acknowledged = BTreeMap::new();
    let mut produce = |cluster: &Cluster, count: usize| {
        for _ in 0..count {
            let value = format!("value {}", acknowledged.len());
            acknowledged.insert(cluster.produce("orders", &value), value);
        }
        acknowledged.clone()
    };
    for round in 0..3 {
        produce(&cluster, 20);
        // Where each has it now, the other one is the target.
        let targets: Vec<_> = (0..3)
            .map(|id| {
                let (data, second) = (cluster.data(id), cluster.second(id));
                if data.join("orders-0").exists() { second } else { data }
            })
            .collect();
        for (id, target) in targets.iter().enumerate() {
            assert_eq!(ask(&mut cluster.client(id), 0, target), ErrorCode::None);
        }
        produce(&cluster, 5);
        let leader = cluster.leader("orders");
        cluster.kill(leader);
        produce(&cluster, 10);
        cluster.start_again(leader);
        cluster.await_in_sync("orders", 3);
        for (id, target) in targets.iter().enumerate() {
            // The one that was killed may have to be asked again.
            eventually("it takes the move", || {
                (ask(&mut cluster.client(id), 0, target) == ErrorCode::None).then_some(())
            });
            await_moved(&mut cluster.client(id), target, 0);
        }
        let acknowledged = produce(&cluster, 5);
        cluster.await_in_sync("orders", 3);
        let found = cluster.read_all("orders");
        for (offset, value) in &acknowledged {
            assert_eq!(found.get(offset), Some(value), "round {round}");
        }
    }
}
