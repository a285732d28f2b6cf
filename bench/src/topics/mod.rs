//! Thousands of Topics on a real API server: etcd, kube-apiserver and controllers of e2e/cluster, the operator and a broker as
//! processes of this machine. How long until all are Ready, what a quiet time costs, how soon a topic that was changed by hand is as
//! declared again, and what a new operator does to Topics that need nothing.
//!
//! What must hold: writes and changes are counted where they arrive, by the API server and the broker, not by the operator; nothing is
//! left running, however it ends.

mod api_server;
mod operator;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use forebay_broker_client::admin::{ConfigChange, ConfigResource};
use forebay_broker_client::{Admin, ClientConfig};
use tokio::time::sleep;

use self::api_server::ApiServer;
use self::operator::{Operator, Usage};
use crate::Common;
use crate::broker::{Broker, until_works};
use crate::report::Report;

const READY_WITHIN: Duration = Duration::from_secs(300);
const PUT_BACK_WITHIN: Duration = Duration::from_secs(60);
const CPU_PERCENT_BELOW: f64 = 2.0;
const MEMORY_MB_BELOW: f64 = 100.0;
const MB_A_MIB: f64 = 1.048_576;
/// Twice the operator's resync: what came with the last changes is over.
const SETTLES: Duration = Duration::from_secs(60);
/// A new operator has listed, reconciled and looked at everything by then.
const RESTARTED: Duration = Duration::from_secs(90);
const GONE_WITHIN: Duration = Duration::from_secs(600);
/// As many as people have in a file, and as many files at a time as several pipelines would.
const TOPICS_A_LIST: usize = 250;
const APPLIED_AT_ONCE: usize = 8;
/// Requests that change topics.
const CHANGES: [&str; 6] = [
    "CreateTopics",
    "CreatePartitions",
    "DeleteTopics",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
];
const RETENTION: &str = "retention.ms";
const RETENTION_DECLARED: &str = "3600000";

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The operator program to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/forebay-operator")]
    operator: PathBuf,
    /// How many.
    #[arg(long, default_value_t = 5_000)]
    topics: u32,
    /// How long nothing is changed.
    #[arg(long, default_value_t = 600)]
    quiet_seconds: u64,
}

struct World {
    api: ApiServer,
    operator: Operator,
    broker: Broker,
    topics: u32,
}

/// What has been written so far, where it arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Counts {
    /// At the API server, by resource and verb.
    writes: BTreeMap<String, u64>,
    /// At the broker, by API.
    requests: BTreeMap<String, u64>,
}

pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut report = Report::default();
    let measured = measure(options, &mut report).await;
    // What was seen until then is seen also when the rest fails.
    let title = format!("{} Topics on a real API server", options.topics);
    let passes = report.finish(&title, options.common.save.as_deref().filter(|_| measured.is_ok()))?;
    measured.map(|()| passes)
}

async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let mut world = World::start(options).await?;
    world.made(report).await?;
    world.quiet(options, report).await?;
    world.put_back(report).await?;
    world.restarted(options, report).await?;
    world.deleted(report).await
}

impl World {
    async fn start(options: &Options) -> Result<Self> {
        progress("bringing an API server up (minutes when its build is not in the cache)");
        let api = ApiServer::up()?;
        api.install_crds()?;
        let mut broker = Broker::prepare(&options.common.broker)?;
        broker.start()?;
        let address = broker.address().to_owned();
        until_works(Duration::from_secs(30), async || Admin::connect(&address, ClientConfig::default()).await).await?;
        let operator = Operator::start(&options.operator, api.kubeconfig(), &address)?;
        api.apply(&serde_json::json!({
            "apiVersion": "forebay.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "c", "namespace": "default"},
            "spec": {"replicas": 1, "disks": [{"name": "data", "size": "10Gi"}]},
        }))?;
        Ok(Self { api, operator, broker, topics: options.topics })
    }

    async fn counts(&self) -> Result<Counts> {
        let metrics = http_get(self.broker.http_address(), "/metrics")?;
        let requests = metrics.lines().filter_map(|line| {
            let (api, rest) = line.strip_prefix("forebay_requests_total{api=\"")?.split_once('"')?;
            Some((api.to_owned(), rest.rsplit_once(' ')?.1.parse().ok()?))
        });
        Ok(Counts { writes: self.api.writes()?, requests: requests.collect() })
    }

