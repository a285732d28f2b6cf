//! One broker from start to stop, for the program and for tests: `run` returns when `shutdown` was cancelled and all is closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use forebay_broker_config::status::BrokerState;
use forebay_broker_config::{BrokerConfig, Listener};
use forebay_broker_machines::metadata::Endpoint;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::broker::{Broker, Reached};
use crate::controller;
use crate::follow;
use crate::io::maintenance;
use crate::metrics::{cluster, http, load};
use crate::net::listener::{self, BoundListener};
use crate::quorum::{self, Address};

/// What a connection that does not take its answers may hold up the stop.
const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(5);

const LAST_SCRAPE_WAIT: Duration = Duration::from_secs(1);

/// Where a started broker is reached.
#[derive(Debug, Clone, Copy)]
pub struct Started {
    /// The first listener.
    pub kafka_address: SocketAddr,
    /// `/metrics`, `/livez`, `/readyz`, `/status`.
    pub http_address: SocketAddr,
}

/// Runs a broker until `shutdown` is cancelled; `started` hears where it is reached once clients are served.
///
/// # Errors
/// The broker could not start: an address or a directory is taken, or the metadata can't be read.
pub async fn run(
    config: BrokerConfig,
    shutdown: CancellationToken,
    started: impl FnOnce(Started),
) -> anyhow::Result<()> {
    let config = Arc::new(config);
    // Addresses are taken first, so that one that is in use fails before anything is touched; no client is let in yet.
    let listeners = listener::bind_all(&config).await?;
    let controller_listener = listener::bind_controller(&config).await?;
    let http_listener = TcpListener::bind(&config.http_listener)
        .await
        .with_context(|| format!("cannot listen on forebay.http.listener={}", config.http_listener))?;
    let http_address = http_listener.local_addr()?;
    let reached = reached(&config, &listeners, controller_listener.as_ref());
    let broker = open(&config, reached, CancellationToken::new()).await?;
    let stop_in_order = tokio::spawn(controller::when_asked(Arc::clone(&broker), shutdown));
    let last_stop = CancellationToken::new();
    let http = tokio::spawn(http::serve(Arc::clone(&broker), http_listener, last_stop.clone()));
    if let Some(bound) = controller_listener {
        let (listener, _name) = bound.listen(broker.limits.backlog)?;
        let quorum = Arc::clone(broker.metadata.quorum());
        tokio::spawn(quorum::serve(quorum, Arc::clone(&broker), listener));
        tokio::spawn(stop_without_quorum(Arc::clone(&broker)));
    }
    let served = serve(&broker, listeners, http_address, started).await;
    broker.shutdown.cancel();
    let closed = close(&broker).await;
    stop_in_order.await.context("stopping in order ended by a panic")?;
    last_stop.cancel();
    served.and(closed)?;
    anyhow::ensure!(!broker.alarm.has_rung(), "a thread panicked: see the log");
    let left_out = broker.config.quorum.is_some() && broker.metadata.quorum().failed.is_cancelled();
    anyhow::ensure!(!left_out, "this broker could take part in the metadata quorum no more: see the log");
    // A scraper that keeps its connection open is not waited for.
    match tokio::time::timeout(LAST_SCRAPE_WAIT, http).await {
        Ok(ended) => ended.context("the HTTP listener ended by a panic"),
        Err(_elapsed) => Ok(()),
    }
}

/// A broker that hears of no change any more must not go on by what it knows: others lead what it leads. One that is alone goes on with
/// what needs no change.
async fn stop_without_quorum(broker: Arc<Broker>) {
    tokio::select! {
        () = broker.metadata.quorum().failed.cancelled() => broker.shutdown.cancel(),
        () = broker.shutdown.cancelled() => {}
    }
}

