//! Nodes, for stories that disturb them: power off and on by the script of whoever made the cluster, cordon, eviction as `kubectl
//! drain` does it. Such stories run alone (`e2e/tests/alone`), and leave all nodes as they were, however they end.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod as KubePod};
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::process::Command;

use crate::Story;

/// Set by `cargo xtask e2e`: the script that stops and starts nodes.
const SCRIPT: &str = "FOREBAY_E2E_CLUSTER";

/// An eviction that is let through is answered sooner, on a busy machine too.
const EVICTION_LIMIT: Duration = Duration::from_secs(3);

/// Whether nodes can be powered off here; says so when not.
pub fn can_be_stopped(story: &Story) -> bool {
    let can = std::env::var_os(SCRIPT).is_some();
    if !can {
        story.step("SKIPPED: nodes of a cluster that was not made here are left alone");
    }
    can
}

/// How an eviction was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The pod goes.
    Yes,
    /// A PodDisruptionBudget forbids it for now.
    NotNow,
}

impl Story {
    /// The node that a pod is on.
    ///
    /// # Errors
    /// When there is no such pod, or it has no node.
    pub async fn node_of(&self, pod: &str) -> Result<String> {
        let pod = self.api::<KubePod>().get(pod).await?;
        pod.spec.and_then(|spec| spec.node_name).context("the pod has no node")
    }

    /// Cuts a node's power: all its processes die at once.
    ///
    /// # Errors
    /// When the script fails.
    pub async fn stop_node(&self, node: &str) -> Result<()> {
        self.step(&format!("{node} loses its power"));
        script(&["node-stop", node]).await
    }

    /// Boots a node again.
    ///
    /// # Errors
    /// When the script fails, or the node does not become ready.
    pub async fn start_node(&self, node: &str) -> Result<()> {
        script(&["node-start", node]).await?;
        let nodes: Api<Node> = Api::all(self.client.clone());
        self.eventually(&format!("{node} is back"), 120, async || {
            let status = nodes.get(node).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            ensure!(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"), "it is not ready");
            Ok(())
        })
        .await
    }

    /// Kills the first container of a pod, as SIGKILL does: it can't tidy up. Where nodes can't be reached, nothing is done.
    ///
    /// # Errors
    /// When the script fails.
    pub async fn kill_container(&self, pod: &KubePod) -> Result<()> {
        if std::env::var_os(SCRIPT).is_none() {
            return Ok(());
        }
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
        let id = containers.and_then(|container| container.container_id.as_deref()?.split_once("://"));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let ((_, id), node) = id.zip(node).context("the pod has no container that runs")?;
        script(&["container-kill", node, id]).await
    }

    /// Lets no new pod onto a node, or lets them again.
    ///
    /// # Errors
    /// With the API server's words.
    pub async fn cordon(&self, node: &str, cordoned: bool) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"unschedulable": cordoned}}));
        nodes.patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Drains a node with `kubectl drain`, as who runs it does: it is cordoned, and its pods are evicted, again and again while a budget
    /// forbids it.
    ///
    /// # Errors
    /// With what kubectl says, also when it is not through within `limit_seconds`.
    pub async fn drain(&self, node: &str, limit_seconds: u64) -> Result<()> {
        self.step(&format!("kubectl drain {node}"));
        let limit = format!("--timeout={limit_seconds}s");
        let drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", &limit];
        let mut command = match std::env::var_os(SCRIPT) {
            Some(script) => {
                let mut command = Command::new(script);
                command.arg("kubectl");
                command
            }
            None => Command::new("kubectl"),
        };
        let output = command.args(drain).stdin(std::process::Stdio::null()).kill_on_drop(true).output().await?;
        ensure!(output.status.success(), "kubectl drain {node}: {}", String::from_utf8_lossy(&output.stderr));
        self.step(&format!("{node} is drained"));
        Ok(())
    }

    /// Asks for a pod's eviction, as `kubectl drain` does.
    ///
    /// # Errors
    /// When it is refused for another reason than a budget.
    pub async fn evict(&self, pod: &str) -> Result<Evicted> {
        let (pods, parameters) = (self.api::<KubePod>(), EvictParams::default());
        // The client itself asks again where a budget forbids it.
        match tokio::time::timeout(EVICTION_LIMIT, pods.evict(pod, &parameters)).await {
            Ok(Ok(_)) => Ok(Evicted::Yes),
            Err(_) => Ok(Evicted::NotNow),
            Ok(Err(kube::Error::Api(status))) if status.code == 429 => Ok(Evicted::NotNow),
            Ok(Err(error)) => Err(error.into()),
        }
    }

    /// All nodes run, and take pods: what the next story begins with. Errors are told, for the story may have failed already.
    pub async fn mend_nodes(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in nodes.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let name = node.name_any();
            if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
                && let Err(error) = self.cordon(&name, false).await
            {
                self.step(&format!("{name} stays cordoned: {error:#}"));
            }
        }
    }
}

async fn script(arguments: &[&str]) -> Result<()> {
    let script = std::env::var_os(SCRIPT).with_context(|| format!("{SCRIPT} is not set: use `cargo xtask e2e`"))?;
    let output = Command::new(script).args(arguments).output().await?;
    if !output.status.success() {
        bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
