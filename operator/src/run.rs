//! Runs the operator: metrics first, then the election, then one controller per kind and namespace, until a signal comes
//! or the lease is lost. Stop order: controllers (each ends what it is doing), lease, metrics.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context as _;
use forebay_crds::{CLUSTER_LABEL, Cluster, ConditionType, ConsumerProfile, Topic};
use futures::channel::mpsc::Receiver;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use parking_lot::{Mutex, RwLock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::args::{Args, Program, Work};
use crate::backoff::Backoff;
use crate::context::Context;
use crate::http::{self, Served};
use crate::kafka::KafkaClusters;
use crate::kube::events::Events;
use crate::lease::Election;
use crate::metrics::{Kind, Metrics};
use crate::reconcile::ReconcileError;
use crate::stores::{ClusterKey, Guarded, Stores, cluster_key};
use crate::{check, cluster, consumer_profile, node_settings, reconcile, topic};

/// Reconciles at a time, for each kind: what is beyond waits its turn.
const CONCURRENCY: usize = 64;
/// Topics at a time: what they ask of brokers at the same time goes in one request.
const TOPICS_AT_ONCE: usize = 200;
/// Topics that wait to be woken by the sweep; it waits when they are more.
const WAKE_QUEUE: usize = 1024;

/// Runs what is asked for, until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting, and the loss of the operator's lease.
pub async fn program(program: Program) -> anyhow::Result<()> {
    match program.work {
        None => run(program.operator).await,
        Some(Work::NodeSettings(args)) => node_settings::run(args, stop_on_signal()).await,
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting, and the loss of the lease: the process must end then.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(address) = &args.check {
        return check::run(&args, address).await;
    }
    let shutdown = stop_on_signal();
    let client = Client::try_default().await.context("find the Kubernetes API")?;
    let metrics = Metrics::new().context("register metrics")?;
    let served = Served { metrics: metrics.clone(), stores: Arc::new(RwLock::new(Stores::default())) };
    let stop_http = CancellationToken::new();
    let http = tokio::spawn(http::serve(args.http_address, served.clone(), stop_http.clone()));
    let led = lead(&args, client, &metrics, &served, &shutdown).await;
    stop_http.cancel();
    http.await.context("metrics server")??;
    led
}

/// Is cancelled when the process is asked to end.
fn stop_on_signal() -> CancellationToken {
    let shutdown = CancellationToken::new();
    tokio::spawn(cancel_on_signal(shutdown.clone()).map(|result| {
        if let Err(error) = result {
            tracing::error!(%error, "signals can't be watched");
        }
    }));
    shutdown
}

async fn cancel_on_signal(shutdown: CancellationToken) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    shutdown.cancel();
    Ok(())
}

/// Runs the controllers, as the leader if there is an election.
async fn lead(
    args: &Args,
    client: Client,
    metrics: &Metrics,
    served: &Served,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let Some(lease_name) = &args.lease_name else {
        metrics.set_leader(true);
        controllers(args, client, metrics, served, shutdown).await;
        return Ok(());
    };
    let election = Election::new(client.clone(), &args.pod_namespace, lease_name, &args.pod_name);
    let Some(lease) = election.acquire(shutdown).await else { return Ok(()) };
    metrics.set_leader(true);
    let stop = shutdown.child_token();
    let ended = CancellationToken::new();
    let work = async {
        controllers(args, client, metrics, served, &stop).await;
        ended.cancel();
    };
    // The lease is held until the work has ended, and the work ends when the lease is lost.
    let hold = async {
        let held = election.hold(lease, &ended).await;
        stop.cancel();
        held
    };
    let ((), held) = tokio::join!(work, hold);
    metrics.set_leader(false);
    election.release(held?).await;
    Ok(())
}

/// One controller per kind and namespace, until `shutdown`.
async fn controllers(args: &Args, client: Client, metrics: &Metrics, served: &Served, shutdown: &CancellationToken) {
    let namespaces: Vec<Option<&str>> = match args.watch_namespaces.as_slice() {
        [] => vec![None],
        some => some.iter().map(|namespace| Some(namespace.as_str())).collect(),
    };
    let (mut built, mut wake) = (Vec::new(), Vec::new());
    let mut stores = Stores::default();
    for namespace in &namespaces {
        let scope = Scope { client: client.clone(), namespace: namespace.map(str::to_owned) };
        let (sender, woken) = futures::channel::mpsc::channel(WAKE_QUEUE);
        wake.push((scope.namespace.clone(), sender));
        let controllers = (scope.clusters(), scope.topics(woken), scope.profiles());
        stores.clusters.push(controllers.0.store());
        stores.topics.push(controllers.1.store());
        stores.profiles.push(controllers.2.store());
        built.push(controllers);
    }
    *served.stores.write() = stores.clone();
    let context = Arc::new(Context {
        events: Events::new(client.clone(), args.pod_name.clone()),
        client,
        args: args.clone(),
        metrics: metrics.clone(),
        kafka: KafkaClusters::default(),
        backoff: Backoff::default(),
        stores,
        owners: topic::Owners::default(),
    });
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?namespaces, "watching");
    let sweep = topic::sweep::run(Arc::clone(&context), wake, shutdown.clone());
    let mut running: Vec<BoxFuture<'static, ()>> = vec![sweep.boxed()];
    for (clusters, topics, profiles) in built {
        let stop = || shutdown.clone().cancelled_owned();
        let of = Kind::Cluster;
        let stream = clusters.graceful_shutdown_on(stop()).run(
            in_turn(of, turns_of(of), shutdown.clone(), cluster::reconcile),
            move |object, error, context| reconcile::error_policy(of, &object, error, &context),
            Arc::clone(&context),
        );
        running.push(stream.for_each(logged).boxed());
        let of = Kind::Topic;
        let stream = topics.graceful_shutdown_on(stop()).run(
            in_turn(of, turns_of(of), shutdown.clone(), topic::reconcile),
            move |object, error, context| reconcile::error_policy(of, &object, error, &context),
            Arc::clone(&context),
        );
        running.push(stream.for_each(logged).boxed());
        let of = Kind::ConsumerProfile;
        let stream = profiles.graceful_shutdown_on(stop()).run(
            in_turn(of, turns_of(of), shutdown.clone(), consumer_profile::reconcile),
            move |object, error, context| reconcile::error_policy(of, &object, error, &context),
            Arc::clone(&context),
        );
        running.push(stream.for_each(logged).boxed());
    }
    futures::future::join_all(running).await;
}

