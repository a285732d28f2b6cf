//! Starts with directories that are missing, emptied, foreign or unreadable.

use std::fs;
use std::path::Path;

use super::*;

fn config(dirs: &[&Path]) -> BrokerConfig {
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let text = format!("node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={}\n", dirs.join(","));
    BrokerConfig::parse(&text, &[]).unwrap()
}

/// A broker that has run before on three directories, with the metadata in the first.
fn ran_before(root: &Path) -> [PathBuf; 3] {
    let paths = ["a", "b", "c"].map(|name| root.join(name));
    let claimed = claim(&config(&[&paths[0], &paths[1], &paths[2]])).unwrap();
    assert_eq!((claimed.dirs.len(), claimed.failed.len()), (3, 0));
    fs::create_dir(paths[0].join("__cluster_metadata-0")).unwrap();
    fs::create_dir(paths[1].join("orders-0")).unwrap();
    paths
}

fn claim_all(paths: &[PathBuf; 3]) -> anyhow::Result<Claimed> {
    claim(&config(&[&paths[0], &paths[1], &paths[2]]))
}

/// Not even root may list it or create files in it.
fn break_dir(path: &Path) {
    fs::remove_dir_all(path).unwrap();
    fs::write(path, "not a directory").unwrap();
}

#[test]
fn a_directory_that_cannot_be_used_is_done_without() {
    let root = tempfile::tempdir().unwrap();
    let paths = ran_before(root.path());
    break_dir(&paths[1]);
    let claimed = claim_all(&paths).unwrap();
    assert_eq!(claimed.dirs.iter().map(|dir| dir.path()).collect::<Vec<_>>(), [&paths[0], &paths[2]]);
    assert_eq!(claimed.failed[0].path, paths[1]);
    assert!(claimed.failed[0].reason.contains("Not a directory"), "{}", claimed.failed[0].reason);
    assert_eq!(claimed.home(false).unwrap().path(), paths[0]);
}

#[test]
fn a_directory_that_is_suddenly_empty_is_not_begun_anew() {
    let root = tempfile::tempdir().unwrap();
    let paths = ran_before(root.path());
    for emptied in [true, false] {
        fs::remove_dir_all(&paths[1]).unwrap();
        if emptied {
            fs::create_dir(&paths[1]).unwrap();
        }
        for _ in 0..2 {
            let claimed = claim_all(&paths).unwrap();
            let reason = &claimed.failed[0].reason;
            assert!(claimed.failed[0].directory_id.is_some() && reason.contains("is its disk mounted?"), "{reason}");
            assert!(!paths[1].join("meta.properties").exists(), "nothing is written there");
        }
        // As its words say.
        drop(claim(&config(&[&paths[0], &paths[2]])).unwrap());
        assert!(claim_all(&paths).unwrap().failed.is_empty());
    }
}

#[test]
fn a_directory_with_logs_is_not_left_out_unawares() {
    let root = tempfile::tempdir().unwrap();
    let [a, b, c] = ran_before(root.path());
    let refused = claim(&config(&[&a, &c])).unwrap_err().to_string();
    assert!(refused.contains("/b is not in log.dirs any more") && refused.contains("such as orders-0"), "{refused}");
    assert_eq!(claim(&config(&[&a, &b])).unwrap().dirs.len(), 2, "c has none");
    fs::rename(&b, root.path().join("moved")).unwrap();
    assert_eq!(claim(&config(&[&a, &root.path().join("moved")])).unwrap().dirs.len(), 2, "it is somewhere else");
    fs::remove_dir_all(root.path().join("moved/orders-0")).unwrap();
    assert_eq!(claim(&config(&[&a])).unwrap().dirs.len(), 1);
}

#[test]
fn a_new_directory_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let paths = ran_before(root.path());
    let new = root.path().join("d");
    let claimed = claim(&config(&[&paths[0], &paths[1], &paths[2], &new])).unwrap();
    assert_eq!((claimed.dirs.len(), claimed.failed.len()), (4, 0));
}

#[test]
fn without_the_metadata_there_is_no_start() {
    let root = tempfile::tempdir().unwrap();
    let paths = ran_before(root.path());
    break_dir(&paths[0]);
    fs::remove_dir(paths[1].join("orders-0")).unwrap();
    for _ in 0..2 {
        let error = format!("{:#}", claim_all(&paths).unwrap().home(false).unwrap_err());
        assert!(error.contains("the cluster's metadata must be on a disk that is missing"), "{error}");
        assert!(error.contains(&paths[0].display().to_string()), "{error}");
        fs::create_dir_all(paths[1].join("orders-0")).unwrap();
    }
}

#[test]
fn a_first_start_needs_all_directories() {
    let root = tempfile::tempdir().unwrap();
    let (broken, fresh) = (root.path().join("a"), root.path().join("b"));
    fs::write(&broken, "not a directory").unwrap();
    let error = claim(&config(&[&broken, &fresh])).unwrap_err().to_string();
    assert!(error.contains("no log dir says which cluster"), "{error}");
    assert!(!fresh.exists(), "nothing is written");
}

#[test]
fn a_foreign_directory_ends_the_start() {
    let root = tempfile::tempdir().unwrap();
    let paths = ran_before(root.path());
    let properties = fs::read_to_string(paths[1].join("meta.properties")).unwrap();
    fs::write(paths[1].join("meta.properties"), properties.replace("node.id=1", "node.id=2")).unwrap();
    let error = claim_all(&paths).unwrap_err().to_string();
    assert!(error.contains("node.id=2"), "{error}");
}

#[test]
fn one_log_in_two_directories_is_told_and_nothing_is_chosen() {
    let root = tempfile::tempdir().unwrap();
    let paths = ran_before(root.path());
    fs::create_dir(paths[2].join("orders-0")).unwrap();
    let error = claim_all(&paths).unwrap().locate_logs().unwrap_err().to_string();
    assert!(error.contains("both have orders-0"), "{error}");
}

#[test]
fn the_metadata_moves_to_another_disk_where_others_have_it_and_the_old_log_is_set_aside() {
    let root = tempfile::tempdir().unwrap();
    let paths = ran_before(root.path());
    let away = root.path().join("away");
    fs::rename(&paths[0], &away).unwrap();
    let alone = claim_all(&paths).unwrap();
    let error = alone.home(false).unwrap_err().to_string();
    assert!(error.contains("must be on a disk that is missing"), "{error}");
    assert!(!paths[1].join("__cluster_metadata-0").exists());
    assert_eq!(alone.home(true).unwrap().path(), paths[1]);
    assert!(alone.knows_cluster(&HashMap::new()), "it founds no cluster");
    drop(alone);
    assert_eq!(claim_all(&paths).unwrap().home(true).unwrap().path(), paths[1], "and stays there");
    fs::rename(&away, &paths[0]).unwrap();
    let back = claim_all(&paths).unwrap();
    assert_eq!(back.home(true).unwrap().path(), paths[1]);
    assert!(paths[0].join("__cluster_metadata-0.replaced").exists());
}