    /// Applies all, as kubectl does, and waits until the API server says of each that it is Ready.
    async fn made(&mut self, report: &mut Report) -> Result<()> {
        let before = self.counts().await?;
        let (cpu, began) = (self.operator.usage()?.cpu_seconds, Instant::now());
        self.apply_all(began)?;
        let applied = began.elapsed();
        loop {
            let (ready, all) = self.api.ready_topics()?;
            progress(&format!("{ready} of {all} Topics are Ready after {:.0} s", began.elapsed().as_secs_f64()));
            if ready == self.topics {
                break;
            }
            ensure!(began.elapsed() < READY_WITHIN * 4, "only {ready} Topics are Ready:\n{}", self.operator.log_tail());
            sleep(Duration::from_secs(2)).await;
        }
        let took = began.elapsed();
        let usage = self.operator.usage()?;
        let counts = self.counts().await?.since(&before);
        let what = format!("{} Topics applied by {APPLIED_AT_ONCE} kubectl at a time", self.topics);
        report.tell(&what, format!("{:.0} s", applied.as_secs_f64()));
        let limit = format!("< {} s", READY_WITHIN.as_secs());
        report.judge(
            "all Ready, from the first applied",
            format!("{:.0} s", took.as_secs_f64()),
            &limit,
            took < READY_WITHIN,
        );
        report.tell("operator, CPU for that", format!("{:.1} s", usage.cpu_seconds - cpu));
        report.tell("operator, peak of memory by then", format!("{:.0} MB", usage.peak_mib * MB_A_MIB));
        report.tell("writes to the API server for that", listed(&counts.writes));
        report.tell("changes on the broker for that", listed(&counts.changes()));
        Ok(())
    }

    fn apply_all(&self, began: Instant) -> Result<()> {
        let numbers: Vec<u32> = (0..self.topics).collect();
        let lists = numbers.chunks(TOPICS_A_LIST).map(|some| {
            let items: Vec<_> = some.iter().map(|number| topic(*number)).collect();
            serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items})
        });
        let lists: Vec<serde_json::Value> = lists.collect();
        for (round, some) in lists.chunks(APPLIED_AT_ONCE).enumerate() {
            std::thread::scope(|scope| {
                let applied: Vec<_> = some.iter().map(|list| scope.spawn(|| self.api.apply(list))).collect();
                applied.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow!("an apply panicked"))?)
            })?;
            let done = ((round + 1) * APPLIED_AT_ONCE * TOPICS_A_LIST).min(numbers.len());
            progress(&format!("{done} Topics applied after {:.0} s", began.elapsed().as_secs_f64()));
        }
        Ok(())
    }

    /// Nobody changes anything.
    async fn quiet(&mut self, options: &Options, report: &mut Report) -> Result<()> {
        progress("waiting until the last changes have settled");
        sleep(SETTLES).await;
        let (before, used, began) = (self.counts().await?, self.operator.usage()?, Instant::now());
        let (mut left, mut most) = (options.quiet_seconds, used.resident_mib);
        while left > 0 {
            progress(&format!("quiet: {left} s to go"));
            let pause = left.min(60);
            sleep(Duration::from_secs(pause)).await;
            left -= pause;
            most = most.max(self.operator.usage()?.resident_mib);
        }
        let (counts, took) = (self.counts().await?.since(&before), began.elapsed().as_secs_f64());
        let usage = self.operator.usage()?;
        let what = |figure: &str| format!("{} s of quiet: {figure}", options.quiet_seconds);
        counts.judge(&what(""), report);
        let percent = 100.0 * (usage.cpu_seconds - used.cpu_seconds) / took;
        let limit = format!("< {CPU_PERCENT_BELOW} % of a core");
        report.judge(&what("operator, CPU"), format!("{percent:.2} %"), &limit, percent < CPU_PERCENT_BELOW);
        let memory = most * MB_A_MIB;
        let limit = format!("< {MEMORY_MB_BELOW} MB");
        report.judge(&what("operator, memory"), format!("{memory:.0} MB"), &limit, memory < MEMORY_MB_BELOW);
        report.tell(&what("requests to the broker"), listed(&counts.requests));
        Ok(())
    }

    /// One topic is changed by hand.
    async fn put_back(&mut self, report: &mut Report) -> Result<()> {
        let admin = Admin::connect(self.broker.address(), ClientConfig::default()).await?;
        let resource = ConfigResource::Topic(topic_name(self.topics / 2));
        let by_hand = vec![ConfigChange::Set { name: RETENTION.to_owned(), value: "1000".to_owned() }];
        let before = self.counts().await?;
        for (_, altered) in admin.incremental_alter_configs(&[(resource.clone(), by_hand)], false).await? {
            altered?;
        }
        let began = Instant::now();
        loop {
            let mut described = admin.describe_named_configs(std::slice::from_ref(&resource), &[RETENTION]).await?;
            let entries = described.remove(&resource).context("the topic was not described")??;
            if entries.iter().any(|entry| entry.value.as_deref() == Some(RETENTION_DECLARED)) {
                break;
            }
            ensure!(
                began.elapsed() < PUT_BACK_WITHIN * 3,
                "{RETENTION} stays as set by hand:\n{}",
                self.operator.log_tail()
            );
            sleep(Duration::from_millis(200)).await;
        }
        let took = began.elapsed();
        sleep(Duration::from_secs(10)).await;
        let counts = self.counts().await?.since(&before);
        let limit = format!("< {} s", PUT_BACK_WITHIN.as_secs());
        let value = format!("{:.0} s", took.as_secs_f64());
        report.judge("one topic changed by hand is as declared again", value, &limit, took < PUT_BACK_WITHIN);
        report.tell("writes to the API server for that", listed(&counts.writes));
        report.tell("changes on the broker for that, the one by hand among them", listed(&counts.changes()));
        Ok(())
    }

    /// Another operator takes over: it must find that nothing is to be done.
    async fn restarted(&mut self, options: &Options, report: &mut Report) -> Result<()> {
        progress("another operator takes over");
        self.operator.stop()?;
        let before = self.counts().await?;
        self.operator = Operator::start(&options.operator, self.api.kubeconfig(), self.broker.address())?;
        sleep(RESTARTED).await;
        let Usage { cpu_seconds, peak_mib, .. } = self.operator.usage()?;
        self.counts().await?.since(&before).judge("an operator started anew: ", report);
        report.tell("its CPU since", format!("{cpu_seconds:.1} s in {} s", RESTARTED.as_secs()));
        let memory = peak_mib * MB_A_MIB;
        let limit = format!("< {MEMORY_MB_BELOW} MB");
        report.judge("its peak of memory", format!("{memory:.0} MB"), &limit, memory < MEMORY_MB_BELOW);
        Ok(())
    }

    async fn deleted(&mut self, report: &mut Report) -> Result<()> {
        let (before, began) = (self.counts().await?, Instant::now());
        loop {
            // On a busy machine the API server may not be through with so many within its time, and goes on when it is asked again.
            if let Err(error) = self.api.delete_topics() {
                progress(&format!("{error:#}"));
            }
            let (_, left) = self.api.ready_topics()?;
            progress(&format!("{left} Topics are still there after {:.0} s", began.elapsed().as_secs_f64()));
            if left == 0 {
                break;
            }
            ensure!(began.elapsed() < GONE_WITHIN, "{left} Topics stay:\n{}", self.operator.log_tail());
            sleep(Duration::from_secs(2)).await;
        }
        let counts = self.counts().await?.since(&before);
        report.tell("all deleted, and gone", format!("{:.0} s", began.elapsed().as_secs_f64()));
        report.tell("changes on the broker for that", listed(&counts.changes()));
        let admin = Admin::connect(self.broker.address(), ClientConfig::default()).await?;
        let left = admin.list_topics().await?.keys().filter(|name| name.starts_with("t-")).count();
        report.judge("topics left on the broker", left.to_string(), "0", left == 0);
        Ok(())
    }
}

