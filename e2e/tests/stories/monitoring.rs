//! A real Prometheus scrapes brokers and operator; every query of all dashboards and of the alerts has an answer, and the
//! lag of a stopped consumer is exact; alerts fire when what they are for is brought about.

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::dashboards::Dashboard;
use forebay_e2e::prometheus::config::Monitor;
use forebay_e2e::prometheus::{Prometheus, expression};
use forebay_e2e::{Pod, Story, chart, tell};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod as KubePod;
use serde_json::json;

/// Of three partitions one is written to: a group has no offset for the others. No node allows so many open files.
const MANIFESTS: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  replicas: 1
  disks: [{name: data, size: 1Gi}]
  ulimits: {nofile: 1073741000}
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: events}
spec:
  clusterRef: {name: c}
  partitions: 3
";
const PRODUCED: f64 = 1000.0;
const CONSUMED: f64 = 400.0;
/// A stopped consumer is too far behind after this.
const LAG_SECONDS: u32 = 5;

#[tokio::test]
async fn dashboards_and_alerts_have_series_and_lag_is_exact() -> Result<()> {
    tell("monitoring", async |story| {
        story.apply(MANIFESTS).await?;
        let prometheus = start().await?;
        story.expect_ready::<Cluster>("c", 90).await?;
        story.expect_ready::<Topic>("events", 30).await?;
        prometheus.discover(&story.client).await?;
        traffic(story).await?;

        let told = every_query_answers(story, &prometheus).await;
        if told.is_err() {
            println!("{}", prometheus.log());
        }
        told?;
        lag_is_exact(story, &prometheus).await?;
        alerts_fire(story, &prometheus).await
    })
    .await
}

/// Prometheus with the monitors and rules that the chart installs.
async fn start() -> Result<Prometheus> {
    let pod_monitor = chart::rendered("podmonitor", "podMonitor.enabled=true").await?;
    let service_monitor = chart::rendered("servicemonitor", "serviceMonitor.enabled=true").await?;
    let lag = format!("prometheusRule.enabled=true,prometheusRule.thresholds.consumerLagSeconds={LAG_SECONDS}");
    let mut rules = chart::rendered("prometheusrule", &lag).await?;
    for rule in rules["spec"]["groups"].as_array_mut().into_iter().flatten() {
        for rule in rule["rules"].as_array_mut().into_iter().flatten() {
            // A story has no quarter of an hour: what is to last for a while fires at once.
            rule.as_object_mut().context("no rule")?.remove("for");
        }
    }
    let monitors = [Monitor { object: pod_monitor, port: 9644 }, Monitor { object: service_monitor, port: 8080 }];
    Prometheus::start(&monitors, &rules["spec"]).await
}

/// Something of everything that is counted: produced, consumed in part, an error, a partition without an offset.
async fn traffic(story: &Story) -> Result<()> {
    let kafka = story.kafka("c");
    kafka.produce("events", 0..1000, Some(0)).await?;
    let bootstrap = kafka.bootstrap();
    let group = ["-b", &bootstrap, "-X", "auto.offset.reset=earliest", "-q", "-c", "400", "-G", "stopped", "events"];
    Pod::kcat(&group).run(story, 60).await?;
    let missing = ["-C", "-b", &bootstrap, "-t", "no-such-topic", "-e"];
    ensure!(Pod::kcat(&missing).run(story, 60).await.is_err(), "a topic that is not there cannot be read");
    Ok(())
}

async fn every_query_answers(story: &Story, prometheus: &Prometheus) -> Result<()> {
    let mut queries = Vec::new();
    for dashboard in Dashboard::all()? {
        let variables = [
            ("__rate_interval", "1m"),
            ("namespace", &story.namespace),
            ("cluster", "c"),
            ("topic", "events"),
            ("group", "stopped"),
            ("setting", "num.(io|network).threads"),
        ];
        for panel in dashboard.filled(&variables).panels {
            let asked = panel.targets.into_iter().map(|target| target.expression);
            queries.extend(asked.map(|query| (panel.title.clone(), query)));
        }
    }
    let rules = story.eventually("Prometheus has loaded the alerts", 30, async || {
        let rules = prometheus.rules().await?;
        ensure!(!rules.is_empty(), "no rule yet");
        Ok(rules)
    });
    for rule in rules.await? {
        let (alert, query) = (rule["name"].as_str().unwrap_or_default(), rule["query"].as_str().unwrap_or_default());
        ensure!(rule["lastError"].is_null(), "{alert}: {}", rule["lastError"]);
        queries.extend(expression::operands(query).into_iter().map(|part| (alert.to_owned(), part)));
    }
    let count = queries.len();
    story
        .eventually(&format!("all {count} queries of dashboards and alerts have series"), 90, async || {
            let mut empty = Vec::new();
            for (title, query) in &queries {
                if prometheus.query(query).await.with_context(|| title.clone())?.is_empty() {
                    empty.push(format!("{title}: {query}"));
                }
            }
            ensure!(empty.is_empty(), "{} without series:\n{}", empty.len(), empty.join("\n"));
            Ok(())
        })
        .await
}

/// Three ways to the same figure: what was read, what is committed, and what the broker says the lag is.
async fn lag_is_exact(story: &Story, prometheus: &Prometheus) -> Result<()> {
    let selector = format!("{{namespace=\"{}\", consumergroup=\"stopped\", topic=\"events\"}}", story.namespace);
    let sum = async |metric: &str| -> Result<f64> {
        let series = prometheus.query(&format!("sum({metric}{selector})")).await?;
        Ok(series.first().context("no series")?.1)
    };
    story
        .eventually("the lag of a stopped consumer is exact", 30, async || {
            let (lag, committed) =
                (sum("kafka_consumergroup_lag").await?, sum("kafka_consumergroup_current_offset").await?);
            ensure!((lag, committed) == (PRODUCED - CONSUMED, CONSUMED), "lag {lag}, committed {committed}");
            ensure!(sum("forebay_consumergroup_no_offset").await? == 2.0, "two partitions have no offset");
            Ok(())
        })
        .await
}

/// The stopped consumer, the limit that no node gives, and a cluster that loses its only broker, and with it every series of it.
async fn alerts_fire(story: &Story, prometheus: &Prometheus) -> Result<()> {
    for alert in ["ForebayConsumerLagTooLarge", "ForebayTuningNotInForce"] {
        fires(story, prometheus, alert).await?;
    }
    story.merge::<Cluster>("c", json!({"spec": {"paused": true}})).await?;
    story
        .expect("c", "the operator has seen that the Cluster is paused", 30, |cluster: &Cluster| {
            let seen = cluster.status.as_ref().and_then(|status| status.observed_generation);
            ensure!(seen == cluster.metadata.generation, "it has seen generation {seen:?}");
            Ok(())
        })
        .await?;
    story.merge::<StatefulSet>("c-broker", json!({"spec": {"replicas": 0}})).await?;
    story.expect_gone::<KubePod>("c-broker-0", 60).await?;
    prometheus.discover(&story.client).await?;
    fires(story, prometheus, "ForebayBrokerDown").await
}

async fn fires(story: &Story, prometheus: &Prometheus, alert: &str) -> Result<()> {
    let firing = format!("ALERTS{{alertstate=\"firing\", alertname=\"{alert}\", namespace=\"{}\"}}", story.namespace);
    story
        .eventually(&format!("{alert} fires"), 60, async || {
            ensure!(!prometheus.query(&firing).await?.is_empty(), "it does not");
            Ok(())
        })
        .await
}
