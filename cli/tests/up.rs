//! `forebay up` as a user runs it: the real program, real brokers, real files, ended in every way a program can end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");
const QUICKSTART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/quickstart.yaml");
const REPLICATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/replicated.yaml");
/// Generous: the tests run beside compilers.
const PATIENCE: Duration = Duration::from_secs(60);

/// One `forebay up` on free ports, with its output in files; killed when dropped.
struct Up {
    folder: TempDir,
    manifests: &'static str,
    port: u16,
    http_port: u16,
    controller_port: u16,
    child: Option<Child>,
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The first of so many free ports in a row.
fn free_ports(count: u16) -> u16 {
    until("free ports", || {
        let first = free_port();
        let free = |n| first.checked_add(n).is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
        (0..count).all(free).then_some(first)
    })
}

fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

fn lives(pid: u32) -> bool {
    // A zombie is no longer alive, but can still be signalled.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    test_kill_process(Pid::from_raw(pid.cast_signed()).unwrap()).is_ok() && !stat.contains(") Z ")
}

impl Up {
    fn new() -> Self {
        Self::with(QUICKSTART, 1)
    }

    fn with(manifests: &'static str, brokers: u16) -> Self {
        let (port, http_port, controller_port) = (free_ports(brokers), free_ports(brokers), free_ports(brokers));
        Self { folder: tempfile::tempdir().unwrap(), manifests, port, http_port, controller_port, child: None }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(FOREBAY);
        command.args(["up", "-f", self.manifests, "--port", &self.port.to_string()]);
        command.args(["--controller-port", &self.controller_port.to_string()]);
        command.args(["--http-port", &self.http_port.to_string(), "--data"]).arg(self.folder.path().join("data"));
        command
    }

    /// Starts it and waits for the table.
    fn start(&mut self) -> String {
        let file = |name: &str| std::fs::File::create(self.folder.path().join(name)).unwrap();
        let child = self.command().stdout(file("out")).stderr(file("err")).spawn().unwrap();
        self.child = Some(child);
        until("the table", || Some(self.read("out")).filter(|out| out.contains("Ctrl-C stops it")))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        signal(child.id(), Signal::TERM);
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.read("err"));
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(FOREBAY);
        // Also of three the second: any of them leads to the others.
        let bootstrap = format!("127.0.0.1:{},127.0.0.1:{}", self.port, self.port.saturating_add(1));
        command.args(arguments).env("FOREBAY_BOOTSTRAP", bootstrap);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {output:?}"))
    }

    fn status(&self) -> serde_json::Value {
        self.json(&["status", "--data", self.folder.path().join("data").to_str().unwrap()])
    }

    fn broker_pid(&self) -> u32 {
        self.pid_of(0)
    }

    fn pid_of(&self, broker: usize) -> u32 {
        let status = self.status();
        u32::try_from(status["brokers"][broker]["pid"].as_u64().unwrap_or_else(|| panic!("{status}"))).unwrap()
    }

    fn records(&self) -> usize {
        self.records_of("orders")
    }

    fn records_of(&self, topic: &str) -> usize {
        let output = self.run(&["consume", topic]);
        assert!(output.status.success(), "{output:?}");
        output.stdout.iter().filter(|byte| **byte == b'\n').count()
    }
}

#[test]
fn it_serves_stops_on_sigterm_and_finds_its_data_again() {
    let mut up = Up::new();
    let table = up.start();
    for part in [&format!("bootstrap 127.0.0.1:{}", up.port), "orders", "created", "billing", "/metrics"] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    assert!(up.run(&["produce", "orders", "--count", "500", "--key-prefix", "k"]).status.success());
    assert_eq!(up.records(), 500);
    let settings = up.folder.path().join("data/profiles/billing/java.properties");
    assert!(std::fs::read_to_string(settings).unwrap().contains("fetch.min.bytes"));
    let broker = up.broker_pid();
    up.stop();
    assert!(!lives(broker));
    assert_eq!(up.status()["brokers"][0]["state"], "stopped");

    assert!(up.start().contains("as declared"), "the topic is found, not made again");
    assert_eq!(up.records(), 500);
    up.stop();
}

#[test]
fn a_broker_that_dies_is_started_again_with_what_it_acknowledged() {
    let mut up = Up::new();
    up.start();
    assert!(up.run(&["produce", "orders", "--count", "100"]).status.success());
    let before = up.broker_pid();
    signal(before, Signal::KILL);
    until("another broker", || {
        let broker = up.status()["brokers"][0].clone();
        (broker["state"] == "running" && broker["restarts"] == 1).then_some(())
    });
    assert_ne!(up.broker_pid(), before);
    assert!(up.read("err").contains("broker 0 died (signal 9); starting it again"), "{}", up.read("err"));
    assert_eq!(up.records(), 100);
    up.stop();
}

