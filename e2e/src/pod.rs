//! A pod that runs one program to its end, as an application in the cluster would: clients reach brokers by their names.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::api::{DeleteParams, LogParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::{KCAT, Story, image};

/// Runs of a program that changes nothing.
const ATTEMPTS: usize = 3;

/// One run of a program.
#[derive(Debug, Clone)]
pub struct Pod {
    image: String,
    arguments: Vec<String>,
    config_maps: Vec<(String, String)>,
}

impl Pod {
    /// `forebay` with these arguments.
    pub fn forebay(arguments: &[&str]) -> Self {
        Self::new(image("forebay-cli"), arguments)
    }

    /// Debian's kcat with these arguments.
    pub fn kcat(arguments: &[&str]) -> Self {
        // Its log would be mixed with what it prints: a pod has one log.
        Self::new(KCAT.to_owned(), &[&["-X", "log_level=0"], arguments].concat())
    }

    fn new(image: String, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { image, arguments, config_maps: Vec::new() }
    }

    /// Adds a ConfigMap's keys as files of a folder.
    #[must_use]
    pub fn with_config_map(mut self, name: &str, folder: &str) -> Self {
        self.config_maps.push((name.to_owned(), folder.to_owned()));
        self
    }

    fn manifest(&self) -> Value {
        let volumes: Vec<Value> =
            self.config_maps.iter().map(|(name, _)| json!({"name": name, "configMap": {"name": name}})).collect();
        let mounts: Vec<Value> =
            self.config_maps.iter().map(|(name, folder)| json!({"name": name, "mountPath": folder})).collect();
        json!({
            "metadata": {"generateName": "client-"},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{
                    "name": "client",
                    "image": self.image,
                    "imagePullPolicy": "IfNotPresent",
                    "args": self.arguments,
                    "volumeMounts": mounts,
                    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                }],
                "volumes": volumes,
            },
        })
    }

    /// Runs a program that changes nothing, again where it fails: kcat gives up at the first refused connection, and a
    /// Service may send clients to a pod that has just gone, or not yet to one that has just come.
    ///
    /// # Errors
    /// When the last of three runs fails.
    pub async fn run_again(self, story: &Story, limit_seconds: u64) -> Result<String> {
        for _ in 1..ATTEMPTS {
            match self.clone().run(story, limit_seconds).await {
                Ok(printed) => return Ok(printed),
                Err(error) => story.step(&format!("again: {error:#}")),
            }
        }
        self.run(story, limit_seconds).await
    }

    /// Starts it and lets it run: it goes with the story's namespace, or when it is stopped. Gives the pod's name.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn start(&self, story: &Story) -> Result<String> {
        let pods: Api<KubePod> = story.api();
        Ok(pods.create(&PostParams::default(), &serde_json::from_value(self.manifest())?).await?.name_any())
    }

    /// Runs it to its end and gives what it printed.
    ///
    /// # Errors
    /// When it ends with another status than 0 or not within `limit_seconds`, with what it printed.
    pub async fn run(self, story: &Story, limit_seconds: u64) -> Result<String> {
        let called = format!("{} {}", self.image, self.arguments.join(" "));
        let (pods, name): (Api<KubePod>, _) = (story.api(), self.start(story).await?);
        let ended = story.eventually(&called, limit_seconds, async || {
            let phase = pods.get(&name).await?.status.and_then(|status| status.phase).unwrap_or_default();
            if phase == "Succeeded" || phase == "Failed" { Ok(phase) } else { bail!("its pod is {phase}") }
        });
        let ended = ended.await;
        let log = pods.logs(&name, &LogParams::default()).await.unwrap_or_default();
        if ended.as_deref().ok() == Some("Succeeded") {
            pods.delete(&name, &DeleteParams::default()).await?;
            return Ok(log);
        }
        ended.with_context(|| format!("{called} printed:\n{log}"))?;
        bail!("{called} failed and printed:\n{log}")
    }
}
