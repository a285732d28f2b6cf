//! A real Prometheus that scrapes brokers and operator as the chart's monitors tell it to, through the API server's proxy,
//! so that it works wherever the cluster is.

pub mod config;
pub mod expression;

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// Until it answers.
const START_LIMIT: Duration = Duration::from_secs(30);
/// One query takes no longer.
const QUERY_LIMIT: Duration = Duration::from_secs(10);

/// A stretch of time, in seconds since 1970, and how far apart points on it are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Its first moment.
    pub start: f64,
    /// Its last moment.
    pub end: f64,
    /// From one point to the next.
    pub step: f64,
}

/// A Prometheus while it runs; it ends when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    address: String,
    folder: TempDir,
    process: Child,
}

impl Prometheus {
    /// Starts Debian's Prometheus on a free port with a configuration made by [`config`] and rules to evaluate.
    ///
    /// # Errors
    /// When it is not installed or the configuration cannot be written.
    pub async fn start(scrape: &[config::Monitor], rules: &Value) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("rules.yaml"), serde_json::to_vec(rules)?)?;
        let text = config::render(scrape, folder.path())?;
        std::fs::write(folder.path().join("prometheus.yaml"), text)?;
        let free = TcpListener::bind("127.0.0.1:0").await?;
        let address = free.local_addr()?.to_string();
        drop(free);
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.path().join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("log"))?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start prometheus: is it installed?")?;
        let mut started = Self { address, folder, process };
        started.until_ready().await?;
        Ok(started)
    }

    async fn until_ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while self.query("vector(1)").await.is_err() {
            let ended = self.process.try_wait()?;
            if ended.is_some() || begin.elapsed() > START_LIMIT {
                bail!("Prometheus does not start ({ended:?}):\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Tells it the pods of brokers and operator that are there now.
    ///
    /// # Errors
    /// When the API server does not list them.
    pub async fn discover(&self, client: &Client) -> Result<()> {
        let parameters = ListParams::default().labels("app.kubernetes.io/part-of=forebay");
        let pods = Api::<Pod>::all(client.clone()).list(&parameters).await?;
        // Renamed into place, so that it is never read half written.
        let written = self.folder.path().join("targets.part");
        std::fs::write(&written, serde_json::to_vec(&config::targets(&pods.items))?)?;
        Ok(std::fs::rename(written, self.folder.path().join(config::TARGETS))?)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The series of an instant query, each with its labels and value.
    ///
    /// # Errors
    /// When Prometheus does not answer or refuses the query.
    pub async fn query(&self, expression: &str) -> Result<Vec<(Value, f64)>> {
        let answer = self.get(&format!("/api/v1/query?query={}", percent_encoded(expression))).await?;
        let data = &answer["data"];
        if data["resultType"] == "scalar" {
            return Ok(vec![(Value::Null, number(&data["result"])?)]);
        }
        let series = data["result"].as_array().with_context(|| format!("no result for {expression}: {answer}"))?;
        series.iter().map(|one| Ok((one["metric"].clone(), number(&one["value"])?))).collect()
    }

    /// The series of a query over a time, each with its labels and its points; values that are no numbers are left out.
    ///
    /// # Errors
    /// When Prometheus does not answer or refuses the query.
    pub async fn query_range(&self, expression: &str, range: Range) -> Result<Vec<(Value, Vec<(f64, f64)>)>> {
        let Range { start, end, step } = range;
        let query = percent_encoded(expression);
        let path = format!("/api/v1/query_range?query={query}&start={start:.3}&end={end:.3}&step={step:.3}");
        let answer = self.get(&path).await?;
        let series = answer["data"]["result"].as_array();
        let series = series.with_context(|| format!("no result for {expression}: {answer}"))?.iter().map(|one| {
            let samples = one["values"].as_array().into_iter().flatten();
            let points =
                samples.map(|sample| Ok((sample[0].as_f64().context("a sample without a time")?, number(sample)?)));
            let points: Result<Vec<(f64, f64)>> = points.collect();
            Ok((one["metric"].clone(), points?.into_iter().filter(|(_, value)| value.is_finite()).collect()))
        });
        series.collect()
    }

    /// The alerting rules as Prometheus has loaded them.
    ///
    /// # Errors
    /// When Prometheus does not answer.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let answer = self.get("/api/v1/rules").await?;
        let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
        Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let exchange = async {
            let mut stream = TcpStream::connect(&self.address).await?;
            // Of HTTP/1.0, so that the answer is one piece that ends with the connection.
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            anyhow::Ok(String::from_utf8(answer)?)
        };
        let answer = tokio::time::timeout(QUERY_LIMIT, exchange).await.context("Prometheus does not answer")??;
        let (head, body) = answer.split_once("\r\n\r\n").context("Prometheus did not speak HTTP")?;
        let value: Value = serde_json::from_str(body).with_context(|| format!("{path}: {head}"))?;
        if value["status"] != "success" {
            bail!("{path}: {}", value["error"]);
        }
        Ok(value)
    }
}

/// A sample is a pair of time and value, the value as text.
fn number(sample: &Value) -> Result<f64> {
    let text = sample[1].as_str().with_context(|| format!("{sample} is no sample"))?;
    text.parse().with_context(|| format!("{text:?} is no number"))
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
