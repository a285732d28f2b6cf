//! `forebay-operator node-settings`: sets kernel settings of the node that it runs on, as Clusters with brokers there want them. Privileged, and
//! so only there when somebody has asked for it, with a list of what it may set.
//!
//! What must hold: nothing is written that is not on the list, that no Cluster with a broker on this node wants, or that is so already; what
//! only has a lower bound is never lowered; nothing is put back, since nobody knows what else has come to rely on it.

mod node;
mod plan;
mod setting;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use forebay_crds::cluster::Kernel;
use forebay_crds::{CLUSTER_LABEL, Cluster};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use self::node::Node;
use self::plan::{Decision, Wish};
pub use self::setting::Setting;
use crate::kube::events::Events;

/// Pods of brokers on one node that are looked at: more than a node has pods.
const PODS_MAX: u32 = 1000;
/// For the API server's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Sets kernel settings of this node, as Clusters with brokers on it want them (`spec.kernel`).
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The node's name.
    #[arg(long, env = "NODE_NAME")]
    pub node: String,
    /// Settings that may be set, by their names in `spec.kernel`, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub allow: Vec<Setting>,
    /// Namespaces to watch, separated by commas; all when left out.
    #[arg(long, value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub resync_seconds: u64,
    /// Folder that has `proc/sys` and `sys` of the node.
    #[arg(long, default_value = "/")]
    pub root: PathBuf,
    /// This pod's name, in Events.
    #[arg(long, env = "POD_NAME", default_value = "forebay-node-settings")]
    pub pod_name: String,
}

/// Runs until SIGTERM or SIGINT. What fails is told, and tried again.
///
/// # Errors
/// When there is no Kubernetes API to be found.
pub async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("find the Kubernetes API")?;
    let events = Events::new(client.clone(), args.pod_name.clone());
    let allowed: BTreeSet<Setting> = args.allow.iter().copied().collect();
    let node = Node::new(&args.root);
    let mut told = Told::default();
    tracing::info!(node = args.node, ?allowed, "setting what Clusters with brokers here want");
    loop {
        match wishes(&client, &args).await {
            Ok(clusters) => once(&clusters, &allowed, &node, &args.node, &events, &mut told).await,
            Err(error) => tracing::warn!(error = format!("{error:#}"), "not known what is wanted; trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.resync_seconds)) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
}

/// Clusters with a broker on this node, by namespace and name.
type Clusters = BTreeMap<(String, String), Cluster>;

async fn wishes(client: &Client, args: &Args) -> anyhow::Result<Clusters> {
    let namespaces: Vec<Option<&str>> = match args.watch_namespaces.as_slice() {
        [] => vec![None],
        some => some.iter().map(|namespace| Some(namespace.as_str())).collect(),
    };
    let mut found = Clusters::new();
    let on_this_node = ListParams::default()
        .fields(&format!("spec.nodeName={}", args.node))
        .labels(&format!("app.kubernetes.io/component=broker,{CLUSTER_LABEL}"))
        .limit(PODS_MAX);
    for namespace in namespaces {
        let pods: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let list = tokio::time::timeout(ANSWER_WITHIN, pods.list_metadata(&on_this_node));
        let list = list.await.context("list broker pods of this node: no answer")?;
        let list = list
            .with_context(|| format!("list broker pods of this node in {}", namespace.unwrap_or("all namespaces")))?;
        for pod in list.items {
            let Some(name) = pod.labels().get(CLUSTER_LABEL).cloned() else { continue };
            let key = (pod.namespace().unwrap_or_default(), name);
            if found.contains_key(&key) {
                continue;
            }
            let clusters: Api<Cluster> = Api::namespaced(client.clone(), &key.0);
            let cluster = tokio::time::timeout(ANSWER_WITHIN, clusters.get_opt(&key.1));
            let cluster = cluster.await.with_context(|| format!("get Cluster {}/{}: no answer", key.0, key.1))?;
            let cluster = cluster.with_context(|| format!("get Cluster {}/{}", key.0, key.1))?;
            found.extend(cluster.map(|cluster| (key, cluster)));
        }
    }
    Ok(found)
}

/// One look: what is wanted against what there is, and what follows is done and told.
async fn once(
    clusters: &Clusters,
    allowed: &BTreeSet<Setting>,
    node: &Node,
    node_name: &str,
    events: &Events,
    told: &mut Told,
) {
    let wishes: Vec<Wish> = clusters.iter().filter_map(wish).collect();
    let in_force = allowed.iter().map(|setting| (*setting, node.read(*setting))).collect();
    let mut problems = BTreeSet::new();
    for decision in plan::plan(&wishes, allowed, &in_force) {
        let done = match &decision {
            Decision::Set { setting, to, .. } => node.write(*setting, to),
            Decision::Conflict { .. } | Decision::Unreadable { .. } => Ok(()),
        };
        let note = plan::note(&decision, done.as_ref().err(), node_name);
        if note.warning {
            problems.insert(note.text.clone());
            if told.0.contains(&note.text) {
                continue;
            }
            tracing::warn!("{}", note.text);
        } else {
            tracing::info!("{}", note.text);
        }
        for cluster in decision.clusters().iter().filter_map(|key| clusters.get(*key)) {
            events.publish(cluster, &note).await;
        }
    }
    told.0 = problems;
}

/// Problems that have been told and go on.
#[derive(Default)]
struct Told(BTreeSet<String>);

fn wish<'a>((key, cluster): (&'a (String, String), &'a Cluster)) -> Option<Wish<'a>> {
    let kernel: &Kernel = cluster.spec.kernel.as_ref()?;
    // A Cluster that is paused is left as it is.
    (cluster.spec.paused != Some(true)).then_some(Wish { cluster: key, kernel })
}
