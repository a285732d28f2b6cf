//! What the first start of a cluster of several brokers has settled for good, read back from its children: who votes, its id, how
//! many brokers have data. A later edit of `replicas` must not change the first two, but that fewer vote when voters are to go, and
//! nobody goes who has data.

use forebay_broker_client::types::Uuid;
use forebay_broker_config::{Settings, voter_count};
use forebay_crds::Cluster;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::build::{RESTART_ANNOTATION, broker_set_name, config_map, config_map_name};
use super::disk_drain::removal::Removal;
use super::observe::{Observed, PodSeen};
use super::roll;
use super::{dynamic, scale};

/// What is settled; nothing is for a new cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settled {
    voters: Option<i32>,
    cluster_id: Option<String>,
    /// The restart of all brokers that was asked for last.
    restart: Option<String>,
    /// Settings in the file that brokers take while they run.
    pub(crate) dynamic: Settings,
    /// Brokers that run or have a disk, but for those that have been emptied.
    pub(crate) brokers: i32,
    /// Disks that brokers have and the spec names no more.
    pub(crate) removal: Removal,
    /// A replica is not in sync, or a broker is not there: no broker that runs may be evicted.
    pub(crate) holds_evictions: bool,
}

impl Settled {
    pub(crate) fn of(cluster: &Cluster, observed: &Observed) -> Self {
        let name = cluster.name_any();
        let file = observed.children.get(&format!("ConfigMap/{}", config_map_name(&name)));
        let mut settings = config_map::settings_of(file);
        let voters = settings.get("controller.quorum.voters").map(|voters| voters.split(',').count());
        let set = observed.children.get(&format!("StatefulSet/{}", broker_set_name(&name)));
        let running = set.and_then(|set| set["spec"]["replicas"].as_i64()).unwrap_or(0);
        let with_disk =
            observed.claims.iter().filter(|claim| claim.disk.is_none()).filter_map(|claim| claim.broker_id(&name));
        let known = with_disk.chain(0..i32::try_from(running).unwrap_or(i32::MAX));
        let is_emptied = |id: &i32| {
            let claims = scale::claims_of(cluster, &observed.claims, *id);
            !claims.is_empty() && claims.iter().all(|claim| claim.broker.is_some())
        };
        Self {
            voters: voters.and_then(|count| i32::try_from(count).ok()),
            dynamic: dynamic::of(&settings),
            cluster_id: settings.remove("forebay.cluster.id"),
            restart: set.and_then(|set| roll::marks_of(&set["spec"]["template"]).restart),
            brokers: known.filter(|id| !is_emptied(id)).max().map_or(0, |id| id + 1),
            removal: Removal::of(cluster, observed),
            holds_evictions: holds_evictions(cluster, observed),
        }
    }

    /// How many brokers vote: as many as at the first start, or fewer, when those that voted are to go.
    pub(crate) fn voters(&self, cluster: &Cluster) -> i32 {
        let first = if self.brokers > 0 { self.brokers } else { cluster.spec.replicas };
        let voters = self.voters.unwrap_or_else(|| voter_count(first));
        if voters > cluster.spec.replicas { voter_count(cluster.spec.replicas) } else { voters }
    }

