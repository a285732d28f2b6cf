//! A story: one namespace, what is applied in it, and waiting for what should follow.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod as KubePod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::OPERATOR_NAMESPACE;

/// Who applies the manifests of a story.
const FIELD_MANAGER: &str = "forebay-e2e";
/// Between two looks at what is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Brokers that stop all at once have their whole grace period of 62 s.
const NAMESPACE_GOES_WITHIN_SECONDS: u64 = 90;
/// After so long a wait says that it still waits, and for what.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// One story while it is told.
pub struct Story {
    /// The API server.
    pub client: Client,
    /// The story's own namespace.
    pub namespace: String,
    name: String,
    begin: Instant,
}

/// Tells a story in a namespace of its own, and proves that the namespace goes at the end, with nothing holding it.
///
/// # Errors
/// When the story fails, after the state of its namespace has been printed, or when the namespace stays.
pub async fn tell(name: &str, body: impl AsyncFnOnce(&Story) -> Result<()>) -> Result<()> {
    let story = Story::begin(name).await?;
    let told = body(&story).await;
    if let Err(error) = &told {
        story.step(&format!("FAILED: {error:#}"));
        story.diagnose().await;
    }
    let gone = story.end().await;
    told.and(gone)
}

impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Story").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Story {
    async fn begin(name: &str) -> Result<Self> {
        let client = Client::try_default().await.context("KUBECONFIG must lead to a cluster: use `cargo xtask e2e`")?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let labels = [("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned())];
        let metadata = ObjectMeta {
            generate_name: Some(format!("{name}-")),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        let made = namespaces
            .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
            .await
            .context("cannot create a namespace")?;
        Ok(Self { client, namespace: made.name_any(), name: name.to_owned(), begin: Instant::now() })
    }

    /// Says what has been reached, with the time since the beginning.
    pub fn step(&self, text: &str) {
        println!("[{:>4} s] {}: {text}", self.begin.elapsed().as_secs(), self.name);
    }

    /// Objects of a kind in the story's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies manifests as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// With the API server's words when it refuses one.
    pub async fn apply(&self, manifests: &str) -> Result<()> {
        for document in serde_yaml_ng::Deserializer::from_str(manifests) {
            let value: Value = serde::Deserialize::deserialize(document).context("the manifest is not YAML")?;
            if value.is_null() {
                continue;
            }
            let mut object: DynamicObject = serde_json::from_value(value).context("not a Kubernetes object")?;
            let types = object.types.clone().context("apiVersion and kind are missing")?;
            let kind = GroupVersionKind::try_from(&types).context("apiVersion or kind cannot be read")?;
            let (resource, _) = kube::discovery::pinned_kind(&self.client, &kind).await?;
            object.metadata.namespace = Some(self.namespace.clone());
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            let name = object.name_any();
            api.patch(&name, &parameters, &Patch::Apply(&object))
                .await
                .with_context(|| format!("{} {name} is refused", types.kind))?;
        }
        Ok(())
    }

    /// Changes a few fields of an object by a merge patch.
    ///
    /// # Errors
    /// With the API server's words when it refuses.
    pub async fn merge<K>(&self, name: &str, patch: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = self.api();
        Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Waits until `judge` is content with the object.
    ///
    /// # Errors
    /// After `limit_seconds`, with what `judge` said last.
    pub async fn expect<K, T>(
        &self,
        name: &str,
        what: &str,
        limit_seconds: u64,
        judge: impl Fn(&K) -> Result<T>,
    ) -> Result<T>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = self.api();
        self.eventually(what, limit_seconds, async || judge(&api.get(name).await?)).await
    }

    /// Waits until an object is gone.
    ///
    /// # Errors
    /// After `limit_seconds`, with what still holds it.
    pub async fn expect_gone<K>(&self, name: &str, limit_seconds: u64) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = self.api();
        self.eventually(&format!("{name} is gone"), limit_seconds, async || match api.get_opt(name).await? {
            None => Ok(()),
            Some(object) => bail!("it is there, with finalizers {:?}", object.finalizers()),
        })
        .await
    }

    /// Looks again and again until `probe` succeeds.
    ///
    /// # Errors
    /// After `limit_seconds`, with the last error of `probe`.
    pub async fn eventually<T>(
        &self,
        what: &str,
        limit_seconds: u64,
        mut probe: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let begin = Instant::now();
        let mut spoke = begin;
        loop {
            let error = match probe().await {
                Ok(value) => {
                    self.step(what);
                    return Ok(value);
                }
                Err(error) => error,
            };
            if kubeconfig_is_gone() {
                return Err(error.context("the cluster has been taken down"));
            }
            if begin.elapsed() > Duration::from_secs(limit_seconds) {
                return Err(error.context(format!("not within {limit_seconds} s: {what}")));
            }
            if spoke.elapsed() > PROGRESS_INTERVAL {
                spoke = Instant::now();
                self.step(&format!("waiting: {what}: {error:#}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A ConfigMap's data.
    ///
    /// # Errors
    /// When there is no such ConfigMap.
    pub async fn config_map(&self, name: &str) -> Result<std::collections::BTreeMap<String, String>> {
        let api: Api<ConfigMap> = self.api();
        Ok(api.get(name).await?.data.unwrap_or_default())
    }

    /// The namespace is deleted and must go: a finalizer that nobody releases would hold it for ever.
    async fn end(self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        let gone = self.eventually("the namespace is gone", NAMESPACE_GOES_WITHIN_SECONDS, async || {
            let Some(left) = namespaces.get_opt(&self.namespace).await? else { return Ok(()) };
            let conditions = left.status.and_then(|status| status.conditions).unwrap_or_default();
            let held: Vec<String> = conditions
                .into_iter()
                .filter(|condition| condition.status == "True")
                .filter_map(|condition| condition.message)
                .collect();
            Err(anyhow!("it is there: {}", held.join("; ")))
        });
        gone.await
    }

    /// What someone who looks for the reason of a failure asks first.
    async fn diagnose(&self) {
        let pods: Api<KubePod> = self.api();
        for pod in pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let name = pod.name_any();
            let status = serde_json::to_string(&pod.status).unwrap_or_default();
            println!("--- pod {name}: {status}");
            print_tail(&pods, &name, 60).await;
        }
        let events: Api<Event> = self.api();
        for event in events.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let about = event.regarding.and_then(|object| object.name).unwrap_or_default();
            println!("--- event {about}: {} {}", event.reason.unwrap_or_default(), event.note.unwrap_or_default());
        }
        self.print_statuses::<forebay_crds::Cluster>().await;
        self.print_statuses::<forebay_crds::Topic>().await;
        self.print_statuses::<forebay_crds::ConsumerProfile>().await;
        let operators: Api<KubePod> = Api::namespaced(self.client.clone(), OPERATOR_NAMESPACE);
        for pod in operators.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            println!("--- operator {}", pod.name_any());
            print_tail(&operators, &pod.name_any(), 100).await;
        }
    }

    async fn print_statuses<K>(&self)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
        K: serde::Serialize,
    {
        let api: Api<K> = self.api();
        for object in api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let value = serde_json::to_value(&object).unwrap_or_default();
            println!("--- {} {}: {}", K::kind(&()), object.name_any(), value["status"]);
        }
    }
}

/// Who took the cluster down took its kubeconfig with it: there is nothing to wait for, nor anyone at its address.
fn kubeconfig_is_gone() -> bool {
    std::env::var_os("KUBECONFIG").is_some_and(|path| !std::path::Path::new(&path).exists())
}

async fn print_tail(pods: &Api<KubePod>, name: &str, lines: i64) {
    let parameters = LogParams { tail_lines: Some(lines), ..LogParams::default() };
    match pods.logs(name, &parameters).await {
        Ok(log) => log.lines().for_each(|line| println!("    {line}")),
        Err(error) => println!("    no log: {error}"),
    }
}
