//! What the stories of this folder share: the three brokers of `examples/replicated.yaml` under load, and how they are looked at.

use std::cell::Cell;
use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::load::{Load, TOPIC};
use forebay_e2e::{OPERATOR_NAMESPACE, Story};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod as KubePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, LogParams};
use serde::Deserialize;
use serde_json::Value;

const EXAMPLE: &str = include_str!("../../../examples/replicated.yaml");
/// The example's Cluster.
pub(crate) const CLUSTER: &str = "replicated";
/// The topic that load is put on.
const LOADED: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: own}
spec:
  clusterRef: {name: replicated}
  partitions: 4
  replicationFactor: 3
  config: {min.insync.replicas: 2}
";

/// A broker's pod.
pub(crate) fn pod(id: usize) -> String {
    format!("{CLUSTER}-broker-{id}")
}

/// A broker's claim.
pub(crate) fn claim(id: usize) -> String {
    format!("data-{CLUSTER}-broker-{id}")
}

/// What else is done to brokers that are disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// The operator is left alone.
    Lives,
    /// It is killed in the middle of each disturbance.
    IsKilled,
}

/// Three brokers under load.
pub(crate) struct Brokers<'a> {
    pub(crate) story: &'a Story,
    load: Load<'a>,
    operator: Operator,
}

impl<'a> Brokers<'a> {
    /// Applies the example, with `more` in the Cluster's spec, waits, and puts load on, on a node that has none of these brokers.
    pub(crate) async fn begin(story: &'a Story, more: Value, away_from: &[usize], operator: Operator) -> Result<Self> {
        story.apply(&manifests(&more)?).await?;
        story.expect_ready::<Cluster>(CLUSTER, 150).await?;
        story.expect_ready::<Topic>(TOPIC, 60).await?;
        let mut nodes = Vec::new();
        for id in away_from {
            nodes.push(story.node_of(&pod(*id)).await?);
        }
        let load = story.load(CLUSTER, &nodes).await?;
        let mut brokers = Self { story, load, operator: Operator::Lives };
        brokers.healed("at rest").await?;
        Ok(Self { operator, ..brokers })
    }

    /// In the middle of a disturbance.
    pub(crate) async fn middle(&self) -> Result<()> {
        match self.operator {
            Operator::Lives => Ok(()),
            Operator::IsKilled => kill_operator(self.story).await,
        }
    }

    /// Every broker serves, every replica is in sync, and one broker may go: the disturbance is over. Its account is told.
    pub(crate) async fn healed(&mut self, what: &str) -> Result<()> {
        self.story.expect_ready::<Cluster>(CLUSTER, 240).await?;
        self.story.expect_condition::<Cluster>(CLUSTER, "Progressing", "False", 240).await?;
        let kafka = self.story.kafka(CLUSTER);
        self.story
            .eventually("every replica is in sync", 120, async || {
                let seen = kafka.partitions(TOPIC).await?;
                ensure!(seen.len() == 4 && seen.iter().all(|one| one.replicas == 3 && one.in_sync == 3), "{seen:?}");
                Ok(())
            })
            .await?;
        one_may_go(self.story).await?;
        let what = match self.operator {
            Operator::Lives => what.to_owned(),
            Operator::IsKilled => format!("{what}, operator killed"),
        };
        self.load.stage(&what).await
    }

    /// Ends the load: nothing is lost, and no operator has met what it calls an error.
    pub(crate) async fn end(self) -> Result<()> {
        self.load.end().await?;
        operator_is_content(self.story).await
    }
}

/// The example's manifests, with more in the Cluster's spec.
fn manifests(more: &Value) -> Result<String> {
    let mut text = LOADED.to_owned();
    for document in serde_yaml_ng::Deserializer::from_str(EXAMPLE) {
        let mut object = Value::deserialize(document).context("the example is not YAML")?;
        if object["kind"] == "Cluster" {
            for (field, value) in more.as_object().context("more is no object")? {
                object["spec"][field] = value.clone();
            }
        }
        text += &format!("---\n{}", serde_yaml_ng::to_string(&object)?);
    }
    Ok(text)
}

