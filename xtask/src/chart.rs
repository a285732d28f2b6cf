//! `cargo xtask chart`: lints the chart, renders it and compares with the golden files, proves that what it must refuse is
//! refused, and lets each alert fire.
//!
//! Helm itself is built from Go modules by e2e/cluster on first use.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::e2e::tools;
use crate::run::{step, workspace_root};

/// Golden files: each shows one way to install. CRDs and dashboards are copies of files that are tested elsewhere.
const RENDERS: &[(&str, &str)] = &[
    ("default", ""),
    ("namespaced", "watchNamespaces={orders,billing},rbac.aggregate=false,rbac.nodes=false"),
    ("monitoring", "podMonitor.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true"),
    ("two-replicas", "replicas=2,podDisruptionBudget.enabled=true,networkPolicy.enabled=true"),
    ("no-election", "leaderElection.enabled=false"),
    ("node-settings", "nodeSettings.enabled=true,nodeSettings.allowed={swappiness,rmemMax}"),
    (
        "node-settings-namespaced",
        "nodeSettings.enabled=true,nodeSettings.allowed={maxMapCount},watchNamespaces={orders,billing},rbac.nodes=false",
    ),
];

/// Values that the schema refuses, and a word of why.
const REFUSED: &[(&str, &str)] = &[
    ("replica=2", "replica"),
    ("replicas=2,leaderElection.enabled=false", "maximum"),
    ("watchNamespaces={Orders}", "pattern"),
    ("prometheusRule.thresholds.diskFreeRatio=20", "exclusive"),
    ("nodeSettings.enabled=true", "minItems"),
    ("nodeSettings.allowed={somaxconn}", "must be one of"),
];

/// Options of `cargo xtask chart`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the golden files anew: the diff is the review.
    #[arg(long)]
    update: bool,
}

/// Lints and renders; the first difference ends it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let every_switch = "podMonitor.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true";
    step(
        "chart: lint",
        helm()
            .args(["lint", "--quiet", "--strict", "--kube-version", "1.34"])
            .arg(chart())
            .args(["--set", every_switch]),
    )?;
    for (name, values) in RENDERS {
        let rendered = render(&["--set", "crds.install=false,dashboards.enabled=false", "--set", values])?;
        compare(&chart().join("golden").join(format!("{name}.yaml")), &rendered, args.update)?;
    }
    for (values, why) in REFUSED {
        match render(&["--set", values]) {
            Ok(_) => bail!("the chart takes {values}: values.schema.json must refuse it"),
            Err(error) if format!("{error:#}").contains(why) => {}
            Err(error) => return Err(error.context(format!("{values} is refused, but not for its {why}"))),
        }
    }
    crds_are_kept()?;
    alerts_fire()?;
    println!("── chart: {} renders as committed, {} refusals", RENDERS.len(), REFUSED.len());
    Ok(())
}

/// What uninstalling must not delete says so, once per CRD, and is otherwise what the types give.
fn crds_are_kept() -> Result<()> {
    let rendered = render(&["--show-only", "templates/crds.yaml"])?;
    for entry in std::fs::read_dir(workspace_root().join("crds/yaml")).context("cannot list crds/yaml")? {
        let path = entry.context("cannot list crds/yaml")?.path();
        let original = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (head, rest) =
            original.split_once("\nmetadata:\n").with_context(|| format!("{} has no metadata", path.display()))?;
        let kept = format!("{head}\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n{}", rest.trim_end());
        if !rendered.contains(&kept) {
            bail!("the chart does not install {} with the policy keep", path.display());
        }
    }
    Ok(())
}

/// Runs tests/alerts.yaml with Prometheus' own promtool, against the alerts as the chart gives them.
fn alerts_fire() -> Result<()> {
    if let Err(error) = tools::install_packages(&["promtool"]) {
        println!("── chart: alerts: SKIPPED, promtool is not installed and can't be: {error:#}");
        return Ok(());
    }
    let rendered = render(&["--show-only", "templates/prometheusrule.yaml", "--set", "prometheusRule.enabled=true"])?;
    let object: serde_yaml_ng::Value = serde_yaml_ng::from_str(&rendered).context("the PrometheusRule is not YAML")?;
    let folder = workspace_root().join("target/chart");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::write(folder.join("rules.yaml"), serde_yaml_ng::to_string(&object["spec"])?)?;
    std::fs::copy(chart().join("tests/alerts.yaml"), folder.join("alerts.yaml"))?;
    let promtool = || {
        let mut command = Command::new("promtool");
        command.current_dir(&folder);
        command
    };
    step("chart: alerts are rules", promtool().args(["check", "rules", "rules.yaml"]))?;
    step("chart: alerts fire", promtool().args(["test", "rules", "alerts.yaml"]))
}

fn compare(golden: &Path, rendered: &str, update: bool) -> Result<()> {
    if update {
        std::fs::create_dir_all(golden.parent().unwrap_or(golden)).context("cannot make the folder of golden files")?;
        return std::fs::write(golden, rendered).with_context(|| format!("cannot write {}", golden.display()));
    }
    let committed = std::fs::read_to_string(golden).unwrap_or_default();
    if committed == rendered {
        return Ok(());
    }
    let line = committed.lines().zip(rendered.lines()).position(|(old, new)| old != new);
    let line = line.unwrap_or(committed.lines().count().min(rendered.lines().count()));
    bail!(
        "{} differs from what the chart gives at line {}:\n- {}\n+ {}\n`cargo xtask chart --update` writes it anew",
        golden.display(),
        line + 1,
        committed.lines().nth(line).unwrap_or_default(),
        rendered.lines().nth(line).unwrap_or_default()
    );
}

/// The chart as YAML, as an installation in namespace forebay-system would send it.
pub(crate) fn render(arguments: &[&str]) -> Result<String> {
    let mut command = helm();
    command.args(["template", "forebay"]).arg(chart());
    command.args(["--namespace", "forebay-system", "--kube-version", "1.34"]).args(arguments);
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("helm template {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("helm template did not print UTF-8")
}

/// The chart's folder.
pub(crate) fn chart() -> PathBuf {
    workspace_root().join("charts/forebay")
}

/// Helm, of the version that e2e/cluster pins.
pub(crate) fn helm() -> Command {
    let mut command = Command::new(workspace_root().join("e2e/cluster/cluster"));
    command.arg("helm");
    command
}
