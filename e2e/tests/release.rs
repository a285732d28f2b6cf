//! The life of an installation: upgrading keeps every object and every broker, uninstalling keeps them too. Run after the
//! stories, because the operator goes.

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::helm::helm;
use forebay_e2e::{OPERATOR_NAMESPACE, Story, root, tell};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod as KubePod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, LogParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

const MANIFESTS: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  replicas: 1
  disks: [{name: data, size: 1Gi}]
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: events}
spec:
  clusterRef: {name: c}
  partitions: 2
";
const CRD: &str = "topics.forebay.dev";

#[tokio::test]
async fn upgrading_and_uninstalling_keep_objects_and_brokers() -> Result<()> {
    tell("release", async |story| {
        rights_suffice(story).await?;
        story.apply(MANIFESTS).await?;
        story.expect_ready::<Topic>("events", 90).await?;
        let kafka = story.kafka("c");
        kafka.produce("events", 0..100, None).await?;
        let before = identities(story).await?;

        let crds: Api<CustomResourceDefinition> = Api::all(story.client.clone());
        let columns = remove_a_column(&crds).await?;
        helm(&["upgrade", "forebay", "charts/forebay", "--reuse-values", "--set", "logLevel=info", "--wait"]).await?;
        let upgraded = crds.get(CRD).await?;
        let now = upgraded.spec.versions[0].additional_printer_columns.as_ref().map_or(0, Vec::len);
        ensure!(now == columns + 1, "helm upgrade upgrades CRDs: {columns} columns before, {now} after");
        ensure!(identities(story).await? == before, "an upgrade of the operator restarts no broker");
        story.step("helm upgrade keeps objects and brokers, and upgrades CRDs");

        story.merge::<Topic>("events", json!({"spec": {"partitions": 4}})).await?;
        story.expect_ready::<Topic>("events", 60).await?;

        helm(&["uninstall", "forebay", "--wait"]).await?;
        ensure!(crds.get_opt(CRD).await?.is_some(), "uninstalling keeps the CRDs");
        ensure!(identities(story).await? == before, "and all objects and brokers");
        ensure!(kafka.consume("events").await?.len() == 100, "which go on serving");
        story.step("helm uninstall keeps CRDs, objects and brokers");

        let (previous, commit) = previous_chart().await?;
        let watch = format!("replicas=2,watchNamespaces={{{}}}", story.namespace);
        let folder = previous.path().join("charts/forebay").display().to_string();
        helm(&["install", "forebay", &folder, "--set", &watch, "--wait"]).await?;
        story.merge::<Topic>("events", json!({"spec": {"partitions": 5}})).await?;
        story.expect_ready::<Topic>("events", 60).await?;
        ensure!(identities(story).await? == before, "a second installation takes over what is there");
        story.step(&format!(
            "an installation of the chart before the last change to it ({commit}) takes over, for this namespace alone"
        ));

        // Another log level, so that the pods are new ones, as with another image.
        let upgrade =
            ["upgrade", "forebay", "charts/forebay", "--reset-then-reuse-values", "--set", "logLevel=debug", "--wait"];
        helm(&upgrade).await?;
        ensure!(identities(story).await? == before, "the upgrade from it keeps every object and claim");
        ensure!(kafka.consume("events").await?.len() == 100, "and every record");
        story.step("it is upgraded to the present chart, and keeps every object and claim");

        story.merge::<Topic>("events", json!({"spec": {"partitions": 6}})).await?;
        story.expect_ready::<Topic>("events", 60).await?;
        kill_the_leader(story).await?;
        story.merge::<Topic>("events", json!({"spec": {"partitions": 7}})).await?;
        story.expect_ready::<Topic>("events", 60).await?;
        rights_suffice(story).await?;
        Ok(())
    })
    .await
}

/// The chart as it was before the last commit that changed it, in a folder of its own, with the commit.
async fn previous_chart() -> Result<(TempDir, String)> {
    let git = async |arguments: &[&str]| -> Result<Vec<u8>> {
        let output = Command::new("git").arg("-C").arg(root()).args(arguments).output().await?;
        ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    };
    let changes = String::from_utf8(git(&["log", "-2", "--format=%h", "--", "charts/forebay"]).await?)?;
    let commit = changes.lines().nth(1).context("the chart was never changed: is this a shallow clone?")?.to_owned();
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("chart.tar");
    std::fs::write(&archive, git(&["archive", &commit, "charts/forebay"]).await?)?;
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder.path()).status().await?;
    ensure!(unpacked.success(), "tar: {unpacked}");
    Ok((folder, commit))
}

/// The API server has refused the operator nothing: its log would say which right is missing.
async fn rights_suffice(story: &Story) -> Result<()> {
    let pods: Api<KubePod> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    // A pod that has just replaced another one has no log yet.
    story
        .eventually("every operator has a log, and none was refused anything", 60, async || {
            for pod in pods.list(&ListParams::default()).await?.items {
                let log = pods.logs(&pod.name_any(), &LogParams::default()).await?;
                let refused = log.lines().find(|line| line.contains("forbidden: User"));
                ensure!(refused.is_none(), "the chart's rights do not suffice: {}", refused.unwrap_or_default());
            }
            Ok(())
        })
        .await
}

/// Kills the operator that holds the Lease: the other one has to take over.
async fn kill_the_leader(story: &Story) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    let lease = leases.get("forebay-operator").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).context("nobody holds the Lease")?;
    // The identity is the pod's name and the time of its start.
    let (pod, _) = holder.rsplit_once('_').with_context(|| format!("the holder {holder} is no pod"))?;
    let pods: Api<KubePod> = Api::namespaced(story.client.clone(), OPERATOR_NAMESPACE);
    pods.delete(pod, &DeleteParams::default().grace_period(0)).await?;
    story
        .eventually("another operator leads after the leader was killed", 60, async || {
            let now = leases.get("forebay-operator").await?.spec.and_then(|spec| spec.holder_identity);
            ensure!(now.as_deref().is_some_and(|now| !now.is_empty() && now != holder), "{now:?} holds the Lease");
            Ok(())
        })
        .await
}

/// Leaves a CRD as an older chart would have: with one column less. Gives how many are left.
async fn remove_a_column(crds: &Api<CustomResourceDefinition>) -> Result<usize> {
    let mut versions = crds.get(CRD).await?.spec.versions;
    let columns = versions.first_mut().and_then(|version| version.additional_printer_columns.as_mut());
    let columns = columns.context("the CRD has no columns")?;
    columns.remove(0);
    let left = columns.len();
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    crds.patch(CRD, &PatchParams::default(), &patch).await?;
    Ok(left)
}

/// Who is there: another uid is another object.
async fn identities(story: &Story) -> Result<Vec<String>> {
    async fn uid<K>(story: &Story, name: &str) -> Result<String>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let object = story.api::<K>().get(name).await.with_context(|| format!("{name} is not there"))?;
        object.uid().with_context(|| format!("{name} has no uid"))
    }
    Ok(vec![
        uid::<Cluster>(story, "c").await?,
        uid::<Topic>(story, "events").await?,
        uid::<KubePod>(story, "c-broker-0").await?,
        uid::<PersistentVolumeClaim>(story, "data-c-broker-0").await?,
        uid::<StatefulSet>(story, "c-broker").await?,
        uid::<Service>(story, "c-bootstrap").await?,
        uid::<ConfigMap>(story, "c-broker-config").await?,
    ])
}
