//! The API server that e2e/cluster brings up on free ports, without root and without nodes.
//!
//! What must hold: it goes when this program ends, whatever ends it. A guard process holds the other end of a pipe, which closes with
//! the last breath of this one.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// What does not go through the operator: an API server renews its own Lease.
const NOT_OURS: [&str; 1] = ["leases"];
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];

#[derive(Debug)]
pub(super) struct ApiServer {
    folder: TempDir,
    kubeconfig: PathBuf,
    /// kubectl, in the program that has all of Kubernetes.
    program: PathBuf,
    /// Takes it down when its standard input closes.
    guard: Child,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn script() -> PathBuf {
    root().join("e2e/cluster/cluster")
}

/// Ignores the signals that end a program in a terminal.
fn guard(folder: &Path) -> Result<Child> {
    let down =
        format!("trap '' INT TERM HUP; cat >/dev/null; exec '{}' api-down '{}'", script().display(), folder.display());
    let mut command = Command::new("bash");
    command.args(["-c", &down]).stdin(Stdio::piped()).process_group(0);
    command.spawn().context("can't start the API server's guard")
}

impl ApiServer {
    pub(super) fn up() -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        // Made first, so that what has started goes also when the rest does not come.
        let guard = guard(folder.path())?;
        let mut server = Self { folder, kubeconfig: PathBuf::new(), program: PathBuf::new(), guard };
        let mut up = Command::new(script());
        let output = up.arg("api-up").arg(server.folder.path()).stderr(Stdio::inherit()).output();
        let output = output.context("can't run e2e/cluster/cluster")?;
        ensure!(output.status.success(), "e2e/cluster/cluster api-up: {}", output.status);
        let printed = String::from_utf8(output.stdout).context("api-up did not print a path")?;
        server.kubeconfig = PathBuf::from(printed.trim());
        let built = std::fs::read_to_string(server.folder.path().join("kubernetes/bin"))?;
        server.program = Path::new(built.trim()).join("kube");
        Ok(server)
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["kubectl", "--kubeconfig"]).arg(&self.kubeconfig).args(arguments);
        command
    }

    fn printed(&self, arguments: &[&str]) -> Result<String> {
        let output = self.kubectl(arguments).output().context("can't run kubectl")?;
        let what = arguments.join(" ");
        ensure!(output.status.success(), "kubectl {what}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).with_context(|| format!("kubectl {what} did not print UTF-8"))
    }

    pub(super) fn install_crds(&self) -> Result<()> {
        let folder = root().join("crds/yaml").display().to_string();
        self.printed(&["apply", "--server-side", "-f", &folder])?;
        self.printed(&["wait", "--for", "condition=Established", "--timeout", "60s", "-f", &folder])?;
        Ok(())
    }

    pub(super) fn apply(&self, manifest: &Value) -> Result<()> {
        let mut command = self.kubectl(&["apply", "--server-side", "-f", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("can't run kubectl")?;
        let mut input = child.stdin.take().context("kubectl has no input")?;
        input.write_all(manifest.to_string().as_bytes())?;
        drop(input);
        let status = child.wait()?;
        if !status.success() {
            bail!("kubectl apply: {status}");
        }
        Ok(())
    }

    pub(super) fn delete_topics(&self) -> Result<()> {
        self.printed(&["delete", "--raw", "/apis/forebay.dev/v1alpha1/namespaces/default/topics"]).map(drop)
    }

    /// How many Topics are Ready as they are declared now, and how many there are.
    pub(super) fn ready_topics(&self) -> Result<(u32, u32)> {
        let fields = "-o=jsonpath={range .items[*]}{.metadata.generation} {.status.observedGeneration} \
                      {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
        let printed = self.printed(&["get", "topics.forebay.dev", "--namespace=default", fields])?;
        let (mut ready, mut all) = (0, 0);
        for line in printed.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            all += 1;
            ready += u32::from(matches!(fields[..], [wanted, seen, "True"] if wanted == seen));
        }
        Ok((ready, all))
    }

    /// Writes that it has taken so far from whoever it may be, by resource and verb.
    pub(super) fn writes(&self) -> Result<BTreeMap<String, u64>> {
        let metrics = self.printed(&["get", "--raw", "/metrics"])?;
        let mut writes = BTreeMap::new();
        for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\""))?;
                rest.split_once('"').map(|(value, _)| value)
            };
            let (resource, verb) = (label(",resource").unwrap_or_default(), label("verb").unwrap_or_default());
            if !WRITES.contains(&verb) || NOT_OURS.contains(&resource) {
                continue;
            }
            let sub = label("subresource").filter(|sub| !sub.is_empty()).map(|sub| format!("/{sub}"));
            let count: f64 = line.rsplit_once(' ').context("a metric without a value")?.1.parse()?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count = count as u64;
            *writes.entry(format!("{resource}{} {verb}", sub.unwrap_or_default())).or_default() += count;
        }
        Ok(writes)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // Nobody is left to tell.
        let _ = self.guard.wait();
    }
}
