//! The `forebay-broker` program: arguments, log, runtime, signals. `forebay broker` is the same program under another name.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use forebay_broker_config::{BrokerConfig, broker_id_from_name};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::rack::{self, Told};
use crate::status::{cgroup, limits};

/// Threads for short blocking work outside the data path: opening logs, reading /proc, metadata writes.
const BLOCKING_THREADS_MAX: usize = 32;

/// Runs one broker until SIGTERM or SIGINT.
#[derive(Debug, Parser)]
#[command(name = "forebay-broker", version)]
pub struct Arguments {
    /// Properties file with Kafka's names
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Overrides a setting of the file; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Takes node.id from the number at the end of a name, such as a pod's
    #[arg(long, value_name = "NAME-N")]
    broker_id_from: Option<String>,
    /// Takes broker.rack from the file `rack` in a folder; the start waits up to 30 s for it, or for `no-rack`, which says why there is none
    #[arg(long, value_name = "FOLDER")]
    rack_from: Option<PathBuf>,
}

impl Arguments {
    fn read_config(&self, rack: Option<&str>) -> anyhow::Result<BrokerConfig> {
        let text = std::fs::read_to_string(&self.config)
            .with_context(|| format!("cannot read the configuration {}", self.config.display()))?;
        let mut overrides = self.set.clone();
        if let Some(name) = &self.broker_id_from {
            overrides.push(format!("node.id={}", broker_id_from_name(name)?));
        }
        overrides.extend(rack.map(|rack| format!("broker.rack={rack}")));
        BrokerConfig::parse(&text, &overrides)
            .with_context(|| format!("the configuration {} is not valid", self.config.display()))
    }
}

/// Runs the broker; returns after a clean stop.
///
/// # Errors
/// The configuration is not valid, or the broker could not start or stop cleanly.
pub fn main(arguments: &Arguments) -> anyhow::Result<()> {
    use_small_pages();
    log_to_stderr();
    let config = arguments.read_config(None)?;
    limits::raise_nofile(config.nofile_wanted);
    let threads = config.threads.in_force(cgroup::usable_cores());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.network)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("network")
        .enable_all()
        .build()
        .context("cannot start the network threads")?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        stop_on_signal(&shutdown)?;
        let config = match &arguments.rack_from {
            None => config,
            Some(folder) => match rack::told(folder, rack::WAIT_MAX, &shutdown).await {
                Told::Stop => return Ok(()),
                told => arguments.read_config(rack_of(&told))?,
            },
        };
        crate::run(config, shutdown, |_started| {}).await
    })
}

fn rack_of(told: &Told) -> Option<&str> {
    match told {
        Told::Rack(rack) => return Some(rack),
        Told::NoRack(why) => tracing::warn!("this broker has no rack: {why}"),
        Told::Nothing => tracing::warn!(
            "this broker has no rack: nobody has told it within {} s; a restart asks again",
            rack::WAIT_MAX.as_secs()
        ),
        Told::Stop => {}
    }
    None
}

/// Little of what a broker keeps lies together: with huge pages (2 MiB) each piece would hold one in memory. Where the kernel can't be told
/// so, it costs memory and nothing else.
fn use_small_pages() {
    let _unknown_to_the_kernel = rustix::thread::disable_transparent_huge_pages(true);
}

fn stop_on_signal(shutdown: &CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
        shutdown.cancel();
    });
    Ok(())
}

/// `RUST_LOG` chooses what is logged, as everywhere in Rust; JSON lines when `FOREBAY_LOG=json`.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_unset| EnvFilter::new("info,openraft=error"));
    let terminal = std::io::stderr().is_terminal();
    // A log that cannot be written, on a full disk say, is no reason to panic: internal errors would be told by `eprintln!`.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    let log = log.log_internal_errors(false);
    let set = match std::env::var("FOREBAY_LOG") {
        Ok(format) if format == "json" => log.json().try_init(),
        _ => log.with_target(false).try_init(),
    };
    if let Err(error) = set {
        eprintln!("the log is set up already: {error}");
    }
}