/// Reconciles of one kind that one controller may run at the same time.
fn turns_of(kind: Kind) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(if kind == Kind::Topic { TOPICS_AT_ONCE } else { CONCURRENCY }))
}

/// Lets a reconcile begin when it is its turn. Here and not in the controller, so that what waits can be counted.
fn in_turn<K, F>(
    kind: Kind,
    turns: Arc<Semaphore>,
    shutdown: CancellationToken,
    reconcile: fn(Arc<Guarded<K>>, Arc<Context>) -> F,
) -> impl FnMut(Arc<Guarded<K>>, Arc<Context>) -> BoxFuture<'static, Result<Action, ReconcileError>>
where
    K: Send + Sync + 'static,
    F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
{
    move |object, context| {
        let (turns, shutdown) = (Arc::clone(&turns), shutdown.clone());
        async move {
            let waits = context.metrics.queued(kind);
            // It is never closed.
            let _turn = turns.acquire_owned().await;
            drop(waits);
            // The lease may be another's by now: what has not begun does not begin.
            if shutdown.is_cancelled() {
                return Ok(Action::await_change());
            }
            let _runs = context.metrics.running(kind);
            // On the heap only now: thousands that wait are small.
            Box::pin(reconcile(object, context)).await
        }
        .boxed()
    }
}

/// What reconciles say is said by `reconcile`; a watch that fails says it here.
async fn logged<K, E: std::fmt::Display>(result: Result<K, E>) {
    if let Err(error) = result {
        tracing::debug!(%error, "controller");
    }
}

/// Where controllers watch.
struct Scope {
    client: Client,
    namespace: Option<String>,
}

impl Scope {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn clusters(&self) -> Controller<Guarded<Cluster>> {
        let ours = || watcher::Config::default().labels(CLUSTER_LABEL);
        let owner = |object: &kube::core::ObjectMeta| {
            let name = object.labels.as_ref().and_then(|labels| labels.get(CLUSTER_LABEL))?;
            Some(ObjectRef::new(name).within(object.namespace.as_deref().unwrap_or_default()))
        };
        Controller::new(self.api::<Guarded<Cluster>>(), watcher::Config::default())
            .watches(self.api::<StatefulSet>(), ours(), move |set| owner(set.meta()))
            .watches(self.api::<Service>(), ours(), move |service| owner(service.meta()))
            .watches(self.api::<ConfigMap>(), ours(), move |config_map| owner(config_map.meta()))
            .watches(self.api::<PodDisruptionBudget>(), ours(), move |budget| owner(budget.meta()))
            .watches(self.api::<Pod>(), ours(), move |pod| owner(pod.meta()))
    }