    /// How many brokers there have to be now: those that are to go stay until they are empty.
    pub(crate) fn replicas(&self, cluster: &Cluster) -> i32 {
        cluster.spec.replicas.max(self.brokers)
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
    (replicas == 1 && ran > 1).then(|| {
        format!(
            "spec.replicas is 1, and this Cluster of {ran} brokers has a quorum, which needs 3: set it to 3 or more"
        )
    })
}

/// Whether the loss of one more broker could cost something. What is not known is no reason to risk it.
fn holds_evictions(cluster: &Cluster, observed: &Observed) -> bool {
    let in_sync = |pod: &PodSeen| {
        let said = observed.reports.get(&pod.name).and_then(|report| report.as_ref().ok());
        pod.ready && !pod.deleting && said.is_some_and(|status| status.under_replicated_partitions == 0)
    };
    let present = i32::try_from(observed.pods.len()).unwrap_or(i32::MAX) >= cluster.spec.replicas;
    cluster.spec.replicas > 1 && !(present && observed.pods.iter().all(in_sync))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::observe::ClaimSeen;
    use forebay_broker_config::status::BrokerStatus;
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
        let gone = ClaimSeen { disk: Some("removed".into()), ..claim("more-c-broker-6") };
        let claims = vec![claim("data-c-broker-4"), gone];
        let of_disk = Settled::of(&cluster(3), &Observed { claims, ..Observed::default() });
        assert_eq!(of_disk.brokers, 5, "the claim of a disk that was removed is no broker's");
        assert_eq!((settled.replicas(&cluster(3)), settled.replicas(&cluster(6))), (5, 6));
        assert!(refuse(1, &settled).unwrap().contains("set it to 3 or more"));
        assert_eq!(refuse(3, &settled), None);
    }

    #[test]
    fn brokers_that_were_emptied_may_go_and_those_that_vote_are_fewer_then() {
        let claim = |name: &str, broker: Option<&str>| ClaimSeen {
            name: name.to_owned(),
            broker: broker.map(str::to_owned),
            ..ClaimSeen::default()
        };
        let mut observed = Observed::default();
        observed.children.insert("StatefulSet/c-broker".into(), json!({"spec": {"replicas": 5}}));
        let text = "controller.quorum.voters=0@a:1,1@b:1,2@c:1,3@d:1,4@e:1\n";
        observed.children.insert("ConfigMap/c-broker-config".into(), json!({"data": {"broker.properties": text}}));
        observed.claims = vec![claim("data-c-broker-3", Some("emptied")), claim("data-c-broker-4", Some("emptied"))];
        assert_eq!(Settled::of(&cluster(3), &observed).brokers, 3);
        observed.claims.push(claim("more-c-broker-4", None));
        let settled = Settled::of(&cluster(3), &observed);
        assert_eq!(settled.brokers, 5, "one disk is not known to be empty");
        assert_eq!([3, 4, 5, 9].map(|replicas| settled.voters(&cluster(replicas))), [3, 3, 5, 5]);
    }

    #[test]
    fn evictions_are_held_while_a_replica_is_behind_and_while_a_broker_is_missing_or_says_nothing() {
        let observed = |behind: &[Option<u64>]| {
            let mut observed = Observed::default();
            for (ordinal, behind) in (0..).zip(behind) {
                let name = format!("c-broker-{ordinal}");
                if let Some(behind) = behind {
                    let status = BrokerStatus { under_replicated_partitions: *behind, ..BrokerStatus::default() };
                    observed.reports.insert(name.clone(), Ok(status));
                }
                observed.pods.push(PodSeen { name, ordinal, ready: true, ..PodSeen::default() });
            }
            observed
        };
        let holds = |behind: &[Option<u64>]| Settled::of(&cluster(3), &observed(behind)).holds_evictions;
        assert!(!holds(&[Some(0); 3]));
        assert!(holds(&[Some(0), Some(1), Some(0)]) && holds(&[Some(0), None, Some(0)]) && holds(&[Some(0); 2]));
        let mut not_ready = observed(&[Some(0); 3]);
        not_ready.pods[1].ready = false;
        assert!(Settled::of(&cluster(3), &not_ready).holds_evictions);
        assert!(!Settled::of(&cluster(1), &observed(&[None])).holds_evictions, "alone: nobody else could serve anyway");
    }

    #[test]
    fn two_brokers_and_a_broker_that_was_alone_are_refused_with_what_would_be_right() {
        assert!(refuse(2, &Settled::default()).unwrap().contains("use 1, or 3 and more"));
        let alone = Settled { brokers: 1, ..Settled::default() };
        assert!(refuse(3, &alone).unwrap().contains("make a new Cluster of 3"));
        assert_eq!(refuse(1, &alone), None);
    }
}
