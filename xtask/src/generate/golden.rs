//! `broker/wire/testdata/golden`: what Apache Kafka's own code writes, one compressed file of lines per API. The Java program beside
//! the wire crate produces it; here it runs, and its lines are sorted into files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::emit::snake;
use super::kafka;
use super::spec::{Kind, Spec};
use crate::run::workspace_root;

const FOLDER: &str = "broker/wire/testdata/golden";
const ORACLE: &str = "broker/wire/oracle/Oracle.java";

/// Writes the files, or compares them with what is there.
pub(super) fn generate(check: bool) -> Result<()> {
    let specs = Spec::read_all(&kafka::specs()?)?;
    let files = sorted(&oracle(&specs)?)?;
    let dir = workspace_root().join(FOLDER);
    let mut stale: Vec<_> = files.iter().filter(|(name, lines)| read(&dir, name).as_ref() != Some(lines)).collect();
    stale.sort();
    if check {
        let names: Vec<_> = stale.iter().map(|(name, _)| name.as_str()).collect();
        ensure!(names.is_empty(), "not what `cargo xtask generate golden` writes: {}", names.join(", "));
        return Ok(());
    }
    // Files that stay are not written again, so that another compressor's output is no difference.
    fs::create_dir_all(&dir)?;
    for entry in fs::read_dir(&dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".gz"));
        if name.is_none_or(|name| !files.contains_key(name)) {
            fs::remove_file(path)?;
        }
    }
    for (name, lines) in &stale {
        let mut encoder = GzEncoder::new(fs::File::create(dir.join(format!("{name}.gz")))?, Compression::best());
        encoder.write_all(lines.as_bytes())?;
        encoder.finish()?;
    }
    println!("{} files, {} changed", files.len(), stale.len());
    Ok(())
}

fn oracle(specs: &BTreeMap<String, Spec>) -> Result<String> {
    let data = specs
        .values()
        .filter(|spec| matches!(spec.kind, Kind::Data | Kind::CoordinatorKey | Kind::CoordinatorValue))
        .map(|spec| spec.name.as_str());
    let output = Command::new("java")
        .arg("-cp")
        .arg(kafka::class_path()?)
        .arg(workspace_root().join(ORACLE))
        .args(data)
        .output()
        .context("run java: a Java development kit is needed to generate")?;
    if !output.status.success() {
        bail!("{ORACLE}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A line's first words say where it belongs.
fn sorted(lines: &str) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::<String, String>::new();
    for line in lines.lines() {
        let mut words = line.split(' ');
        let file = match (words.next(), words.next()) {
            (Some("message"), Some(group)) => snake(group),
            (Some("batch"), _) => "batches".to_owned(),
            (Some("key" | "error" | "api" | "header"), _) => "protocol".to_owned(),
            _ => bail!("the oracle's line {line:?} is not known"),
        };
        let content = files.entry(file).or_default();
        content.push_str(line);
        content.push('\n');
    }
    Ok(files)
}

fn read(dir: &Path, name: &str) -> Option<String> {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(dir.join(format!("{name}.gz"))).ok()?).read_to_string(&mut text).ok()?;
    Some(text)
}
