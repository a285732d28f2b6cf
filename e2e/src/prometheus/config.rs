//! From the chart's PodMonitor and ServiceMonitor to a Prometheus configuration, as the Prometheus operator makes it:
//! the labels that dashboards and alerts rely on come from those objects and from nowhere else.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::config::Kubeconfig;
use serde_json::{Map, Value, json};

/// The file of what is to be scraped, in the same folder as the configuration.
pub(super) const TARGETS: &str = "targets.json";

/// A PodMonitor or ServiceMonitor of the chart, with the port that its endpoint's name stands for.
#[derive(Debug)]
pub struct Monitor {
    /// The object as the chart renders it.
    pub object: Value,
    /// The container port.
    pub port: u16,
}

impl Monitor {
    fn endpoint(&self) -> &Value {
        let spec = &self.object["spec"];
        if spec["podMetricsEndpoints"].is_array() { &spec["podMetricsEndpoints"][0] } else { &spec["endpoints"][0] }
    }

    /// What the Prometheus operator adds by itself, then the monitor's own relabelings.
    fn relabelings(&self) -> Result<Vec<Value>> {
        let mut rules = Vec::new();
        let selector = self.object["spec"]["selector"]["matchLabels"].as_object().context("no matchLabels")?;
        for (label, value) in selector {
            rules.push(json!({"action": "keep", "source_labels": [label_name(label)], "regex": value}));
        }
        let port_name = &self.endpoint()["port"];
        let of_port = ["__meta_kubernetes_pod_container_port_name"];
        rules.push(json!({"action": "keep", "source_labels": of_port, "regex": port_name}));
        for (source, target) in [("namespace", "namespace"), ("pod_name", "pod"), ("pod_container_name", "container")] {
            rules.push(json!({"source_labels": [format!("__meta_kubernetes_{source}")], "target_label": target}));
        }
        let job_label = self.object["spec"]["jobLabel"].as_str().context("no jobLabel")?;
        rules.push(json!({"source_labels": [label_name(job_label)], "target_label": "job"}));
        for rule in self.endpoint()["relabelings"].as_array().into_iter().flatten() {
            rules.push(json!({"source_labels": rule["sourceLabels"], "target_label": rule["targetLabel"]}));
        }
        Ok(rules)
    }
}

/// The whole configuration. Certificates are written into `folder`.
///
/// # Errors
/// When the kubeconfig holds no client certificate.
pub fn render(monitors: &[Monitor], folder: &Path) -> Result<String> {
    let access = Access::read(folder)?;
    let jobs: Result<Vec<Value>> = monitors.iter().map(|monitor| scrape(monitor, &access, folder)).collect();
    let config = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "2s"},
        "rule_files": [folder.join("rules.yaml")],
        "scrape_configs": jobs?,
    });
    serde_yaml_ng::to_string(&config).context("cannot write the configuration")
}

fn scrape(monitor: &Monitor, access: &Access, folder: &Path) -> Result<Value> {
    let mut rules = monitor.relabelings()?;
    let path = monitor.endpoint()["path"].as_str().context("no path")?;
    // Through the API server: pods have no address that is reached from everywhere.
    rules.push(json!({
        "source_labels": ["namespace", "pod"], "separator": "/", "regex": "(.+)/(.+)", "target_label": "__metrics_path__",
        "replacement": format!("/api/v1/namespaces/$1/pods/$2:{}/proxy{path}", monitor.port),
    }));
    rules.push(json!({"target_label": "__address__", "replacement": access.server}));
    Ok(json!({
        "job_name": monitor.object["metadata"]["name"],
        "scheme": "https",
        "honor_labels": monitor.endpoint()["honorLabels"].as_bool().unwrap_or(false),
        "tls_config": access.tls,
        "file_sd_configs": [{"files": [folder.join(TARGETS)], "refresh_interval": "1s"}],
        "relabel_configs": rules,
    }))
}

/// What Prometheus calls a pod's label before relabelling.
fn label_name(label: &str) -> String {
    format!("__meta_kubernetes_pod_label_{}", label.replace(['.', '/', '-'], "_"))
}

/// The ports of some pods as Prometheus' own discovery would find them. Debian's Prometheus is built without it.
pub(super) fn targets(pods: &[Pod]) -> Vec<Value> {
    let mut targets = Vec::new();
    for pod in pods {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        for container in containers {
            for port in container.ports.iter().flatten() {
                let mut labels: Map<String, Value> =
                    pod.labels().iter().map(|(name, value)| (label_name(name), json!(value))).collect();
                labels.insert("__meta_kubernetes_namespace".to_owned(), json!(pod.namespace()));
                labels.insert("__meta_kubernetes_pod_name".to_owned(), json!(pod.name_any()));
                labels.insert("__meta_kubernetes_pod_container_name".to_owned(), json!(container.name));
                labels.insert("__meta_kubernetes_pod_container_port_name".to_owned(), json!(port.name));
                let address = format!("{}:{}", pod.name_any(), port.container_port);
                targets.push(json!({"targets": [address], "labels": labels}));
            }
        }
    }
    targets
}

/// How the API server is reached.
struct Access {
    server: String,
    tls: Value,
}

impl Access {
    fn read(folder: &Path) -> Result<Self> {
        let config = serde_json::to_value(Kubeconfig::read()?)?;
        let context = &config["current-context"];
        let named = |list: &str, name: &Value| -> Value {
            let all = config[list].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|one| one["name"] == *name).unwrap_or_default()
        };
        let context = named("contexts", context)["context"].clone();
        let cluster = named("clusters", &context["cluster"])["cluster"].clone();
        let user = named("users", &context["user"])["user"].clone();
        let file = |from: &Value, key: &str| -> Result<String> {
            let path = folder.join(key);
            let data: ByteString = serde_json::from_value(from[key].clone())
                .with_context(|| format!("the kubeconfig has no {key}: a client certificate is needed"))?;
            std::fs::write(&path, data.0)?;
            Ok(path.display().to_string())
        };
        let server = cluster["server"].as_str().context("the kubeconfig names no server")?;
        Ok(Self {
            server: server.trim_start_matches("https://").trim_end_matches('/').to_owned(),
            tls: json!({
                "ca_file": file(&cluster, "certificate-authority-data")?,
                "cert_file": file(&user, "client-certificate-data")?,
                "key_file": file(&user, "client-key-data")?,
            }),
        })
    }
}
