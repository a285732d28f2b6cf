//! Consumer profiles without an operator: the same solver, and the same files as the operator's ConfigMap, in a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use forebay_crds::ConsumerProfile;
use forebay_crds::consumer_profile as declared;
use forebay_profile::render::{file_name, render};
use forebay_profile::{ClientFamily, Goals, GroupProtocol, Preset, Request, Solution, Subscription, solve};
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
    let group = profile.spec.group.clone().unwrap_or_else(|| name.clone());
    let client = family(profile.spec.client_family);
    Listed { name, group, client, verdict: "Unsolved".to_owned(), summary: why.to_owned(), folder: None }
}

fn family(declared: declared::ClientFamily) -> ClientFamily {
    match declared {
        declared::ClientFamily::Java => ClientFamily::Java,
        declared::ClientFamily::Librdkafka => ClientFamily::Librdkafka,
        declared::ClientFamily::FranzGo => ClientFamily::FranzGo,
    }
}

/// Solves one profile for topics as they are.
pub(crate) fn solved(profile: &ConsumerProfile, subscription: Subscription) -> anyhow::Result<Solved> {
    let request = request(profile, subscription)?;
    let name = profile.metadata.name.clone().unwrap_or_default();
    Ok(Solved { name, group: request.group.clone(), client: request.family, solution: solve(&request) })
}

fn request(profile: &ConsumerProfile, subscription: Subscription) -> anyhow::Result<Request> {
    let spec = &profile.spec;
    let name = profile.metadata.name.clone().unwrap_or_default();
    Ok(Request {
        group: spec.group.clone().unwrap_or(name),
        family: family(spec.client_family),
        protocol: match spec.group_protocol {
            Some(declared::GroupProtocol::Consumer) => GroupProtocol::Consumer,
            Some(declared::GroupProtocol::Classic) | None => GroupProtocol::Classic,
        },
        preset: spec.preset.map(|preset| match preset {
            declared::Preset::Projection => Preset::Projection,
            declared::Preset::Reconciliation => Preset::Reconciliation,
            declared::Preset::LowTraffic => Preset::LowTraffic,
            declared::Preset::LatencyCritical => Preset::LatencyCritical,
        }),
        goals: spec.goals.as_ref().map(goals).transpose()?.unwrap_or_default(),
        settings: spec.settings.iter().map(|(name, value)| (name.clone(), value.to_string())).collect(),
        subscription,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a latency has at most 3,600,000 ms")]
fn goals(goals: &declared::Goals) -> anyhow::Result<Goals> {
    let memory = goals.memory_limit.as_ref().map(|quantity| {
        bytes(&quantity.0).with_context(|| format!("spec.goals.memoryLimit: {:?} is no quantity of bytes", quantity.0))
    });
    Ok(Goals {
        latency_ms: goals.latency_ms.map(|ms| ms as f64),
        records_per_second: goals.records_per_second,
        record_bytes: goals.record_bytes,
        work_mean_ms: goals.work_mean_ms,
        work_worst_ms: goals.work_worst_ms,
        members: goals.members.map(i64::from),
        memory_limit_bytes: memory.transpose()?,
    })
}

/// Bytes in a Kubernetes quantity.
fn bytes(quantity: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
        ("", 1.0),
    ];
    let (number, unit) = UNITS.iter().find_map(|(suffix, unit)| Some((quantity.strip_suffix(suffix)?, unit)))?;
    let bytes = number.parse::<f64>().ok()? * unit;
    #[expect(clippy::cast_possible_truncation, reason = "checked to be within i64 just before")]
    (0.0..9.2e18).contains(&bytes).then_some(bytes as i64)
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

    #[test]
    fn quantities_of_memory_are_bytes() {
        assert_eq!(bytes("256Mi"), Some(268_435_456));
        assert_eq!(bytes("1.5Gi"), Some(1_610_612_736));
        assert_eq!(bytes("500M"), Some(500_000_000));
        assert_eq!(bytes("12"), Some(12));
        assert_eq!((bytes("lots"), bytes("-1Mi")), (None, None));
    }
}
