//! Programs that are not ours: installed from the distribution, and kcat packed as an image for client pods.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::work_folder;
use crate::image::host_program;
use crate::run::{cargo, step, workspace_root};

/// Installs the distribution's packages whose programs are missing; nothing when all are there.
pub(crate) fn install_packages(programs: &[&'static str]) -> Result<()> {
    let missing = programs.iter().filter(|program| find(program).is_err());
    let package = |program: &&'static str| match *program {
        "busybox" => "busybox-static",
        "promtool" => "prometheus",
        other => other,
    };
    let missing: Vec<&str> = missing.map(package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-o", "DPkg::Lock::Timeout=600", "-qq"]).args(arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    step("package lists", &mut apt(&["update"]))?;
    step("packages", apt(&["install", "--yes", "--no-install-recommends"]).args(missing))
}

/// The image `forebay.local/kcat:e2e`: the distribution's kcat with the libraries that it loads.
pub(super) fn pack_kcat() -> Result<PathBuf> {
    let program = find("kcat")?;
    let mut files = libraries(&program)?;
    files.insert(program.clone());
    let path = work_folder()?.join("kcat.tar");
    std::fs::write(&path, host_program("forebay.local/kcat:e2e", &program, &files)?)?;
    Ok(path)
}

/// The image `forebay.local/load:e2e`: the program of e2e/faults, for its load.
pub(super) fn pack_load() -> Result<PathBuf> {
    let build = ["build", "--quiet", "--package", "forebay-e2e-faults"];
    step("build the load", &mut cargo(&build))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), Into::into);
    let program = target.join("debug/forebay-e2e-faults");
    let mut files = libraries(&program)?;
    files.insert(program.clone());
    let path = work_folder()?.join("load.tar");
    std::fs::write(&path, host_program("forebay.local/load:e2e", &program, &files)?)?;
    Ok(path)
}

fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    candidates.find(|candidate| candidate.is_file()).with_context(|| format!("{program} is not installed"))
}

/// Every file that the loader maps for the program, the loader included.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    if !output.status.success() {
        bail!("ldd {}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}