    /// Topics as they are watched, and the store of them. Without `managedFields`: they are more than half of a Topic, nothing here
    /// reads them, and of Topics there are thousands.
    fn topics_without_managers(
        &self,
    ) -> (Store<Guarded<Topic>>, impl Stream<Item = Result<Guarded<Topic>, watcher::Error>> + Send + use<>) {
        let (store, writer) = reflector::store();
        let watched = watcher(self.api::<Guarded<Topic>>(), watcher::Config::default())
            .modify(|topic: &mut Guarded<Topic>| topic.managed_fields_mut().clear());
        (store, watched.reflect(writer).applied_objects())
    }

    fn topics(&self, woken: Receiver<ObjectRef<Guarded<Topic>>>) -> Controller<Guarded<Topic>> {
        let (store, topics) = self.topics_without_managers();
        let controller = Controller::for_stream(topics, store.clone()).reconcile_on(woken);
        let told = Mutex::new(HashMap::new());
        let of_cluster = move |cluster: Guarded<Cluster>| {
            let key = key_of(&cluster);
            if told.lock().insert(key.clone(), what_topics_see(&cluster)) == Some(what_topics_see(&cluster)) {
                return Vec::new();
            }
            naming(&store, |topic: &Topic| {
                cluster_key(&topic.spec.cluster_ref, &topic.namespace().unwrap_or_default()) == key
            })
        };
        controller.watches(self.api::<Guarded<Cluster>>(), watcher::Config::default(), of_cluster)
    }

    fn profiles(&self) -> Controller<Guarded<ConsumerProfile>> {
        let controller = Controller::new(self.api::<Guarded<ConsumerProfile>>(), watcher::Config::default())
            .owns(self.api::<ConfigMap>(), watcher::Config::default().labels(CLUSTER_LABEL));
        let (by_cluster, by_topic) = (controller.store(), controller.store());
        let of_cluster = move |cluster: Guarded<Cluster>| {
            let key = key_of(&cluster);
            naming(&by_cluster, |profile: &ConsumerProfile| {
                cluster_key(&profile.spec.cluster_ref, &profile.namespace().unwrap_or_default()) == key
            })
        };
        let of_topic = move |topic: Guarded<Topic>| {
            let name = topic.0.as_ref().map(crate::stores::topic_name).unwrap_or_default();
            naming(&by_topic, |profile: &ConsumerProfile| profile.spec.topics.contains(&name))
        };
        controller.watches(self.api::<Guarded<Cluster>>(), watcher::Config::default(), of_cluster).watches(
            self.api::<Guarded<Topic>>(),
            watcher::Config::default(),
            of_topic,
        )
    }
}

/// What of a Cluster makes a difference to Topics: its status changes with every step of a roll, and Topics may be many.
fn what_topics_see(cluster: &Guarded<Cluster>) -> (Option<String>, bool, Vec<String>, Option<String>) {
    let is_deleting = cluster.meta().deletion_timestamp.is_some();
    let Ok(decoded) = &cluster.0 else { return (cluster.uid(), is_deleting, Vec::new(), None) };
    let conditions = decoded.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.into_iter().find(|condition| condition.type_ == ConditionType::Ready.as_str());
    let ready = ready.map(|condition| condition.status.clone());
    (cluster.uid(), is_deleting, decoded.spec.allowed_namespaces.clone(), ready)
}

fn key_of(cluster: &Guarded<Cluster>) -> ClusterKey {
    ClusterKey { namespace: cluster.namespace().unwrap_or_default(), name: cluster.name_any() }
}

/// The objects in a store that a predicate picks.
fn naming<K>(store: &Store<Guarded<K>>, picks: impl Fn(&K) -> bool) -> Vec<ObjectRef<Guarded<K>>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let objects = store.state();
    let picked = objects.iter().filter(|guarded| guarded.0.as_ref().is_ok_and(&picks));
    picked.map(|guarded| ObjectRef::from_obj(guarded.as_ref())).collect()
}
