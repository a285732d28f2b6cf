//! Arguments. Tunables live here and not in the API: what is stored in an object can't be corrected by a later release.

use std::net::SocketAddr;

use clap::{Parser, Subcommand};

use crate::node_settings;

/// Runs Forebay clusters, topics and consumer profiles on Kubernetes.
#[derive(Clone, Debug, Parser)]
#[command(name = "forebay-operator", version, about, args_conflicts_with_subcommands = true)]
pub struct Program {
    /// What to do instead of running clusters.
    #[command(subcommand)]
    pub work: Option<Work>,
    /// Of the operator itself.
    #[command(flatten)]
    pub operator: Args,
}

/// Work beside the operator's own.
#[derive(Clone, Debug, Subcommand)]
pub enum Work {
    /// Sets kernel settings of this node, as Clusters with brokers on it want them; needs to be privileged.
    NodeSettings(node_settings::Args),
}

/// The operator's own arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Image of the brokers of Clusters that name none.
    #[arg(long, default_value = concat!("forebay-broker:", env!("CARGO_PKG_VERSION")))]
    pub broker_image: String,
    /// Where /metrics, /livez and /readyz are served.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub http_address: SocketAddr,
    /// Namespaces to watch, separated by commas; all when left out.
    #[arg(long, value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// Name of the Lease by which one of several operators becomes the leader; no election when left out.
    #[arg(long)]
    pub lease_name: Option<String>,
    /// The cluster's DNS domain.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Where a Cluster's brokers are reached: `{name}` and `{namespace}` are filled in. For an operator that runs
    /// outside the Kubernetes cluster.
    #[arg(long, default_value = "{name}-bootstrap.{namespace}.svc:9092")]
    pub bootstrap: String,
    /// Seconds after which a converged object is looked at again, so that changes made by hand are put back.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub resync_seconds: u64,
    /// Only check that the Kubernetes API serves our kinds and that an operator answers at this host:port, and end.
    #[arg(long)]
    pub check: Option<String>,
    /// This pod's name: the identity in the Lease and in Events.
    #[arg(long, env = "POD_NAME", default_value = "forebay-operator")]
    pub pod_name: String,
    /// This pod's namespace: where the Lease is.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub pod_namespace: String,
}

impl Args {
    /// Where the brokers of a Cluster are reached.
    pub(crate) fn bootstrap_of(&self, namespace: &str, name: &str) -> String {
        self.bootstrap.replace("{name}", name).replace("{namespace}", namespace)
    }
}
