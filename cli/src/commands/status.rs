//! `forebay status`: what `up` has written about its brokers, checked against what the brokers say now.

use anyhow::bail;
use forebay_broker_config::status::BrokerState as Reported;
use serde::Serialize;

use crate::args::StatusArgs;
use crate::http;
use crate::output::table;
use crate::up::State;

/// One broker, as shown.
#[derive(Serialize)]
struct Row {
    id: i32,
    /// None when no process runs.
    pid: Option<u32>,
    address: String,
    http: String,
    state: &'static str,
    restarts: u32,
}

#[derive(Serialize)]
struct Shown {
    cluster: String,
    /// None when `up` does not run.
    pid: Option<u32>,
    bootstrap: String,
    brokers: Vec<Row>,
}

/// Fails, after printing, when a broker is not running.
pub(crate) async fn run(args: StatusArgs) -> anyhow::Result<()> {
    let state = State::read(&args.data)?;
    let up_runs = state.up_runs(&args.data);
    let mut brokers = Vec::new();
    for broker in &state.brokers {
        let reported = if up_runs { http::status(&broker.http).await.ok() } else { None };
        brokers.push(Row {
            id: broker.id,
            pid: broker.pid.filter(|_| up_runs),
            address: broker.address.clone(),
            http: broker.http.clone(),
            state: match reported.map(|r| r.state) {
                Some(Reported::Starting) => "starting",
                Some(Reported::Recovering) => "recovering",
                Some(Reported::Running) => "running",
                Some(Reported::Stopping) => "stopping",
                None if up_runs => "not answering",
                None => "stopped",
            },
            restarts: broker.restarts,
        });
    }
    let down: Vec<String> =
        brokers.iter().filter(|b| b.state != "running").map(|b| format!("broker {} is {}", b.id, b.state)).collect();
    let pid = up_runs.then_some(state.pid);
    let shown = Shown { cluster: state.cluster, pid, bootstrap: state.bootstrap, brokers };
    args.output.print(&shown, |shown| {
        let mut t = table(["broker", "pid", "address", "metrics", "state", "restarts"]);
        for b in &shown.brokers {
            let pid = b.pid.map_or("-".to_owned(), |pid| pid.to_string());
            let metrics = format!("http://{}/metrics", b.http);
            t.add_row([b.id.to_string(), pid, b.address.clone(), metrics, b.state.to_owned(), b.restarts.to_string()]);
        }
        t
    })?;
    if down.is_empty() { Ok(()) } else { bail!(down.join(", ")) }
}