/// From the registration to the last client's last answer.
async fn serve(
    broker: &Arc<Broker>,
    listeners: Vec<BoundListener>,
    http_address: SocketAddr,
    started: impl FnOnce(Started),
) -> anyhow::Result<()> {
    tokio::select! {
        registered = broker.register() => registered?,
        () = broker.metadata.quorum().failed.cancelled() => {
            anyhow::bail!("the metadata log of this broker can't be used: {}", broker.metadata.quorum().failure());
        }
        () = broker.shutdown.cancelled() => return Ok(()),
    }
    on_blocking_thread(broker, |broker| broker.recover()).await??;
    broker.watch_disks()?;
    broker.start_replication();
    on_blocking_thread(broker, |broker| broker.follow()).await?;
    let follow_stop = CancellationToken::new();
    let follow = tokio::spawn(follow::run(Arc::clone(broker), follow_stop.clone()));
    let mut members = JoinSet::new();
    members.spawn(controller::beat(Arc::clone(broker), follow_stop.clone()));
    members.spawn(controller::lead(Arc::clone(broker), follow_stop.clone()));
    members.spawn(cluster::count_changes(Arc::clone(broker), follow_stop.clone()));
    let kafka_address = listeners.first().context("listeners is empty: name at least one")?.address;
    let mut tasks = JoinSet::new();
    let listening = listeners.into_iter().map(|bound| bound.listen(broker.limits.backlog));
    let listening = listening.collect::<Result<Vec<_>, _>>()?;
    tasks.spawn(maintenance::run(Arc::clone(broker)));
    tasks.spawn(maintenance::compact(Arc::clone(broker)));
    tasks.spawn(load::run(Arc::clone(broker)));
    broker.be_relied_on().await?;
    // Who connects before is let in now: an answer from before would leave this broker out, and librdkafka asks again only after minutes.
    for (listener, name) in listening {
        tasks.spawn(listener::serve(Arc::clone(broker), listener, name));
    }
    broker.lifecycle.enter(BrokerState::Running);
    tracing::info!(%kafka_address, %http_address, "serving");
    started(Started { kafka_address, http_address });

    broker.shutdown.cancelled().await;
    // Joins that wait for other members would hold up the connections' last answers.
    broker.groups.stop().await;
    broker.replication.stop().await;
    broker.moves.stop().await;
    let last_answers = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS_WAIT, last_answers).await.is_err() {
        tracing::warn!("stopping although some clients have not taken their last answers");
        tasks.abort_all();
    }
    follow_stop.cancel();
    while members.join_next().await.is_some() {}
    follow.await.context("following the metadata ended by a panic")
}

/// Leaves the quorum and closes all logs, however far the start came.
async fn close(broker: &Arc<Broker>) -> anyhow::Result<()> {
    broker.lifecycle.enter(BrokerState::Stopping);
    if let Err(error) = broker.metadata.close().await {
        tracing::error!(%error, "the metadata log could not be closed");
    }
    on_blocking_thread(broker, |broker| broker.close()).await
}

async fn open(
    config: &Arc<BrokerConfig>,
    reached: Reached,
    shutdown: CancellationToken,
) -> anyhow::Result<Arc<Broker>> {
    let config = Arc::clone(config);
    let runtime = tokio::runtime::Handle::current();
    let opened = tokio::task::spawn_blocking(move || Broker::open(config, reached, shutdown, runtime));
    opened.await.context("starting ended by a panic")?.map(Arc::new)
}

async fn on_blocking_thread<T: Send + 'static>(
    broker: &Arc<Broker>,
    work: impl FnOnce(&Arc<Broker>) -> T + Send + 'static,
) -> anyhow::Result<T> {
    let broker = Arc::clone(broker);
    tokio::task::spawn_blocking(move || work(&broker)).await.context("ended by a panic")
}

/// The addresses that clients and brokers are told; port 0 stands for the one that was bound.
fn reached(config: &BrokerConfig, listeners: &[BoundListener], controller: Option<&BoundListener>) -> Reached {
    let endpoint = |told: &Listener, bound: &BoundListener| Endpoint {
        listener: told.name.clone(),
        host: told.host.clone(),
        port: if told.port == 0 { bound.address.port() } else { told.port },
    };
    let clients = config.advertised_listeners.iter().zip(listeners);
    let mut endpoints: Vec<Endpoint> = clients.map(|(told, bound)| endpoint(told, bound)).collect();
    let controller = config.quorum.as_ref().zip(controller).map(|(quorum, bound)| endpoint(&quorum.advertised, bound));
    endpoints.extend(controller.clone());
    let controller = controller.map(|endpoint| Address { host: endpoint.host, port: endpoint.port });
    Reached { endpoints, controller: controller.unwrap_or_default() }
}
