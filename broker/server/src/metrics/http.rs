//! The HTTP listener (`forebay.http.listener`): `/metrics`, `/livez`, `/readyz`, `/status`.
//!
//! What must hold: it answers from the moment the broker has its directories until the very end, so that recovery is seen
//! as alive and not ready, and nobody kills a broker for being slow to start. It changes nothing: there is no write here.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use forebay_broker_config::status::{BrokerState, BrokerStatus};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::scrape;
use crate::broker::Broker;
use crate::status;

/// Content type of Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(broker: Arc<Broker>, listener: TcpListener, stop: CancellationToken) {
    let routes = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/status", get(current_status))
        .with_state(broker);
    if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await {
        tracing::error!(%error, "the HTTP listener ended");
    }
}

async fn livez() -> &'static str {
    "alive\n"
}

async fn readyz(State(broker): State<Arc<Broker>>) -> (StatusCode, String) {
    let state = broker.lifecycle.state();
    match state {
        BrokerState::Running if broker.metadata.quorum().is_away() => {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: the disk of the metadata hangs\n".to_owned())
        }
        BrokerState::Running => readiness_of_disks(&broker),
        BrokerState::Starting if !broker.metadata.quorum().waiting_for().is_empty() => {
            let what = broker.metadata.quorum().waiting_for();
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: starting, waiting for {what}\n"))
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", broker.lifecycle.describe())),
    }
}

/// One disk of several may fail: its partitions are offline, the others are served. Without any disk there is nothing to be ready for.
fn readiness_of_disks(broker: &Broker) -> (StatusCode, String) {
    let poisoned = broker.partitions.dirs.iter().filter_map(|dir| dir.log_dir.poisoned());
    let mut failed: Vec<_> = poisoned.map(|poisoned| (poisoned.dir, poisoned.reason)).collect();
    let all_failed = failed.len() == broker.partitions.dirs.len();
    failed.extend(broker.failed_dirs.iter().map(|dir| (dir.path.display().to_string(), dir.reason.clone())));
    let shut = broker.partitions.failed();
    let (code, mut text) = if all_failed {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: no log dir takes writes\n".to_owned())
    } else if shut > 0 {
        let text = format!("not ready: {shut} partitions could not be opened and are tried again: see the log\n");
        (StatusCode::SERVICE_UNAVAILABLE, text)
    } else {
        (StatusCode::OK, "ready\n".to_owned())
    };
    for (dir, reason) in failed {
        text.push_str(&format!("log dir {dir} takes no writes: {reason}\n"));
    }
    for dir in &broker.partitions.dirs {
        if dir.is_hung() {
            text.push_str(&format!("{}\n", dir.words()));
        }
        if dir.is_low() {
            let path = dir.log_dir.path().display();
            text.push_str(&format!("log dir {path} is nearly full: clients' records are refused\n"));
        }
        for log in dir.log_dir.inconsistent_logs() {
            text.push_str(&format!("log {log} lacks records or was refused: see the log\n"));
        }
    }
    (code, text)
}

async fn metrics(State(broker): State<Arc<Broker>>) -> Response {
    let groups = broker.groups.summaries().await;
    match on_blocking_thread(broker, move |broker| scrape::text(broker, &groups)).await {
        Some(Ok(text)) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn current_status(State(broker): State<Arc<Broker>>) -> Response {
    match on_blocking_thread(broker, status::of).await {
        Some(status) => Json::<BrokerStatus>(status).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Both read `/proc` and ask file systems for their space, which may take a while: never on a network thread.
async fn on_blocking_thread<T: Send + 'static>(
    broker: Arc<Broker>,
    read: impl FnOnce(&Broker) -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(move || read(&broker)).await.ok()
}
