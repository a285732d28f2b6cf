//! `forebay up`: the manifests' cluster on this machine. Brokers are child processes; topics are made as declared; profiles are
//! solved and their files written; one table says where everything is; then it stays until it is told to stop.
//!
//! Read it from [`run`]. `settings` and the planning in `topics` are pure; `broker` is the only one that starts processes.

mod broker;
mod data_dir;
mod former;
mod settings;
mod state;
mod subscription;
mod table;
mod topics;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, bail};
use forebay_broker_client::{Admin, ClientConfig};
use forebay_broker_config::{BrokerConfig, render_properties};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

pub(crate) use broker::FOLLOW_STDIN;
pub(crate) use state::{BrokerState, State};

use crate::args::UpArgs;
use crate::manifest::{self, Manifests};
use crate::output;
use crate::profiles;
use broker::{Broker, Seen, Stop, supervise};
use data_dir::DataDir;
use settings::{Ports, broker_settings};

/// A broker that is being kept running.
#[derive(Debug)]
struct Kept {
    broker: Broker,
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
    stop: Stop,
}

/// Brokers that serve are all in the cluster within this.
const JOINED_WITHIN: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Brokers that can go on without one that does not start, serve within this.
const WITHOUT_IT_WITHIN: Duration = Duration::from_secs(30);

/// Brings everything up, stays, and takes everything down again.
pub(crate) async fn run(args: UpArgs) -> anyhow::Result<()> {
    let manifests = manifest::read(&args.files)?;
    let data = DataDir::open(&args.data)?;
    former::await_end(data.path()).await;
    let brokers = prepare(&manifests, &data, &args)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut kept: Vec<Kept> = brokers.into_iter().map(keep).collect();
    let outcome = tokio::select! {
        outcome = live(&manifests, &data, &mut kept) => outcome,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    eprintln!("stopping");
    let now: Vec<Stop> = kept.iter().map(|kept| kept.stop.clone()).collect();
    let all_stopped = stop_in_order(kept);
    tokio::pin!(all_stopped);
    tokio::select! {
        () = &mut all_stopped => {}
        _ = interrupt.recv() => {
            now.iter().for_each(Stop::at_once);
            all_stopped.await;
        }
    }
    outcome
}

/// One after the other, the last first: each hands over what it leads to one that still runs, and the first voters go last.
async fn stop_in_order(kept: Vec<Kept>) {
    for one in kept.into_iter().rev() {
        one.stop.gently.cancel();
        // A supervisor that panicked has nothing left to stop.
        let _ = one.task.await;
    }
}

/// Writes each broker's configuration, and checks before anything starts what would make it fail.
fn prepare(manifests: &Manifests, data: &DataDir, args: &UpArgs) -> anyhow::Result<Vec<Broker>> {
    let spec = &manifests.cluster.spec;
    data.must_suit(spec.replicas)?;
    if let Some(note) = settings::left_out(spec) {
        eprintln!("note: {note}");
    }
    let ports = (0..spec.replicas).map(|id| Ok((id, ports(args, id)?))).collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    must_differ(&ports)?;
    let cluster_id = if spec.replicas > 1 { data.cluster_id()? } else { String::new() };
    let mut brokers = Vec::new();
    for (id, own) in &ports {
        let folder = data.broker(*id);
        for disk in &spec.disks {
            let path = folder.join(&disk.name);
            std::fs::create_dir_all(&path).with_context(|| format!("can't create {}", path.display()))?;
        }
        let settings = broker_settings(spec, *id, &folder, &ports, &cluster_id).context("a broker without ports")?;
        BrokerConfig::from_settings(settings.clone()).context("the Cluster's config can't be used")?;
        let config = folder.join("broker.properties");
        std::fs::write(&config, render_properties(&settings))
            .with_context(|| format!("can't write {}", config.display()))?;
        must_be_free(own.kafka, "--port")?;
        must_be_free(own.http, "--http-port")?;
        if ports.len() > 1 {
            must_be_free(own.controller, "--controller-port")?;
        }
        brokers.push(Broker { id: *id, config, log: folder.join("broker.log"), ports: *own });
    }
    Ok(brokers)
}

fn ports(args: &UpArgs, id: i32) -> anyhow::Result<Ports> {
    let nth = u16::try_from(id).context("too many brokers")?;
    let port = |base: u16, option: &str| {
        let none = || {
            format!(
                "{option} {base}: broker {id} would need port {}, the last is 65535",
                u32::from(base) + u32::from(nth)
            )
        };
        base.checked_add(nth).with_context(none)
    };
    let (kafka, http) = (port(args.port, "--port")?, port(args.http_port, "--http-port")?);
    Ok(Ports { kafka, http, controller: port(args.controller_port, "--controller-port")? })
}

/// No port is given twice, by whichever options.
fn must_differ(ports: &BTreeMap<i32, Ports>) -> anyhow::Result<()> {
    let mut taken: BTreeMap<u16, &str> = BTreeMap::new();
    for own in ports.values() {
        let mut all = vec![(own.kafka, "--port"), (own.http, "--http-port")];
        if ports.len() > 1 {
            all.push((own.controller, "--controller-port"));
        }
        for (port, option) in all {
            if let Some(other) = taken.insert(port, option) {
                bail!(
                    "{other} and {option} both lead to port {port}: choose others, so far apart that each broker has its own"
                )
            }
        }
    }
    Ok(())
}

fn must_be_free(port: u16, option: &str) -> anyhow::Result<()> {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("port {port} of 127.0.0.1 is in use by another program; choose another with {option}")
        }
        Err(error) => Err(error).with_context(|| format!("can't listen on 127.0.0.1:{port}")),
    }
}

