//! One broker process under test: started on free ports with its data in a temporary folder, looked at through /proc, stopped.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// A broker's files and addresses; they stay the same over restarts.
#[derive(Debug)]
pub(crate) struct Broker {
    program: PathBuf,
    /// What runs it, with arguments; the program itself if empty.
    under: Vec<String>,
    folder: TempDir,
    address: String,
    http_address: String,
    child: Option<Child>,
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mib: f64,
    pub(crate) threads: u64,
}

impl Broker {
    /// Prepares a broker with an empty data folder; it does not run yet.
    pub(crate) fn prepare(program: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let free = || -> Result<u16> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
        let (kafka, http) = (free()?, free()?);
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        let properties = format!(
            "node.id=0\nlisteners=PLAINTEXT://127.0.0.1:{kafka}\nadvertised.listeners=PLAINTEXT://127.0.0.1:{kafka}\n\
             forebay.http.listener=127.0.0.1:{http}\nlog.dirs={}\n",
            data.display()
        );
        std::fs::write(folder.path().join("broker.properties"), properties)?;
        let (address, http_address) = (format!("127.0.0.1:{kafka}"), format!("127.0.0.1:{http}"));
        Ok(Self { program: program.to_path_buf(), under: Vec::new(), folder, address, http_address, child: None })
    }

    /// Lets another program run it.
    pub(crate) fn under<'a>(mut self, command: impl IntoIterator<Item = &'a str>) -> Self {
        self.under = command.into_iter().map(str::to_owned).collect();
        self
    }

    /// With more settings.
    pub(crate) fn with(self, settings: &[&str]) -> Result<Self> {
        let file = self.folder.path().join("broker.properties");
        let text = std::fs::read_to_string(&file)?;
        std::fs::write(&file, text + &settings.join("\n") + "\n")?;
        Ok(self)
    }

    /// Where clients begin.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where its metrics are.
    pub(crate) fn http_address(&self) -> &str {
        &self.http_address
    }

    /// Starts the process; it may not listen yet.
    pub(crate) fn start(&mut self) -> Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("broker.log"))?;
        let mut words = self.under.iter().map(OsStr::new).chain([self.program.as_os_str()]);
        let child = Command::new(words.next().unwrap_or(self.program.as_os_str()))
            .args(words)
            .arg("--config")
            .arg(self.folder.path().join("broker.properties"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("can't start {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Stops it as a user would, and waits.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let stopped = Command::new("kill").arg(child.id().to_string()).status().context("can't run kill")?;
        let status = child.wait()?;
        if !stopped.success() || !status.success() {
            bail!("the broker ended with {status}; the end of its log:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// The last lines of its log, for errors.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("broker.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let child = self.child.as_ref().context("the broker does not run")?;
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", child.id());
            std::fs::read_to_string(&path).with_context(|| format!("can't read {path}"))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        Ok(Usage {
            cpu_seconds: cpu_seconds(&stat).context("can't read the CPU time")?,
            resident_mib: status_number(&status, "VmRSS:").context("can't read the memory")? / 1024.0,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
            threads: status_number(&status, "Threads:").context("can't read the threads")? as u64,
        })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Only after an error; nothing is left to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kernel counts CPU time in hundredths of a second on every Linux there is.
const TICKS_A_SECOND: f64 = 100.0;

/// User and system time: fields 14 and 15, counted behind the name in parentheses, which may hold anything.
pub(crate) fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_A_SECOND)
}

/// The same of all children that have ended.
pub(crate) fn cpu_seconds_of_children(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(13);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_A_SECOND)
}

fn status_number(status: &str, name: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Tries again and again, at short intervals, until it works or the time is up.
pub(crate) async fn until_works<T, E: std::fmt::Display>(
    within: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    let begin = std::time::Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if begin.elapsed() > within => bail!("not within {within:?}: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_a_name_with_spaces_and_parentheses() {
        let stat = "7 (a ) b) S 1 1 1 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 9 0 100 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(status_number("Name:\tx\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2048.0));
    }
}
