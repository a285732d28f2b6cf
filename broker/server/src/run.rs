//! One broker from start to stop, for the program and for tests: `run` returns when `shutdown` was cancelled and all is closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use forebay_broker_config::BrokerConfig;
use forebay_broker_config::status::BrokerState;
use forebay_broker_machines::metadata::Endpoint;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::io::maintenance;
use crate::metrics::http;
use crate::net::listener::{self, BoundListener};

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
    // Addresses are taken first, so that one that is in use fails before anything is touched; nobody is let in yet.
    let listeners = listener::bind_all(&config).await?;
    let http_listener = TcpListener::bind(&config.http_listener)
        .await
        .with_context(|| format!("cannot listen on forebay.http.listener={}", config.http_listener))?;
    let http_address = http_listener.local_addr()?;
    let broker = open(&config, &listeners, shutdown.clone()).await?;
    let http_stop = CancellationToken::new();
    let http = tokio::spawn(http::serve(Arc::clone(&broker), http_listener, http_stop.clone()));
    on_blocking_thread(&broker, Broker::recover).await?;
    broker.start_replication();
    broker.groups.follow(&broker);
    broker.unfence().await?;

    let kafka_address = listeners.first().context("listeners is empty: name at least one")?.address;
    let mut tasks = JoinSet::new();
    for bound in listeners {
        let (listener, name) = bound.listen(broker.limits.backlog)?;
        tasks.spawn(listener::serve(Arc::clone(&broker), listener, name));
    }
    tasks.spawn(maintenance::run(Arc::clone(&broker)));
    tasks.spawn(maintenance::compact(Arc::clone(&broker)));
    broker.lifecycle.enter(BrokerState::Running);
    tracing::info!(%kafka_address, %http_address, "serving");
    started(Started { kafka_address, http_address });

    shutdown.cancelled().await;
    broker.lifecycle.enter(BrokerState::Stopping);
    // Joins that wait for other members would hold up the connections' last answers.
    broker.groups.stop().await;
    broker.replication.stop().await;
    let last_answers = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS_WAIT, last_answers).await.is_err() {
        tracing::warn!("stopping although some clients have not taken their last answers");
        tasks.abort_all();
    }
    on_blocking_thread(&broker, Broker::close).await?;
    http_stop.cancel();
    anyhow::ensure!(!broker.alarm.has_rung(), "a thread panicked: see the log");
    // A scraper that keeps its connection open is not waited for.
    match tokio::time::timeout(LAST_SCRAPE_WAIT, http).await {
        Ok(ended) => ended.context("the HTTP listener ended by a panic"),
        Err(_elapsed) => Ok(()),
    }
}

async fn open(
    config: &Arc<BrokerConfig>,
    listeners: &[BoundListener],
    shutdown: CancellationToken,
) -> anyhow::Result<Arc<Broker>> {
    let config = Arc::clone(config);
    let endpoints = advertised(&config, listeners);
    let runtime = tokio::runtime::Handle::current();
    let opened = tokio::task::spawn_blocking(move || Broker::open(config, endpoints, shutdown, runtime));
    opened.await.context("starting ended by a panic")?.map(Arc::new)
}

async fn on_blocking_thread(broker: &Arc<Broker>, work: fn(&Broker)) -> anyhow::Result<()> {
    let broker = Arc::clone(broker);
    tokio::task::spawn_blocking(move || work(&broker)).await.context("ended by a panic")
}

/// The addresses that clients are told; port 0 stands for the one that was bound.
fn advertised(config: &BrokerConfig, listeners: &[BoundListener]) -> Vec<Endpoint> {
    let told = config.advertised_listeners.iter().zip(listeners);
    told.map(|(advertised, bound)| Endpoint {
        listener: advertised.name.clone(),
        host: advertised.host.clone(),
        port: if advertised.port == 0 { bound.address.port() } else { advertised.port },
    })
    .collect()
}
