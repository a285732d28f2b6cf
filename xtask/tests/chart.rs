//! What must hold of the chart and needs no helm to see: copies are fresh, every value is described, every alert has its
//! page, and the operator's rights stay small.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this file is a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_yaml_ng::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().to_string()).collect()
}

#[test]
fn the_charts_crds_are_those_of_the_types() {
    assert_eq!(names("charts/forebay/files/crds"), names("crds/yaml"));
    for name in names("crds/yaml") {
        let (copy, original) = (read(&format!("charts/forebay/files/crds/{name}")), read(&format!("crds/yaml/{name}")));
        assert!(copy == original, "charts/forebay/files/crds/{name} is stale: UPDATE=1 cargo test -p forebay-crds");
        assert!(
            original.matches("\nmetadata:\n").count() == 1,
            "{name}: the chart adds its annotation after this line"
        );
    }
}

#[test]
fn the_chart_has_the_workspaces_version() {
    let chart = yaml("charts/forebay/Chart.yaml");
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"), "images are tagged with it");
}

#[test]
fn every_value_is_in_the_schema_and_the_other_way_round() {
    fn compare(path: &str, values: &Value, schema: &serde_json::Value) {
        let (Some(values), Some(properties)) = (values.as_mapping(), schema["properties"].as_object()) else { return };
        let names: BTreeSet<&str> = values.keys().filter_map(Value::as_str).collect();
        let described: BTreeSet<&str> = properties.keys().map(String::as_str).filter(|key| *key != "global").collect();
        assert_eq!(names, described, "at {path:?} in values.yaml and values.schema.json");
        for (key, value) in values {
            let key = key.as_str().unwrap();
            compare(&format!("{path}.{key}"), value, &properties[key]);
        }
    }
    let schema: serde_json::Value = serde_json::from_str(&read("charts/forebay/values.schema.json")).unwrap();
    compare("", &yaml("charts/forebay/values.yaml"), &schema);
}

#[test]
fn every_alert_has_a_page_that_says_what_to_do() {
    let alerts = yaml("charts/forebay/files/alerts.yaml");
    let rules = alerts["groups"].as_sequence().unwrap().iter().flat_map(|group| group["rules"].as_sequence().unwrap());
    let rules: Vec<&Value> = rules.collect();
    let named: BTreeSet<String> = rules.iter().map(|rule| format!("{}.md", rule["alert"].as_str().unwrap())).collect();
    assert_eq!(names("docs/runbooks"), named);
    for rule in rules {
        let alert = rule["alert"].as_str().unwrap();
        let page = read(&format!("docs/runbooks/{alert}.md"));
        assert!(page.starts_with(&format!("# {alert}\n")) && page.contains("\n1. "), "{alert}: steps are missing");
        assert!(rule["annotations"]["summary"].is_string() && rule["labels"]["severity"].is_string(), "{alert}");
    }
}

#[test]
fn every_alert_links_its_page_and_has_a_test_in_which_it_fires() {
    let tests = read("charts/forebay/tests/alerts.yaml");
    for line in read("charts/forebay/files/alerts.yaml").lines().filter(|line| line.contains("- alert: ")) {
        let alert = line.rsplit(' ').next().unwrap();
        let page = format!("runbook_url: <runbookUrl>/{alert}.md\n");
        assert!(read("charts/forebay/files/alerts.yaml").contains(&page), "{alert}: annotations lack {page}");
        let fires = format!("alertname=\"{alert}\"");
        assert!(tests.contains(&fires), "{alert}: add a test in which it fires to charts/forebay/tests/alerts.yaml");
    }
}

#[test]
fn the_operator_may_not_read_secrets_nor_do_anything_unnamed() {
    let rules = yaml("charts/forebay/files/rules.yaml");
    for rule in rules.as_sequence().unwrap() {
        let text = serde_yaml_ng::to_string(rule).unwrap();
        for never in ["*", "secrets", "nodes", "pods/exec", "roles", "deletecollection"] {
            assert!(!text.contains(never), "{never} in {text}");
        }
    }
}

#[test]
fn of_nodes_and_volumes_the_operator_may_only_get_those_that_it_knows_by_name() {
    let rules = yaml("charts/forebay/files/node-rules.yaml");
    let expected = "- apiGroups: [\"\"]\n  resources: [nodes, persistentvolumes]\n  verbs: [get]\n";
    assert_eq!(rules, serde_yaml_ng::from_str::<Value>(expected).unwrap());
}

#[test]
fn dashboards_ask_no_other_data_source_and_can_be_narrowed() {
    let mut titles = BTreeSet::new();
    for name in names("charts/forebay/dashboards") {
        let dashboard: serde_json::Value =
            serde_json::from_str(&read(&format!("charts/forebay/dashboards/{name}"))).unwrap();
        assert!(titles.insert(dashboard["uid"].as_str().unwrap().to_owned()), "{name}: its uid is taken");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let variables: Vec<&str> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
        assert_eq!(variables[0], "datasource", "{name}");
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(ids.insert(panel["id"].as_i64().unwrap()), "{name}: {title}: its id is taken");
            assert!(panel["type"] == "row" || panel["targets"].is_array(), "{name}: {title} asks nothing");
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}: {title}");
                let of_operator = ["forebay_operator_", "job=\"forebay-operator\""];
                let of_operator = of_operator.iter().any(|word| expression.contains(word));
                assert!(expression.contains("cluster=~\"$cluster\"") || of_operator, "{name}: {title}: {expression}");
                for variable in ["namespace", "cluster", "topic", "group"] {
                    let used = expression.contains(&format!("\"${variable}\""));
                    assert!(!used || variables.contains(&variable), "{name}: {title} uses ${variable}");
                }
            }
        }
    }
    assert!(titles.len() >= 5, "{titles:?}");
}

#[test]
fn what_dashboards_and_alerts_ask_for_is_in_the_catalogues() {
    let catalogues = read("docs/reference/metrics.md") + &read("docs/reference/operator-metrics.md");
    let mut asked = read("charts/forebay/files/alerts.yaml");
    for name in names("charts/forebay/dashboards") {
        asked.push_str(&read(&format!("charts/forebay/dashboards/{name}")));
    }
    let words = asked.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: BTreeSet<&str> = words
        .filter(|word| ["forebay_", "kafka_", "process_"].iter().any(|prefix| word.starts_with(prefix)))
        .filter(|word| !word.ends_with('_'))
        .collect();
    assert!(metrics.len() > 30, "{metrics:?}");
    for metric in metrics {
        let base =
            ["_bucket", "_count", "_sum"].iter().find_map(|suffix| metric.strip_suffix(suffix)).unwrap_or(metric);
        assert!(catalogues.contains(&format!("| `{base}` |")), "{metric} is in neither catalogue of docs/reference");
    }
}
