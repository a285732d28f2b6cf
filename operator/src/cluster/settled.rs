//! What the first start of a cluster of several brokers has settled for good, read back from its children: who votes, its id, how
//! many brokers have data. A later edit of `replicas` must not change the first two, and must not fall below the third.

use forebay_broker_client::types::Uuid;
use forebay_broker_config::{Settings, voter_count};
use forebay_crds::Cluster;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::build::{RESTART_ANNOTATION, broker_set_name, config_map, config_map_name};
use super::dynamic;
use super::observe::Observed;
use super::roll;

/// What is settled; nothing is for a new cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    voters: Option<i32>,
    cluster_id: Option<String>,
    /// The restart of all brokers that was asked for last.
    restart: Option<String>,
    /// Settings in the file that brokers take while they run.
    pub(crate) dynamic: Settings,
    /// Brokers that run or have a disk.
    pub(crate) brokers: i32,
}

impl Settled {
    pub(crate) fn of(cluster: &Cluster, observed: &Observed) -> Self {
        let name = cluster.name_any();
        let file = observed.children.get(&format!("ConfigMap/{}", config_map_name(&name)));
        let mut settings = config_map::settings_of(file);
        let voters = settings.get("controller.quorum.voters").map(|voters| voters.split(',').count());
        let set = observed.children.get(&format!("StatefulSet/{}", broker_set_name(&name)));
        let running = set.and_then(|set| set["spec"]["replicas"].as_i64()).unwrap_or(0);
        let of_broker = |claim: &str| {
            let (start, ordinal) = claim.rsplit_once('-')?;
            let ours = start.ends_with(&format!("-{}", broker_set_name(&name)));
            ordinal.parse::<i32>().ok().filter(|_| ours)
        };
        let with_disk = observed.claims.iter().filter_map(|claim| of_broker(&claim.name)).max().map_or(0, |id| id + 1);
        Self {
            voters: voters.and_then(|count| i32::try_from(count).ok()),
            dynamic: dynamic::of(&settings),
            cluster_id: settings.remove("forebay.cluster.id"),
            restart: set.and_then(|set| roll::marks_of(&set["spec"]["template"]).restart),
            brokers: i32::try_from(running).unwrap_or(i32::MAX).max(with_disk),
        }
    }

    /// How many brokers vote.
    pub(crate) fn voters(&self, cluster: &Cluster) -> i32 {
        let first = if self.brokers > 0 { self.brokers } else { cluster.spec.replicas };
        self.voters.unwrap_or_else(|| voter_count(first))
    }

    /// The restart of all brokers that is asked for, or was last: an annotation that is taken away restarts nobody.
    pub(crate) fn restart(&self, cluster: &Cluster) -> Option<String> {
        cluster.annotations().get(RESTART_ANNOTATION).or(self.restart.as_ref()).cloned()
    }

    /// The id of a cluster of several brokers. It follows from the Cluster's place and name, so that one of the same name finds its
    /// retained disks again, and disks of another are refused.
    pub(crate) fn cluster_id(&self, cluster: &Cluster) -> String {
        let made = || {
            let place = format!("{}/{}", cluster.namespace().unwrap_or_default(), cluster.name_any());
            let mut id = [0; 16];
            id.copy_from_slice(&Sha256::digest(place.as_bytes())[..16]);
            Uuid(id).to_string()
        };
        self.cluster_id.clone().unwrap_or_else(made)
    }
}

/// What is wrong with an edit of `replicas`, and what would be right.
pub(crate) fn refuse(replicas: i32, settled: &Settled) -> Option<String> {
    let ran = settled.brokers;
    if let Err(problem) = forebay_broker_config::check_broker_count(replicas) {
        return Some(format!("spec.replicas is {replicas}: {problem}"));
    }
    if ran == 1 && replicas > 1 {
        return Some(format!(
            "spec.replicas is {replicas}, and this Cluster was begun with 1 broker, alone: set it to 1, and make a new Cluster of {replicas}"
        ));
    }
    (replicas < ran).then(|| format!("spec.replicas is {replicas}, and {ran} brokers have records: none can be taken away in this version, as nothing moves its replicas; set it to {ran}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::observe::ClaimSeen;
    use serde_json::json;

    fn cluster(replicas: i32) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "forebay.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "c", "namespace": "n"},
            "spec": {"replicas": replicas, "disks": [{"name": "data", "size": "1Gi"}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_new_cluster_settles_by_its_replicas_and_an_old_one_by_its_file() {
        let new = Settled::of(&cluster(5), &Observed::default());
        assert_eq!(new.voters(&cluster(5)), 5);
        let mut observed = Observed::default();
        let text = "controller.quorum.voters=0@a:1,1@b:1,2@c:1\nforebay.cluster.id=abc\n";
        observed.children.insert("ConfigMap/c-broker-config".into(), json!({"data": {"broker.properties": text}}));
        observed.children.insert("StatefulSet/c-broker".into(), json!({"spec": {"replicas": 3}}));
        let old = Settled::of(&cluster(5), &observed);
        assert_eq!((old.voters(&cluster(5)), old.cluster_id(&cluster(5)).as_str(), old.brokers), (3, "abc", 3));
    }

    #[test]
    fn a_cluster_made_again_has_its_old_id_and_another_one_has_another() {
        let id = |name: &str| {
            let mut cluster = cluster(3);
            cluster.metadata.name = Some(name.to_owned());
            Settled::default().cluster_id(&cluster)
        };
        assert_eq!((id("c").len(), id("c")), (22, id("c")));
        assert_ne!(id("c"), id("d"));
    }

    #[test]
    fn brokers_with_disks_are_not_taken_away_even_when_the_set_is_gone() {
        let claim = |name: &str| ClaimSeen { name: name.to_owned(), ..ClaimSeen::default() };
        let claims = vec![claim("data-c-broker-0"), claim("data-c-broker-4"), claim("data-other-broker-8")];
        let settled = Settled::of(&cluster(3), &Observed { claims, ..Observed::default() });
        assert_eq!(settled.brokers, 5);
        assert!(refuse(3, &settled).unwrap().contains("5 brokers have records"));
        assert_eq!(refuse(6, &settled), None);
    }

    #[test]
    fn two_brokers_and_a_broker_that_was_alone_are_refused_with_what_would_be_right() {
        assert!(refuse(2, &Settled::default()).unwrap().contains("use 1, or 3 and more"));
        let alone = Settled { brokers: 1, ..Settled::default() };
        assert!(refuse(3, &alone).unwrap().contains("make a new Cluster of 3"));
        assert_eq!(refuse(1, &alone), None);
    }
}
