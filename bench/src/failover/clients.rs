//! The two producers: other people's clients in processes of their own, whose lines say when nothing was acknowledged.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::{STEADY_GAP_MS, STEADY_MS};

/// Gaps that are remembered; older ones are of no use.
const GAPS_KEPT: usize = 100_000;
/// What clients are told where a leader vanishes without a word. Nothing but their own time-outs ends a wait for its answer (30 and 60 s
/// as shipped), or for a new connection to it (10 s, growing to 30, and 30 s): told too early by the others who leads, Java's client
/// connects to the vanished one again, and asks nobody anew until it gives that up. Left as shipped they would be all that is measured.
const IMPATIENT_JAVA: [&str; 3] = [
    "request.timeout.ms=1500",
    "socket.connection.setup.timeout.ms=1000",
    "socket.connection.setup.timeout.max.ms=1000",
];
const IMPATIENT_LIBRDKAFKA: [&str; 2] = ["socket.timeout.ms=1500", "socket.connection.setup.timeout.ms=1000"];

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Java,
    Librdkafka,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Java => "Java",
            Self::Librdkafka => "librdkafka",
        })
    }
}

impl Kind {
    /// The settings of one that does not wait long for a broker that says nothing.
    pub(super) fn impatient(self) -> &'static [&'static str] {
        match self {
            Self::Java => &IMPATIENT_JAVA,
            Self::Librdkafka => &IMPATIENT_LIBRDKAFKA,
        }
    }
}

/// What one of them has said.
#[derive(Debug, Default)]
struct Said {
    last_ms: f64,
    gaps: VecDeque<(f64, f64)>,
    errors: u64,
    first_error: Option<String>,
    ended: bool,
}

#[derive(Debug)]
struct Producer {
    kind: Kind,
    child: Child,
    said: Arc<Mutex<Said>>,
}

/// Both.
#[derive(Debug)]
pub(super) struct Clients(Vec<Producer>);

/// Milliseconds since 1970, as the clients count.
pub(super) fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

impl Clients {
    pub(super) fn start(bootstrap: &str, topic: &str, rate: u32, impatient: bool) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let tools = root.join("e2e/compat/tools");
        let python = std::process::Command::new(&tools).arg("python").stderr(Stdio::inherit()).output()?;
        let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
        let mut java = Command::new(&tools);
        java.arg("run").arg(root.join("bench/clients/java/Failover.java"));
        let mut librdkafka = Command::new(python);
        librdkafka.arg(root.join("bench/clients/python/failover.py"));
        let mut producers = Vec::new();
        for (kind, mut command) in [(Kind::Java, java), (Kind::Librdkafka, librdkafka)] {
            command.args([bootstrap, topic, &rate.to_string()]);
            if impatient {
                command.args(kind.impatient());
            }
            producers.push(Producer::start(kind, command)?);
        }
        Ok(Self(producers))
    }

    /// Waits until both get acknowledgements without a pause.
    pub(super) async fn steady(&self, within: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            let now = now_ms();
            if self.0.iter().all(|producer| producer.look(|said| said.is_steady(now))) {
                return Ok(());
            }
            for producer in &self.0 {
                let ended = producer.look(|said| said.ended.then(|| said.first_error.clone().unwrap_or_default()));
                if let Some(error) = ended {
                    bail!("{} has ended: {error}", producer.kind);
                }
            }
            if begin.elapsed() > within {
                let of = |p: &Producer| {
                    format!("{}: {:?}", p.kind, p.look(|said| (now - said.last_ms, said.first_error.clone())))
                };
                let told: Vec<String> = self.0.iter().map(of).collect();
                bail!(
                    "acknowledgements are not steady after {within:?}; ms since the last, first error: {}",
                    told.join(", ")
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The longest gap of each that ended after `from`, counted from `from` on at the earliest.
    pub(super) fn longest_gaps(&self, from_ms: f64) -> Vec<(Kind, f64)> {
        self.0.iter().map(|producer| (producer.kind, producer.look(|said| said.longest_gap(from_ms)))).collect()
    }

    /// Ends them; a record that was given up is an error.
    pub(super) async fn end(self) -> Result<()> {
        for mut producer in self.0 {
            drop(producer.child.stdin.take());
            producer.child.wait().await?;
            if let (errors @ 1.., first) = producer.look(|said| (said.errors, said.first_error.clone())) {
                bail!("{}: {errors} records failed: {}", producer.kind, first.unwrap_or_default());
            }
        }
        Ok(())
    }
}

impl Producer {
    fn start(kind: Kind, mut command: Command) -> Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("can't start {kind}"))?;
        let output = child.stdout.take().context("no output")?;
        let said = Arc::new(Mutex::new(Said::default()));
        let writes = Arc::clone(&said);
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                writes.lock().unwrap_or_else(PoisonError::into_inner).take(&line);
            }
            writes.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        });
        Ok(Self { kind, child, said })
    }

    fn look<T>(&self, at: impl FnOnce(&Said) -> T) -> T {
        at(&self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Said {
    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        let kind = words.next();
        let mut number = || words.next().and_then(|word| word.parse::<f64>().ok());
        match kind {
            Some("a") => self.last_ms = number().unwrap_or(self.last_ms),
            Some("g") => {
                if let (Some(begin), Some(end)) = (number(), number()) {
                    self.gaps.push_back((begin, end));
                    if self.gaps.len() > GAPS_KEPT {
                        self.gaps.pop_front();
                    }
                }
            }
            Some("e") => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| line.to_owned());
            }
            _ => {
                self.first_error.get_or_insert_with(|| line.to_owned());
            }
        }
    }

    fn is_steady(&self, now: f64) -> bool {
        let paused = self.gaps.iter().rev().take_while(|(_, end)| *end > now - STEADY_MS);
        let longest = paused.map(|(begin, end)| end - begin).fold(0.0, f64::max);
        now - self.last_ms < STEADY_GAP_MS && longest < STEADY_GAP_MS
    }

    fn longest_gap(&self, from: f64) -> f64 {
        let after = self.gaps.iter().filter(|(_, end)| *end > from);
        after.map(|(begin, end)| end - begin.max(from)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_from_the_fault_on() {
        let mut said = Said::default();
        for line in ["a 1000.0 5", "g 1000.0 1010.0", "g 1990.0 2500.5", "g 2600.0 2610.0", "a 2610.0 9"] {
            said.take(line);
        }
        assert!((said.longest_gap(2000.0) - 500.5).abs() < 1e-6);
        assert!(!said.is_steady(2700.0), "a pause of half a second ended just now");
        assert!(said.is_steady(2610.0 + 900.0) == (900.0 < STEADY_GAP_MS));
        said.take("a 3600.0 10");
        assert!(said.is_steady(3620.0));
    }
}