fn keep(broker: Broker) -> Kept {
    let stop = Stop::default();
    eprintln!("starting broker {}; its log is {}", broker.id, broker.log.display());
    let (sender, seen) = watch::channel(Seen::default());
    let task = tokio::spawn(supervise(broker.clone(), sender, stop.clone()));
    Kept { broker, seen, task, stop }
}

/// Waits until the brokers serve, makes topics and profiles, prints the table, and then keeps the state file up to date for
/// ever; ends only with an error.
async fn live(manifests: &Manifests, data: &DataDir, kept: &mut [Kept]) -> anyhow::Result<()> {
    let mut state = state_of(manifests, kept);
    state.write(data.path())?;
    let serving = those_that_serve(kept).await?;
    let admin = Admin::connect(&state.bootstrap, ClientConfig::default()).await?;
    all_joined(&admin, serving).await?;
    let topics = topics::apply(&admin, &manifests.topics).await?;
    state.profiles = solve_profiles(&admin, manifests, data).await?;
    state.brokers = state_of(manifests, kept).brokers;
    state.write(data.path())?;
    output::print(&table::render(&state, &topics, data.path()))?;
    loop {
        let now = state_of(manifests, kept).brokers;
        if now != state.brokers || !data_state_is(&state, data) {
            state.brokers = now;
            state.write(data.path())?;
        }
        let runs = |one: &&mut Kept| one.seen.borrow().failed.is_none();
        let changes = kept.iter_mut().filter(runs).map(|one| Box::pin(one.seen.changed()));
        let (changed, _, _) = futures::future::select_all(changes).await;
        changed.context("a supervisor ended")?;
    }
}

