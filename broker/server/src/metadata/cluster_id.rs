//! Which cluster a broker belongs to: what its disks say, what it is told, or, at the very first start, a new id.

use forebay_broker_storage::Identity;
use forebay_broker_wire::types::Uuid;

/// Why it is not clear which cluster a broker belongs to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClusterIdError {
    /// The configuration names another cluster than a disk.
    #[error(
        "forebay.cluster.id={configured}: a log dir belongs to cluster {found}; give the broker its own disks, or the id {found}"
    )]
    Mismatch { configured: String, found: String },
    /// Two disks belong to two clusters.
    #[error("log dirs belong to clusters {first} and {second}: must belong to one")]
    TwoClusters { first: String, second: String },
}

/// The cluster's id, given what the log dirs say; none of them says anything at the first start.
pub(crate) fn cluster_id_for(configured: Option<&str>, found: &[Identity]) -> Result<String, ClusterIdError> {
    let mut ids = found.iter().map(|identity| identity.cluster_id.as_str());
    let Some(first) = ids.next() else {
        return Ok(configured.map_or_else(|| random_id().to_string(), str::to_owned));
    };
    if let Some(second) = ids.find(|id| *id != first) {
        return Err(ClusterIdError::TwoClusters { first: first.to_owned(), second: second.to_owned() });
    }
    match configured {
        Some(configured) if configured != first => {
            Err(ClusterIdError::Mismatch { configured: configured.to_owned(), found: first.to_owned() })
        }
        _ => Ok(first.to_owned()),
    }
}

/// A random id, for topics, directories and clusters. One that begins with '-' would look like an option on a command line.
pub(crate) fn random_id() -> Uuid {
    loop {
        let id = Uuid(uuid::Uuid::new_v4().into_bytes());
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_broker_wire::types::BrokerId;

    fn of(cluster: &str) -> Identity {
        Identity { cluster_id: cluster.to_owned(), node_id: BrokerId(0), directory_id: random_id() }
    }

    #[test]
    fn the_first_start_takes_the_id_it_is_told_or_makes_one() {
        assert_eq!(cluster_id_for(Some("a"), &[]), Ok("a".to_owned()));
        let (one, two) = (cluster_id_for(None, &[]).unwrap(), cluster_id_for(None, &[]).unwrap());
        assert_eq!(one.len(), 22);
        assert_ne!(one, two);
    }

    #[test]
    fn later_starts_keep_what_the_disks_say() {
        assert_eq!(cluster_id_for(None, &[of("a"), of("a")]), Ok("a".to_owned()));
        assert_eq!(cluster_id_for(Some("a"), &[of("a")]), Ok("a".to_owned()));
    }

    #[test]
    fn a_disk_of_another_cluster_is_refused() {
        let error = cluster_id_for(Some("b"), &[of("a")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "forebay.cluster.id=b: a log dir belongs to cluster a; give the broker its own disks, or the id a"
        );
        assert!(matches!(cluster_id_for(None, &[of("a"), of("b")]), Err(ClusterIdError::TwoClusters { .. })));
    }
}
