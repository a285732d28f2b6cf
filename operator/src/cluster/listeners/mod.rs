//! Where clients reach each broker on `spec.listeners`, what the brokers are to tell them, and what stands in the way. Pure.
//!
//! What must always hold: brokers that tell what they should are asked nothing; an address that is not known yet keeps nothing else
//! back; what a broker tells follows its pod to another node without a restart (it is set while the broker runs).

mod addresses;
pub(crate) mod observe;

use std::collections::BTreeMap;

use forebay_broker_config::status::{BrokerState, BrokerStatus};
use forebay_crds::cluster::{Listener, ListenerAddress, ListenerStatus, ListenerType};
use forebay_crds::{Cluster, ConditionReport, ConditionType, Reason};

use super::build::Defaults;
use super::observe::{Observed, PodSeen};

/// What a node's addresses are, by node; why none are known, where nodes can't be read.
pub(crate) type Nodes = BTreeMap<String, Result<Vec<NodeAddress>, String>>;

/// One address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    /// As Kubernetes names it.
    pub(crate) kind: String,
    pub(crate) address: String,
}

/// The setting of one broker that says what clients are told.
pub(crate) const ADVERTISED_LISTENERS: &str = "advertised.listeners";

/// Why an address is not known or not told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Missing {
    /// It comes by itself: a broker starts, a Service has just been made.
    Soon(String),
    /// Something else has to do its part first.
    Stuck(String),
}

impl Missing {
    fn soon(text: impl Into<String>) -> Self {
        Self::Soon(text.into())
    }

    fn text(&self) -> &str {
        match self {
            Self::Soon(text) | Self::Stuck(text) => text,
        }
    }

    fn of_broker(self, id: i32) -> Self {
        match self {
            Self::Soon(text) => Self::Soon(format!("broker {id}: {text}")),
            Self::Stuck(text) => Self::Stuck(format!("broker {id}: {text}")),
        }
    }
}

/// What is to be told by which broker; none takes back what was set.
pub(crate) type Tell = BTreeMap<i32, Option<String>>;

/// What there is to say and do about listeners.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) status: Vec<ListenerStatus>,
    /// None without listeners.
    pub(crate) report: Option<ConditionReport>,
    pub(crate) tell: Tell,
    /// A broker that serves does not tell yet what it should: no watch says when it does.
    pub(crate) untold: bool,
}

/// For people.
pub(crate) fn text(tell: &Tell) -> String {
    let one = |(id, told): (&i32, &Option<String>)| match told {
        Some(told) => format!("broker {id} tells clients {told}"),
        None => format!("broker {id} tells clients of no other listener any more"),
    };
    tell.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Whether nodes are to be looked at: only where a broker is told by its node's address.
pub(crate) fn asks_nodes(cluster: &Cluster) -> bool {
    let ids = 0..cluster.spec.replicas;
    let asks = |listener: &Listener| {
        listener.listener_type == ListenerType::NodePort && ids.clone().any(|id| listener.advertised_host(id).is_none())
    };
    cluster.spec.listeners.iter().any(asks)
}

pub(crate) fn judge(cluster: &Cluster, observed: &Observed, defaults: &Defaults) -> Judged {
    let pods = observed.pods.iter().filter(|pod| !pod.deleting);
    let report_of = |pod: &PodSeen| observed.reports.get(&pod.name).and_then(|report| report.as_ref().ok());
    let by_id = pods.map(|pod| (pod.ordinal, (pod, report_of(pod)))).collect();
    let look = Look { cluster, observed, defaults, by_id };
    let looked: Vec<(ListenerStatus, bool)> =
        cluster.spec.listeners.iter().map(|listener| look.status(listener)).collect();
    let is_stuck = looked.iter().any(|(_, is_stuck)| *is_stuck);
    let status: Vec<ListenerStatus> = looked.into_iter().map(|(status, _)| status).collect();
    let missing = status.iter().filter_map(|one| Some(format!("{}: {}", one.name, one.message.as_ref()?)));
    let missing = missing.collect::<Vec<_>>().join("; ");
    let (state, reason, text) = match (missing.is_empty(), is_stuck) {
        (true, _) => (true, Reason::AsSpecified, "clients of each listener are told of every broker".to_owned()),
        (false, true) => (false, Reason::AddressPending, missing),
        (false, false) => (false, Reason::BrokersStarting, missing),
    };
    let report = ConditionReport::new(ConditionType::ListenersReady, state, reason, text);
    let report = (!status.is_empty()).then_some(report);
    let tell = look.tell();
    Judged { report, untold: !tell.is_empty(), tell, status }
}

/// A Cluster as it was seen.
struct Look<'a> {
    cluster: &'a Cluster,
    observed: &'a Observed,
    defaults: &'a Defaults,
    /// Pods that stay, with what their brokers say.
    by_id: BTreeMap<i32, (&'a PodSeen, Option<&'a BrokerStatus>)>,
}

impl Look<'_> {
    /// What brokers that serve do not tell yet, or tell no more.
    fn tell(&self) -> Tell {
        let serving = self.by_id.iter().filter_map(|(id, (pod, reported))| {
            let reported = reported.filter(|reported| pod.ready && reported.state == BrokerState::Running)?;
            Some((*id, self.wanted(pod), &reported.advertised_set))
        });
        serving.filter(|(_, wanted, set)| wanted != *set).map(|(id, wanted, _)| (id, wanted)).collect()
    }

    /// The setting that a broker is to have, of the listeners whose address is known.
    fn wanted(&self, pod: &PodSeen) -> Option<String> {
        let outside = self.cluster.spec.listeners.iter().filter(|one| one.listener_type != ListenerType::Internal);
        let told = outside
            .filter_map(|listener| Some(format!("{}://{}", listener.broker_name(), self.address(listener, pod).ok()?)));
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join(","))
    }

    /// How the listener is reached, and whether something else has to do its part first.
    fn status(&self, listener: &Listener) -> (ListenerStatus, bool) {
        let (mut brokers, mut missing) = (Vec::new(), Vec::new());
        for id in 0..self.cluster.spec.replicas {
            let (address, why) = self.told(listener, id);
            brokers.extend(address.map(|address| ListenerAddress { id, address }));
            missing.extend(why.map(|why| why.of_broker(id)));
        }
        let (bootstrap_servers, why) = self.bootstrap(listener, &brokers);
        missing.extend(why);
        let is_stuck = missing.iter().any(|missing| matches!(missing, Missing::Stuck(_)));
        let message: Vec<&str> = missing.iter().map(Missing::text).collect();
        let status = ListenerStatus {
            name: listener.name.clone(),
            listener_type: listener.listener_type,
            bootstrap_servers,
            brokers: if listener.listener_type == ListenerType::Internal { Vec::new() } else { brokers },
            message: (!message.is_empty()).then(|| message.join("; ")),
        };
        (status, is_stuck)
    }

    /// A broker's address, and what is missing about it.
    fn told(&self, listener: &Listener, id: i32) -> (Option<String>, Option<Missing>) {
        let Some((pod, reported)) = self.by_id.get(&id) else {
            return (None, Some(Missing::soon("it has no pod just now")));
        };
        let address = match self.address(listener, pod) {
            Ok(address) => address,
            Err(why) => return (None, Some(why)),
        };
        let wanted = format!("{}://{address}", listener.broker_name());
        let tells = reported.is_some_and(|reported| reported.advertised.contains(&wanted));
        let why = (!tells).then(|| Missing::Soon(format!("it does not tell {address} yet")));
        (Some(address), why)
    }
}