#[test]
fn three_brokers_keep_what_they_acknowledged_when_one_dies_and_over_a_restart_of_all() {
    let mut up = Up::with(REPLICATED, 3);
    let table = up.start();
    assert!(table.contains(&format!("127.0.0.1:{}", up.port + 2)), "{table}");
    assert!(up.run(&["produce", "payments", "--count", "300"]).status.success());
    let all_in_sync = || {
        let described = up.json(&["topic", "describe", "payments"]);
        let partitions = described[0]["partitions"].as_array().cloned().unwrap_or_default();
        let full = |partition: &serde_json::Value| partition["isr"].as_array().is_some_and(|isr| isr.len() == 3);
        (partitions.len() == 6 && partitions.iter().all(full)).then_some(partitions)
    };
    let leader = usize::try_from(until("replicas in sync", all_in_sync)[0]["leader"].as_u64().unwrap()).unwrap();
    let before = up.pid_of(leader);
    signal(before, Signal::KILL);
    let produced = up.run(&["produce", "payments", "--count", "300"]);
    assert!(produced.status.success(), "{produced:?}");
    assert_eq!(up.records_of("payments"), 600, "read while new leaders are elected");
    until("another process", || (up.status()["brokers"][leader]["restarts"] == 1).then_some(()));
    until("replicas in sync again", all_in_sync);
    assert_eq!(up.records_of("payments"), 600);
    up.stop();
    up.start();
    assert_eq!(up.records_of("payments"), 600);
    up.stop();
}

#[test]
fn the_others_come_up_without_a_broker_whose_folder_is_damaged_and_the_table_says_why() {
    let mut up = Up::with(REPLICATED, 3);
    up.start();
    assert!(up.run(&["produce", "payments", "--count", "30"]).status.success());
    up.stop();
    let identity = up.folder.path().join("data/broker-1/data/meta.properties");
    std::fs::write(&identity, "cluster.id=somebody-elses").unwrap();
    let table = up.start();
    let line = table.lines().find(|line| line.contains("did not start")).unwrap_or_else(|| panic!("{table}"));
    assert!(line.contains("meta.properties"), "{line}");
    assert!(up.read("err").contains("the others are waited for"), "{}", up.read("err"));
    assert_eq!(up.records_of("payments"), 30);
    up.stop();
}

#[test]
fn a_first_start_that_waits_for_a_broker_in_vain_says_why_and_ends() {
    let mut up = Up::with(REPLICATED, 3);
    std::fs::create_dir_all(up.folder.path().join("data/broker-1/data/payments-2")).unwrap();
    let err = std::fs::File::create(up.folder.path().join("err")).unwrap();
    up.child = Some(up.command().stdout(Stdio::null()).stderr(err).spawn().unwrap());
    let folder = up.folder.path().to_owned();
    let said = || std::fs::read_to_string(folder.join("err")).unwrap_or_default();
    until("it is told", || (said().contains("broker 1 died") && said().contains("meta.properties")).then_some(()));
    let status = up.child.take().unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(1), "{}", said());
    assert!(said().contains("can't go on without one that did not start"), "{}", said());
}

#[test]
fn no_broker_outlives_an_up_that_was_killed() {
    let mut up = Up::new();
    up.start();
    let broker = up.broker_pid();
    let mut child = up.child.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    up.start();
    assert!(!lives(broker), "the next one waits for it");
    up.stop();
    let log = std::fs::read_to_string(up.folder.path().join("data/broker-0/broker.log")).unwrap();
    assert!(log.trim_end().ends_with("stopped"), "it stopped cleanly:\n{log}");
}

#[test]
fn what_is_taken_is_refused_by_name() {
    let mut up = Up::new();
    up.start();
    let second = up.command().output().unwrap();
    let error = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(error.contains("is in use by another `forebay up`"), "{error}");

    let elsewhere = TempDir::new().unwrap();
    let error = second_on_the_same_port(&up, elsewhere.path());
    let taken = format!("port {} of 127.0.0.1 is in use by another program; choose another with --port", up.port);
    assert!(error.contains(&taken), "{error}");
    up.stop();
}

fn second_on_the_same_port(up: &Up, data: &Path) -> String {
    let mut command = Command::new(FOREBAY);
    command.args(["up", "-f", QUICKSTART, "--port", &up.port.to_string(), "--data"]).arg(data);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn commands_fail_with_their_reason_on_standard_error() {
    let mut up = Up::new();
    up.start();
    let missing = up.run(&["topic", "describe", "nothing"]);
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("UNKNOWN_TOPIC_OR_PARTITION"));
    let shrunk = up.run(&["topic", "alter", "orders", "--partitions", "2"]);
    assert!(String::from_utf8(shrunk.stderr).unwrap().contains("INVALID_PARTITIONS"));
    assert_eq!(up.run(&["topic", "frobnicate"]).status.code(), Some(2));
    assert_eq!(up.json(&["topic", "list"])[0]["partitions"], 4);
    up.stop();
}
