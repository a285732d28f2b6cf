//! What to set on a node. Pure: what Clusters want, what may be set and what is in force in; decisions out.

use std::collections::{BTreeMap, BTreeSet};

use forebay_crds::Reason;
use forebay_crds::cluster::Kernel;

use super::setting::Setting;
use crate::kube::events::Note;

/// Namespace and name of a Cluster.
pub(super) type Key = (String, String);

/// What a Cluster with a broker on this node wants.
pub(super) struct Wish<'a> {
    pub(super) cluster: &'a Key,
    pub(super) kernel: &'a Kernel,
}

/// What to do about one setting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision<'a> {
    Set {
        setting: Setting,
        from: String,
        to: String,
        clusters: Vec<&'a Key>,
    },
    /// They want different values, and only one can be: none is set.
    Conflict {
        setting: Setting,
        wanted: Vec<(&'a Key, String)>,
    },
    /// It is not known what is in force.
    Unreadable {
        setting: Setting,
        error: String,
        clusters: Vec<&'a Key>,
    },
}

impl<'a> Decision<'a> {
    /// Whom it concerns.
    pub(super) fn clusters(&self) -> Vec<&'a Key> {
        match self {
            Self::Set { clusters, .. } | Self::Unreadable { clusters, .. } => clusters.clone(),
            Self::Conflict { wanted, .. } => wanted.iter().map(|(key, _)| *key).collect(),
        }
    }
}

/// Nothing for what is as wanted.
pub(super) fn plan<'a>(
    wishes: &[Wish<'a>],
    allowed: &BTreeSet<Setting>,
    in_force: &BTreeMap<Setting, Result<String, String>>,
) -> Vec<Decision<'a>> {
    allowed.iter().filter_map(|setting| one(*setting, wishes, in_force.get(setting)?)).collect()
}

fn one<'a>(setting: Setting, wishes: &[Wish<'a>], in_force: &Result<String, String>) -> Option<Decision<'a>> {
    let wanted = wishes.iter().filter_map(|wish| Some((wish.cluster, setting.wanted(wish.kernel)?)));
    let wanted: Vec<(&Key, String)> = wanted.collect();
    let (_, first) = wanted.first()?;
    let clusters = wanted.iter().map(|(key, _)| *key).collect();
    let from = match in_force {
        Ok(from) => from.clone(),
        Err(error) => return Some(Decision::Unreadable { setting, error: error.clone(), clusters }),
    };
    let number = |text: &String| text.parse::<i64>().ok();
    let to = if setting.is_at_least() {
        // The most that anybody wants suits all; what is not a number is more than any (`unlimited`).
        let most = wanted.iter().filter_map(|(_, value)| number(value)).max()?;
        if number(&from).is_none_or(|found| found >= most) {
            return None;
        }
        most.to_string()
    } else {
        if wanted.iter().any(|(_, value)| value != first) {
            return Some(Decision::Conflict { setting, wanted });
        }
        first.clone()
    };
    (from != to).then_some(Decision::Set { setting, from, to, clusters })
}

