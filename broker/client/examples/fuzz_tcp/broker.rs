//! A broker of its own process on the loopback interface, in a directory of its own.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

const START_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Broker {
    child: Child,
    address: SocketAddr,
    dir: Option<TempDir>,
    log: PathBuf,
}

impl Broker {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (address, http) = (free_address()?, free_address()?);
        let config = dir.path().join("broker.properties");
        // No topic appears because damage names it: the disk must not decide how long this can run.
        let properties = format!(
            "node.id=1\nlisteners=PLAINTEXT://{address}\nlog.dirs={}\nforebay.http.listener={http}\n\
             auto.create.topics.enable=false\noffsets.topic.num.partitions=2\n",
            dir.path().join("data").display()
        );
        fs::write(&config, properties)?;
        let log = dir.path().join("broker.log");
        let out = File::create(&log)?;
        let child = Command::new(program)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut broker = Self { child, address, dir: Some(dir), log };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            broker.require_alive()?;
            ensure!(begin.elapsed() < START_WITHIN, "the broker does not listen on {address}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(broker)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Fails if the program ended, or if any of its threads or tasks panicked.
    pub(crate) fn require_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the broker ended with {status}: {}", self.log_tail());
        }
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let panicked: Vec<_> = log.lines().filter(|line| line.contains("panicked at")).take(3).collect();
        ensure!(panicked.is_empty(), "the broker panicked: {}", panicked.join("\n"));
        Ok(())
    }

    /// The most memory the process has had.
    pub(crate) fn peak_resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().context("VmHWM")?;
        Ok(kib << 10)
    }

    /// Asks the broker to stop; it must do so by itself.
    pub(crate) fn require_stop(&mut self) -> Result<()> {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().context("run kill")?;
        ensure!(asked.success(), "kill ended with {asked}");
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the broker stopped with {status}: {}", self.log_tail());
                return Ok(());
            }
            ensure!(begin.elapsed() < STOP_WITHIN, "the broker does not stop: {}", self.log_tail());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Leaves the directory behind.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.dir.take().map(TempDir::keep).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that was free a moment ago.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
