//! Consumer profiles without an operator: the same solver, and the same files as the operator's ConfigMap, in a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use forebay_crds::ConsumerProfile;
use forebay_crds::solver_request::{family, group, request};
use forebay_profile::render::{file_name, render};
use forebay_profile::{ClientFamily, Request, Solution, Subscription, solve};
use serde::{Deserialize, Serialize};

/// A profile, solved.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Solved {
    /// The profile's name.
    pub(crate) name: String,
    /// The consumer group.
    pub(crate) group: String,
    /// The client its verdicts are for.
    pub(crate) client: ClientFamily,
    /// What the solver says.
    #[serde(flatten)]
    pub(crate) solution: Solution,
}

/// What is kept of a solved profile, and listed later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) client: ClientFamily,
    /// `Ok`, `Warning`, `Refused` or `Unsatisfiable`.
    pub(crate) verdict: String,
    /// The messages of the gravest verdict.
    pub(crate) summary: String,
    /// Where its files are; none when the settings were not accepted.
    pub(crate) folder: Option<PathBuf>,
}

/// What is listed of a profile whose topics are not there.
pub(crate) fn unsolved(profile: &ConsumerProfile, why: &str) -> Listed {
    let name = profile.metadata.name.clone().unwrap_or_default();
    let (group, client) = (group(profile), family(profile));
    Listed { name, group, client, verdict: "Unsolved".to_owned(), summary: why.to_owned(), folder: None }
}

/// Solves one profile for topics as they are.
pub(crate) fn solved(profile: &ConsumerProfile, subscription: Subscription) -> anyhow::Result<Solved> {
    let request = request(profile, subscription)?;
    let name = profile.metadata.name.clone().unwrap_or_default();
    Ok(Solved { name, group: request.group.clone(), client: request.family, solution: solve(&request) })
}

impl Solved {
    /// What is kept and listed.
    pub(crate) fn listed(&self, folder: Option<PathBuf>) -> Listed {
        Listed {
            name: self.name.clone(),
            group: self.group.clone(),
            client: self.client,
            verdict: format!("{:?}", self.solution.verdict()),
            summary: self.solution.summary(),
            folder,
        }
    }

    /// Writes the settings for each client they hold for. Settings that are refused write nothing, and leave what an earlier,
    /// accepted profile wrote: applications go on with what works.
    pub(crate) fn write(
        &self,
        profile: &ConsumerProfile,
        subscription: &Subscription,
        folder: &Path,
    ) -> anyhow::Result<bool> {
        if !self.solution.is_accepted() {
            return Ok(false);
        }
        std::fs::create_dir_all(folder).with_context(|| format!("can't create {}", folder.display()))?;
        for (name, text) in self.files(profile, subscription)? {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(true)
    }

    /// The files by name: one for each client whose rules the profile meets too.
    fn files(
        &self,
        profile: &ConsumerProfile,
        subscription: &Subscription,
    ) -> anyhow::Result<BTreeMap<&'static str, String>> {
        let mut files = BTreeMap::new();
        for family in ClientFamily::ALL {
            let request = Request { family, ..request(profile, subscription.clone())? };
            let solution = solve(&request);
            if solution.is_accepted() {
                files.insert(file_name(family), render(family, &solution.settings));
            }
        }
        Ok(files)
    }
}

/// The subscription of a profile when no broker can be asked: partitions as the manifests declare them.
pub(crate) fn declared_subscription(
    profile: &ConsumerProfile,
    partitions: &BTreeMap<String, i32>,
    brokers: i32,
) -> anyhow::Result<Subscription> {
    let mut total = 0;
    for topic in &profile.spec.topics {
        match partitions.get(topic) {
            Some(count) => total += i64::from(*count),
            None => bail!("spec.topics: {topic:?} is not a topic of these manifests"),
        }
    }
    let brokers = i64::from(brokers).min(total);
    Ok(Subscription { partitions: total, brokers, limits: forebay_profile::BrokerLimits::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    fn profiles(file: &str) -> Vec<ConsumerProfile> {
        let read = |name: &str| {
            let path = format!("{}/../examples/{name}", env!("CARGO_MANIFEST_DIR"));
            (name.to_owned(), std::fs::read_to_string(path).unwrap())
        };
        let mut quickstart = read("quickstart.yaml");
        if file != "quickstart.yaml" {
            quickstart.1 = format!("{}\n---\n{}", quickstart.1, read(file).1);
        }
        manifest::parse(&[quickstart]).unwrap().profiles
    }

    fn four() -> Subscription {
        Subscription { partitions: 4, brokers: 1, limits: forebay_profile::BrokerLimits::default() }
    }

    #[test]
    fn an_accepted_profile_has_a_file_for_each_client() {
        let profile = &profiles("quickstart.yaml")[0];
        let solved = solved(profile, four()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert!(solved.write(profile, &four(), folder.path()).unwrap());
        let java = std::fs::read_to_string(folder.path().join("java.properties")).unwrap();
        assert!(java.contains("group.id=billing"), "{java}");
        assert!(folder.path().join("librdkafka.properties").exists() && folder.path().join("franz-go.json").exists());
    }

    #[test]
    fn a_refused_profile_says_why_and_leaves_what_was_written_before() {
        let all = profiles("profiles.yaml");
        let refused = all.iter().find(|p| p.metadata.name.as_deref() == Some("refused")).unwrap();
        let solved = solved(refused, four()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("java.properties"), "before").unwrap();
        assert!(!solved.write(refused, &four(), folder.path()).unwrap());
        assert_eq!(std::fs::read_to_string(folder.path().join("java.properties")).unwrap(), "before");
        let listed = solved.listed(None);
        assert_eq!(listed.verdict, "Refused");
        assert!(listed.summary.contains("4194304"), "names the largest value that works: {}", listed.summary);
    }
}