impl Counts {
    fn since(&self, before: &Self) -> Self {
        let less = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            let new = |(name, count): (&String, &u64)| (name.clone(), count - then.get(name).copied().unwrap_or(0));
            now.iter().map(new).filter(|(_, count)| *count > 0).collect()
        };
        Self { writes: less(&self.writes, &before.writes), requests: less(&self.requests, &before.requests) }
    }

    fn changes(&self) -> BTreeMap<String, u64> {
        let changes = self.requests.iter().filter(|(api, _)| CHANGES.contains(&api.as_str()));
        changes.map(|(api, count)| (api.clone(), *count)).collect()
    }

    /// There must be none.
    fn judge(&self, when: &str, report: &mut Report) {
        report.judge(&format!("{when}writes to the API server"), listed(&self.writes), "none", self.writes.is_empty());
        let changes = self.changes();
        report.judge(&format!("{when}changes on the broker"), listed(&changes), "none", changes.is_empty());
    }
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    let mut text = String::new();
    for (name, count) in counts {
        let _ = write!(text, "{}{name} {count}", if text.is_empty() { "" } else { ", " }); // writing to a string can't fail
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

fn topic_name(number: u32) -> String {
    format!("t-{number:05}")
}

fn topic(number: u32) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "forebay.dev/v1alpha1", "kind": "Topic",
        "metadata": {"name": topic_name(number), "namespace": "default"},
        "spec": {"clusterRef": {"name": "c"}, "partitions": 1, "config": {RETENTION: RETENTION_DECLARED}},
    })
}

fn progress(text: &str) {
    println!("── {text}");
}

fn http_get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("can't reach {address}"))?;
    // Of HTTP/1.0, so that the answer is one piece that ends with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn only_what_is_new_counts_and_only_changes_are_changes() {
        let before = Counts { writes: counts(&[("topics PATCH", 5)]), requests: counts(&[("Metadata", 1)]) };
        let now = Counts {
            writes: counts(&[("events POST", 2), ("topics PATCH", 5)]),
            requests: counts(&[("CreateTopics", 3), ("Metadata", 9)]),
        };
        let new = now.since(&before);
        assert_eq!(listed(&new.writes), "events POST 2");
        assert_eq!(listed(&new.requests), "CreateTopics 3, Metadata 8");
        assert_eq!(listed(&new.changes()), "CreateTopics 3");
        assert_eq!(listed(&now.since(&now).writes), "none");
    }

    #[test]
    fn a_write_in_the_quiet_fails_the_run() {
        let mut report = Report::default();
        Counts::default().judge("quiet: ", &mut report);
        assert!(report.passes());
        Counts { writes: counts(&[("topics/status APPLY", 1)]), ..Counts::default() }.judge("quiet: ", &mut report);
        assert!(!report.passes());
    }
}