/// What is told of a decision; `failed`: it could not be carried out.
pub(super) fn note(decision: &Decision, failed: Option<&String>, node: &str) -> Note {
    match (decision, failed) {
        (Decision::Set { setting, from, to, .. }, None) => {
            Note::normal(Reason::NodeSettingChanged, format!("node {node}: {setting} {from} → {to}"))
        }
        (Decision::Set { setting, .. }, Some(error)) | (Decision::Unreadable { setting, error, .. }, _) => {
            Note::warning(Reason::NodeSettingRefused, format!("node {node}: {setting} can't be set: {error}"))
        }
        (Decision::Conflict { setting, wanted }, _) => {
            let wanted = wanted.iter().map(|((namespace, name), value)| format!("{namespace}/{name} wants {value}"));
            let wanted = wanted.collect::<Vec<_>>().join(", ");
            let text = format!(
                "node {node}: {setting} is left as it is: {wanted}; keep them on different nodes, or let them want the same"
            );
            Note::warning(Reason::NodeSettingConflict, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    /// Decisions in words, when `wants` are the Clusters' `kernel`s and `there` is in force.
    fn decided(wants: &[Value], allowed: &[Setting], there: &[(Setting, &str)]) -> Vec<String> {
        let kernels: Vec<Kernel> = wants.iter().map(|kernel| serde_json::from_value(kernel.clone()).unwrap()).collect();
        let keys: Vec<Key> = (0..kernels.len()).map(|n| key(&format!("c{n}"))).collect();
        let wishes: Vec<Wish> = keys.iter().zip(&kernels).map(|(cluster, kernel)| Wish { cluster, kernel }).collect();
        let in_force = there.iter().map(|(setting, value)| (*setting, Ok((*value).to_owned()))).collect();
        let decisions = plan(&wishes, &allowed.iter().copied().collect(), &in_force);
        decisions.iter().map(|decision| note(decision, None, "node-1").text).collect()
    }

    #[test]
    fn an_exact_setting_is_set_and_one_as_wanted_is_left_alone() {
        let wants = [json!({"swappiness": 1, "transparentHugepage": "never"})];
        let there = [(Setting::Swappiness, "60"), (Setting::TransparentHugepage, "never")];
        let allowed = [Setting::Swappiness, Setting::TransparentHugepage];
        assert_eq!(decided(&wants, &allowed, &there), ["node node-1: swappiness 60 → 1"]);
        assert!(
            decided(&wants, &allowed, &[(Setting::Swappiness, "1"), (Setting::TransparentHugepage, "never")])
                .is_empty()
        );
    }

    #[test]
    fn a_lower_bound_is_raised_to_the_most_that_is_wanted_and_never_lowered() {
        let wants = [json!({"maxMapCount": 262_144}), json!({"maxMapCount": 1_000_000}), json!({})];
        let allowed = [Setting::MaxMapCount];
        assert_eq!(
            decided(&wants, &allowed, &[(Setting::MaxMapCount, "65530")]),
            ["node node-1: maxMapCount 65530 → 1000000"]
        );
        assert!(decided(&wants, &allowed, &[(Setting::MaxMapCount, "1000001")]).is_empty());
    }

    #[test]
    fn what_is_not_allowed_or_wanted_by_nobody_is_not_touched() {
        let there = [(Setting::Swappiness, "60"), (Setting::DirtyRatio, "20")];
        assert!(decided(&[json!({"swappiness": 1})], &[Setting::DirtyRatio], &there).is_empty());
        assert!(decided(&[], &[Setting::Swappiness], &there).is_empty());
    }

    #[test]
    fn clusters_that_want_different_values_get_neither_and_are_told() {
        let wants = [json!({"swappiness": 1}), json!({"swappiness": 10})];
        let [text] = decided(&wants, &[Setting::Swappiness], &[(Setting::Swappiness, "60")]).try_into().unwrap();
        assert!(text.contains("swappiness is left as it is: n/c0 wants 1, n/c1 wants 10"), "{text}");
    }

    #[test]
    fn a_file_that_can_not_be_read_or_written_is_a_warning_to_those_who_want_it() {
        let kernel = Kernel { swappiness: Some(1), ..Kernel::default() };
        let (key, allowed) = (key("c"), [Setting::Swappiness].into());
        let unreadable = [(Setting::Swappiness, Err("proc/sys/vm/swappiness can't be read: gone".to_owned()))].into();
        let decisions = plan(&[Wish { cluster: &key, kernel: &kernel }], &allowed, &unreadable);
        assert_eq!(decisions[0].clusters(), [&key]);
        let told = note(&decisions[0], None, "n1");
        assert!(told.warning && told.text.contains("swappiness can't be set: proc/sys/vm"), "{told:?}");
        let set =
            Decision::Set { setting: Setting::Swappiness, from: "60".into(), to: "1".into(), clusters: vec![&key] };
        let told = note(&set, Some(&"read-only".to_owned()), "n1");
        assert!(told.warning && told.reason == Reason::NodeSettingRefused, "{told:?}");
    }
}
