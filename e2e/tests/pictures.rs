//! The pictures of docs/dashboards: a cluster of three brokers under load, one of them killed, one topic changed by hand, groups that
//! read, lag and catch up; then every panel of every dashboard, as Prometheus has it. `cargo xtask e2e --pictures` draws them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, Topic};
use forebay_e2e::dashboards::{Dashboard, draw};
use forebay_e2e::prometheus::config::Monitor;
use forebay_e2e::prometheus::{Prometheus, Range};
use forebay_e2e::{Pod, Story, chart, root, tell};
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::{Instant, sleep};

const MANIFESTS: &str = "
apiVersion: forebay.dev/v1alpha1
kind: Cluster
metadata: {name: shop}
spec:
  replicas: 3
  disks: [{name: data, size: 1Gi}]
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec:
  clusterRef: {name: shop}
  partitions: 3
  replicationFactor: 3
  config: {min.insync.replicas: 2, retention.ms: 3600000}
---
apiVersion: forebay.dev/v1alpha1
kind: Topic
metadata: {name: clicks}
spec:
  clusterRef: {name: shop}
  partitions: 2
  replicationFactor: 3
  config: {min.insync.replicas: 2}
";
const CLUSTER: &str = "shop";
/// What is drawn.
const SHOWN: Duration = Duration::from_secs(300);
/// From its beginning.
const KILLED_AFTER: Duration = Duration::from_secs(100);
const CHANGED_AFTER: Duration = Duration::from_secs(160);
const STOPPED_AFTER: Duration = Duration::from_secs(60);
const GOES_ON_AFTER: Duration = Duration::from_secs(200);
const STEP_SECONDS: f64 = 5.0;
/// A picture is looked at in a browser, and is in the repository.
const BYTES_MOST: usize = 300_000;

#[tokio::test]
async fn dashboards_are_drawn_from_what_a_real_cluster_did() -> Result<()> {
    tell("pictures", async |story| {
        story.apply(MANIFESTS).await?;
        let pod_monitor = chart::rendered("podmonitor", "podMonitor.enabled=true").await?;
        let service_monitor = chart::rendered("servicemonitor", "serviceMonitor.enabled=true").await?;
        let monitors = [Monitor { object: pod_monitor, port: 9644 }, Monitor { object: service_monitor, port: 8080 }];
        let prometheus = Prometheus::start(&monitors, &json!({"groups": []})).await?;
        story.expect_ready::<Cluster>(CLUSTER, 150).await?;
        for topic in ["orders", "clicks"] {
            story.expect_ready::<Topic>(topic, 60).await?;
        }
        prometheus.discover(&story.client).await?;
        let end = Instant::now() + SHOWN;
        let (orders, clicks, reports, events) = tokio::join!(
            produce_until(end, story, "orders", "4000", "400"),
            produce_until(end, story, "clicks", "10000", "120"),
            a_group_that_stops_and_goes_on(story),
            what_happens(story, &prometheus),
        );
        orders.and(clicks).and(reports).and(events)?;
        pictures(story, &prometheus).await
    })
    .await
}

fn bootstrap(story: &Story) -> String {
    story.kafka(CLUSTER).bootstrap()
}

/// One producer after the other.
async fn produce_until(end: Instant, story: &Story, topic: &str, count: &str, bytes: &str) -> Result<()> {
    let bootstrap = bootstrap(story);
    while Instant::now() < end {
        let options = ["--count", count, "--record-bytes", bytes, "--key-prefix", "key-", "--bootstrap", &bootstrap];
        Pod::forebay(&[&["produce", topic][..], &options].concat()).run(story, 120).await?;
    }
    Ok(())
}

fn consumer(bootstrap: &str, group: &str, topic: &str) -> Pod {
    Pod::forebay(&["consume", topic, "--group", group, "--follow", "--bootstrap", bootstrap])
}

/// `billing` and `search` read all the time; `reports` is away for a while and has to catch up.
async fn a_group_that_stops_and_goes_on(story: &Story) -> Result<()> {
    let bootstrap = bootstrap(story);
    consumer(&bootstrap, "billing", "orders").start(story).await?;
    consumer(&bootstrap, "search", "clicks").start(story).await?;
    let reports = consumer(&bootstrap, "reports", "orders");
    let first = reports.start(story).await?;
    sleep(STOPPED_AFTER).await;
    story.api::<KubePod>().delete(&first, &DeleteParams::default()).await?;
    story.step("the group reports is away");
    sleep(GOES_ON_AFTER - STOPPED_AFTER).await;
    reports.start(story).await?;
    story.step("the group reports goes on");
    Ok(())
}

/// A broker is killed, and comes back; a topic is changed by hand, and is put back.
async fn what_happens(story: &Story, prometheus: &Prometheus) -> Result<()> {
    sleep(KILLED_AFTER).await;
    let pods = story.api::<KubePod>();
    pods.delete("shop-broker-1", &DeleteParams::default().grace_period(0)).await?;
    story.step("broker 1 is killed");
    sleep(CHANGED_AFTER - KILLED_AFTER).await;
    prometheus.discover(&story.client).await?;
    let bootstrap = bootstrap(story);
    let alter = ["topic", "alter", "orders", "--set", "retention.ms=1000000", "--bootstrap-server", &bootstrap];
    Pod::forebay(&alter).run(story, 60).await?;
    story.step("retention.ms of orders is changed by hand");
    Ok(())
}

async fn pictures(story: &Story, prometheus: &Prometheus) -> Result<()> {
    let end = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let range = Range { start: end - SHOWN.as_secs_f64(), end, step: STEP_SECONDS };
    let folder = root().join("docs/dashboards");
    std::fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
    for dashboard in Dashboard::all()? {
        let variables = [
            ("__rate_interval", "20s"),
            ("namespace", &story.namespace),
            ("cluster", CLUSTER),
            ("topic", "orders|clicks"),
            ("group", ".*"),
            ("setting", "num.(io|network).threads"),
        ];
        let dashboard = dashboard.filled(&variables);
        let series = dashboard.ask(prometheus, range).await?;
        for (panel, series) in dashboard.panels.iter().zip(&series) {
            ensure!(panel.targets.is_empty() || !series.is_empty(), "{}: {} is empty", dashboard.title, panel.title);
        }
        let picture = draw(&dashboard, &series, range);
        ensure!(picture.len() < BYTES_MOST, "{} takes {} bytes", dashboard.name, picture.len());
        let path = folder.join(format!("{}.svg", dashboard.name));
        std::fs::write(&path, picture).with_context(|| format!("can't write {}", path.display()))?;
        story.step(&format!("drawn: {}", path.display()));
    }
    Ok(())
}