/// The budget lets one broker go.
pub(crate) async fn one_may_go(story: &Story) -> Result<()> {
    story
        .expect(&format!("{CLUSTER}-broker"), "the budget lets one broker go", 60, |budget: &PodDisruptionBudget| {
            let allowed = budget.status.as_ref().map(|status| status.disruptions_allowed);
            ensure!(allowed == Some(1), "it allows {allowed:?}");
            Ok(())
        })
        .await
}

/// The brokers' pods.
async fn pods(story: &Story) -> Result<Vec<KubePod>> {
    let brokers = ListParams::default().labels("app.kubernetes.io/component=broker");
    Ok(story.api::<KubePod>().list(&brokers).await?.items)
}

/// Who the brokers' pods are: another uid is another pod.
pub(crate) async fn uids(story: &Story) -> Result<BTreeSet<String>> {
    Ok(pods(story).await?.iter().filter_map(ResourceExt::uid).collect())
}

fn serves(pod: &KubePod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|one| one.type_ == "Ready" && one.status == "True");
    pod.metadata.deletion_timestamp.is_none() && ready.next().is_some()
}

/// So many of these pods have been replaced, and never was more than one broker down on the way.
pub(crate) async fn replaced(story: &Story, old: &BTreeSet<String>, count: usize) -> Result<()> {
    let fewest = Cell::new(usize::MAX);
    story
        .eventually(&format!("{count} brokers have been replaced"), 300, async || {
            let now = pods(story).await?;
            fewest.set(fewest.get().min(now.iter().filter(|pod| serves(pod)).count()));
            let left = now.iter().filter(|pod| pod.uid().is_some_and(|uid| old.contains(&uid))).count();
            ensure!(old.len() - left >= count, "{left} old ones are left");
            Ok(())
        })
        .await?;
    ensure!(fewest.get() + 1 >= old.len(), "only {} brokers served at some moment", fewest.get());
    Ok(())
}

/// While `body` goes on, never fewer than two brokers serve.
pub(crate) async fn two_serve_while(story: &Story, body: impl Future<Output = Result<()>>) -> Result<()> {
    let watch = async {
        loop {
            let up = pods(story).await?.iter().filter(|pod| serves(pod)).count();
            ensure!(up >= 2, "only {up} brokers serve");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        done = body => done,
        failed = watch => failed,
    }
}

/// A broker's pod is another one than it was, and serves.
pub(crate) async fn another_serves(story: &Story, pod: &str, old: Option<&str>) -> Result<()> {
    story
        .expect(pod, &format!("{pod} is another pod, and serves"), 180, |now: &KubePod| {
            ensure!(now.uid().as_deref() != old, "it is the old one");
            ensure!(serves(now), "it does not serve");
            Ok(())
        })
        .await
}

/// Who leads among the operators.
async fn leader(story: &Story) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    let holder = leases.get("forebay-operator").await?.spec.and_then(|spec| spec.holder_identity);
    holder.filter(|holder| !holder.is_empty()).context("nobody holds the Lease")
}

/// Kills the operators: their processes end without giving the Lease back, and their pods go. Waits until another one leads.
pub(crate) async fn kill_operator(story: &Story) -> Result<()> {
    let operators: Api<KubePod> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    let all = ListParams::default().labels("app.kubernetes.io/component=operator");
    let (old, led) = (operators.list(&all).await?.items, leader(story).await?);
    ensure!(!old.is_empty(), "no operator runs");
    for pod in &old {
        story.step(&format!("{} is killed", pod.name_any()));
        if serves(pod) {
            story.kill_container(pod).await?;
        }
        operators.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    story
        .eventually("another operator leads", 90, async || {
            let leads = leader(story).await?;
            ensure!(leads != led, "{leads} still holds the Lease");
            Ok(())
        })
        .await
}

/// The operators that run have met nothing that they call an error.
pub(crate) async fn operator_is_content(story: &Story) -> Result<()> {
    let operators: Api<KubePod> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    for pod in operators.list(&ListParams::default()).await?.items.iter().filter(|pod| serves(pod)) {
        let log = operators.logs(&pod.name_any(), &LogParams::default()).await?;
        let error = log.lines().find(|line| line.contains(" ERROR "));
        ensure!(error.is_none(), "{}: {}", pod.name_any(), error.unwrap_or_default());
    }
    Ok(())
}