/// Waits until each broker serves or has turned out not to; gives how many do. An error if none does, or if those that run wait in vain for
/// one that does not: a majority is needed, and all of them the first time.
async fn those_that_serve(kept: &mut [Kept]) -> anyhow::Result<usize> {
    let mut first_failure: Option<(Instant, String)> = None;
    loop {
        let seen: Vec<Seen> = kept.iter_mut().map(|one| one.seen.borrow_and_update().clone()).collect();
        let failed = seen.iter().find_map(|seen| seen.failed.clone());
        if let (None, Some(failed)) = (&first_failure, &failed) {
            first_failure = Some((Instant::now() + WITHOUT_IT_WITHIN, failed.clone()));
            if seen.len() > 1 {
                eprintln!("{failed}\nthe others are waited for, {} s at most", WITHOUT_IT_WITHIN.as_secs());
            }
        }
        let serving = seen.iter().filter(|seen| seen.serves).count();
        let waiting = seen.iter().filter(|seen| !seen.serves && seen.failed.is_none()).count();
        match &first_failure {
            Some((_, failed)) if serving == 0 && waiting == 0 => bail!("{failed}"),
            _ if waiting == 0 => return Ok(serving),
            _ => {}
        }
        let runs = |one: &&mut Kept| one.seen.borrow().failed.is_none();
        let changes = kept.iter_mut().filter(runs).map(|one| Box::pin(one.seen.changed()));
        let changed = futures::future::select_all(changes);
        match &first_failure {
            None => drop(changed.await),
            Some((until, failed)) => match timeout_at(*until, changed).await {
                Ok(_changed) => {}
                Err(_elapsed) => bail!("the other brokers can't go on without one that did not start: {failed}"),
            },
        }
    }
}

/// Waits until the cluster counts all its brokers: before, there is no room for as many replicas as topics want.
async fn all_joined(admin: &Admin, brokers: usize) -> anyhow::Result<()> {
    let begin = tokio::time::Instant::now();
    loop {
        let joined = admin.describe_cluster().await?.brokers.len();
        if joined >= brokers {
            return Ok(());
        }
        if begin.elapsed() > JOINED_WITHIN {
            bail!("only {joined} of {brokers} brokers are in the cluster after {} s", JOINED_WITHIN.as_secs());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn data_state_is(state: &State, data: &DataDir) -> bool {
    State::read(data.path()).is_ok_and(|written| written == *state)
}

fn state_of(manifests: &Manifests, kept: &[Kept]) -> State {
    let brokers = kept.iter().map(|one| {
        let seen = one.seen.borrow();
        BrokerState {
            id: one.broker.id,
            pid: seen.pid,
            address: one.broker.ports.address(),
            http: one.broker.ports.http_address(),
            restarts: seen.restarts,
            failed: seen.failed.clone(),
        }
    });
    State {
        cluster: manifests.cluster.metadata.name.clone().unwrap_or_default(),
        pid: std::process::id(),
        bootstrap: kept.iter().map(|one| one.broker.ports.address()).collect::<Vec<_>>().join(","),
        brokers: brokers.collect(),
        profiles: Vec::new(),
    }
}

/// Solves the profiles for the topics as the brokers have them.
async fn solve_profiles(admin: &Admin, manifests: &Manifests, data: &DataDir) -> anyhow::Result<Vec<profiles::Listed>> {
    let mut listed = Vec::new();
    for profile in &manifests.profiles {
        // One profile that can't be solved must not keep the others, or the brokers, from coming up.
        let subscription = match subscription::read(admin, &profile.spec.topics).await? {
            Ok(subscription) => subscription,
            Err(missing) => {
                listed.push(profiles::unsolved(profile, &missing));
                continue;
            }
        };
        match profiles::solved(profile, subscription.clone()) {
            Ok(solved) => {
                let folder = data.profile(&solved.name);
                let written = solved.write(profile, &subscription, &folder)?;
                listed.push(solved.listed(written.then_some(folder)));
            }
            Err(error) => listed.push(profiles::unsolved(profile, &format!("{error:#}"))),
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_that_would_go_beyond_the_last_port_are_told_by_which_option() {
        let args =
            UpArgs { files: Vec::new(), data: "data".into(), port: 65_534, http_port: 9644, controller_port: 9192 };
        assert_eq!(ports(&args, 1).unwrap().kafka, 65_535);
        let error = ports(&args, 2).unwrap_err().to_string();
        assert_eq!(error, "--port 65534: broker 2 would need port 65536, the last is 65535");
    }
}
