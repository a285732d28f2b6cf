//! `/metrics`, `/livez`, `/readyz`. Ready also when another operator leads: a stand-by is healthy.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::stores::Stores;

/// What is served; the stores come when the controllers start.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) metrics: Metrics,
    pub(crate) stores: Arc<RwLock<Stores>>,
}

/// Serves until `shutdown`.
pub(crate) async fn serve(address: SocketAddr, served: Served, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address} (--http-address)"))?;
    tracing::info!(address = %listener.local_addr()?, "serving /metrics, /livez, /readyz");
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { "ok\n" }))
        .with_state(served);
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await.context("serve metrics")
}

async fn metrics(State(served): State<Served>) -> impl IntoResponse {
    served.stores.read().report(&served.metrics);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], served.metrics.render())
}
