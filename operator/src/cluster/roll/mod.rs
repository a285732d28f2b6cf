//! Which broker is replaced next, if any. A step function: it looks at the pods as they are, so a restart of the operator
//! loses nothing, and however long a broker takes to come back, it waits.
//!
//! What must always hold: at most one broker is down because of the roll; a broker that is down already goes first, so
//! that a bad spec costs one pod and its correction heals that pod; and a broker that runs is only taken down while every
//! replica is in sync, so that none is the last that has a record.

use super::observe::PodSeen;

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All pods have the present revision.
    Nothing,
    /// Replace this one: name, uid, why.
    Replace { name: String, uid: String, why: String },
    /// Something has to come first; the text says what.
    Wait(String),
}

/// `revision` is the one that the StatefulSet would give a new pod; `out_of_sync` says which replicas are not in sync.
pub(crate) fn next(pods: &[PodSeen], replicas: i32, revision: &str, out_of_sync: Option<String>) -> Step {
    let outdated: Vec<&PodSeen> = pods.iter().filter(|pod| pod.revision != revision && !pod.deleting).collect();
    if outdated.is_empty() {
        return Step::Nothing;
    }
    let replace = |pod: &PodSeen, state: &str| Step::Replace {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        why: format!("{} is {state} with revision {}, the present one is {revision}", pod.name, pod.revision),
    };
    if let Some(pod) = pods.iter().find(|pod| pod.deleting) {
        return Step::Wait(format!("{} is stopping", pod.name));
    }
    if let Some(pod) = outdated.iter().find(|pod| !pod.ready) {
        return replace(pod, "not ready");
    }
    if let Some(pod) = pods.iter().find(|pod| !pod.ready) {
        return Step::Wait(format!("{} is not ready yet", pod.name));
    }
    let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    if count < replicas {
        return Step::Wait(format!("{count} of {replicas} pods exist"));
    }
    if let Some(why) = out_of_sync {
        return Step::Wait(why);
    }
    outdated.last().map_or(Step::Nothing, |pod| replace(pod, "running"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ordinal: i32, revision: &str, ready: bool) -> PodSeen {
        let name = format!("c-broker-{ordinal}");
        PodSeen { uid: format!("u{ordinal}"), name, ordinal, revision: revision.into(), ready, ..PodSeen::default() }
    }

    fn next(pods: &[PodSeen], replicas: i32, revision: &str) -> Step {
        super::next(pods, replicas, revision, None)
    }

    fn replaced(step: &Step) -> Option<&str> {
        match step {
            Step::Replace { name, .. } => Some(name),
            Step::Nothing | Step::Wait(_) => None,
        }
    }

    #[test]
    fn one_at_a_time_and_the_one_that_is_down_first() {
        let pods = [pod(0, "old", true), pod(1, "old", false), pod(2, "old", true)];
        assert_eq!(replaced(&next(&pods, 3, "new")), Some("c-broker-1"));
        let pods = [pod(0, "old", true), pod(1, "new", false), pod(2, "old", true)];
        assert_eq!(next(&pods, 3, "new"), Step::Wait("c-broker-1 is not ready yet".into()));
        let pods = [pod(0, "old", true), pod(1, "new", true), pod(2, "old", true)];
        assert_eq!(replaced(&next(&pods, 3, "new")), Some("c-broker-2"));
        assert_eq!(next(&pods[..2], 3, "new"), Step::Wait("2 of 3 pods exist".into()));
    }

    #[test]
    fn no_second_broker_goes_down_while_a_replica_is_behind_but_one_that_is_down_may_be_mended() {
        let behind = Some("4 partitions are behind".to_owned());
        let pods = [pod(0, "old", true), pod(1, "old", true), pod(2, "new", true)];
        assert_eq!(super::next(&pods, 3, "new", behind.clone()), Step::Wait("4 partitions are behind".into()));
        let pods = [pod(0, "old", true), pod(1, "bad", false), pod(2, "old", true)];
        assert_eq!(replaced(&super::next(&pods, 3, "new", behind)), Some("c-broker-1"));
    }

    #[test]
    fn a_bad_spec_costs_one_pod_and_reverting_it_heals_that_pod() {
        let bad = [pod(0, "old", true), pod(1, "bad", false)];
        assert_eq!(next(&bad, 2, "bad"), Step::Wait("c-broker-1 is not ready yet".into()));
        assert_eq!(replaced(&next(&bad, 2, "old")), Some("c-broker-1"));
    }

    #[test]
    fn nothing_is_replaced_during_a_first_start_or_while_a_pod_stops() {
        assert_eq!(next(&[pod(0, "new", false)], 1, "new"), Step::Nothing);
        let stopping = PodSeen { deleting: true, ..pod(0, "old", false) };
        assert_eq!(next(std::slice::from_ref(&stopping), 1, "new"), Step::Nothing);
        assert_eq!(next(&[stopping, pod(1, "old", true)], 2, "new"), Step::Wait("c-broker-0 is stopping".into()));
    }
}
