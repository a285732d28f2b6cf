//! The house rules that no compiler checks: which crate may use which, file lengths, a `//!` at every file's head, no
//! orphan file, no unfinished marks, links and paths in the documents that lead somewhere.
//!
//! Each message says what would be right. Plain text work on the files that git knows: no parser, no network.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a Rust file without its tests. Generated files are exempt.
const FILE_LINES_MAX: usize = 500;

/// The arrows between crates: each may use these of ours and no other. A new arrow needs an ADR.
const ARROWS: &[(&str, &[&str])] = &[
    ("forebay-crds", &["forebay-profile"]), // docs/adr/2026-11-30-the-api-asks-the-solver.md
    ("forebay-profile", &[]),
    ("forebay-broker-config", &[]),
    ("forebay-broker-wire", &[]),
    ("forebay-broker-storage", &["forebay-broker-wire"]),
    ("forebay-broker-machines", &["forebay-broker-wire"]),
    ("forebay-broker-partition", &["forebay-broker-wire", "forebay-broker-storage", "forebay-broker-machines"]),
    ("forebay-broker-client", &["forebay-broker-wire"]),
    (
        "forebay-broker-server",
        &[
            "forebay-broker-config",
            "forebay-broker-wire",
            "forebay-broker-storage",
            "forebay-broker-machines",
            "forebay-broker-partition",
            "forebay-broker-client",
        ],
    ),
    ("forebay-operator", &["forebay-crds", "forebay-profile", "forebay-broker-config", "forebay-broker-client"]),
    (
        "forebay-broker-sim",
        &["forebay-broker-wire", "forebay-broker-storage", "forebay-broker-machines", "forebay-broker-partition"],
    ),
    (
        "forebay-cli",
        &[
            "forebay-crds",
            "forebay-profile",
            "forebay-broker-config",
            "forebay-broker-client",
            "forebay-broker-wire",
            "forebay-broker-server", // docs/adr/2026-11-30-one-program-runs-brokers.md
        ],
    ),
    (
        "forebay-e2e",
        &["forebay-crds", "forebay-profile", "forebay-broker-client", "forebay-broker-config", "forebay-broker-wire"],
    ),
    ("forebay-e2e-faults", &["forebay-broker-client", "forebay-broker-wire"]),
    (
        "forebay-bench",
        // the last one for its network that can be cut
        &["forebay-broker-client", "forebay-broker-config", "forebay-broker-wire", "forebay-e2e-faults"],
    ),
    ("forebay-xtask", &["forebay-broker-wire", "forebay-broker-config"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every file that git tracks, relative to the root, that still exists.
fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output();
    let output = output.expect("git is needed to list the files");
    let names = String::from_utf8(output.stdout).unwrap();
    let mut all: Vec<_> = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    all.retain(|path| root().join(path).is_file());
    all
}

fn with_extension(extension: &str) -> Vec<(PathBuf, String)> {
    let wanted = files().into_iter().filter(|path| path.extension().is_some_and(|found| found == extension));
    wanted.filter_map(|path| std::fs::read_to_string(root().join(&path)).ok().map(|text| (path, text))).collect()
}

fn is_generated(text: &str) -> bool {
    text.lines().take(8).any(|line| line.starts_with("//") && line.to_lowercase().contains("generated"))
}

fn fail_with(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn crates_use_only_the_crates_they_may() {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, text) in with_extension("toml") {
        // Not ours to name: the fuzzer's own, and a crate that takes another's place.
        let others = ["fuzz", "base2histogram"];
        if !path.ends_with("Cargo.toml")
            || path == Path::new("Cargo.toml")
            || path.components().any(|part| others.iter().any(|other| part.as_os_str() == *other))
        {
            continue;
        }
        let manifest: toml::Table = text.parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap().to_string();
        let folder = path.parent().unwrap().to_string_lossy().replace('/', "-");
        if name != format!("forebay-{folder}") {
            problems
                .push(format!("{}: the crate of this folder is called forebay-{folder}, not {name}", path.display()));
        }
        if manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool) != Some(true) {
            problems.push(format!("{}: add `[lints] workspace = true`", path.display()));
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            problems.push(format!("{name} is not in ARROWS of {}: add it there", file!()));
            continue;
        };
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        for dependency in dependencies.into_iter().flat_map(toml::Table::keys).filter(|key| key.starts_with("forebay-"))
        {
            if !allowed.contains(&dependency.as_str()) {
                problems.push(format!("{name} may not use {dependency}: see ARROWS in {}", file!()));
            }
        }
        seen.insert(name);
    }
    for (name, _) in ARROWS.iter().filter(|(name, _)| !seen.contains(*name)) {
        problems.push(format!("{name} is in ARROWS but has no Cargo.toml"));
    }
    fail_with(&problems);
}

#[test]
fn rust_files_are_short_and_say_what_they_are_for() {
    let mut problems = Vec::new();
    for (path, text) in with_extension("rs") {
        if is_generated(&text) {
            continue;
        }
        if !text.starts_with("//!") {
            problems
                .push(format!("{}: begin with `//!`: what the file is for and what must always hold", path.display()));
        }
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        let body = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = body.lines().count();
        if !is_test && lines > FILE_LINES_MAX {
            problems.push(format!(
                "{}: {lines} lines without tests, at most {FILE_LINES_MAX}: split it by noun",
                path.display()
            ));
        }
    }
    fail_with(&problems);
}

#[test]
fn no_file_is_an_orphan() {
    let sources = with_extension("rs");
    let declared: BTreeSet<_> = sources.iter().flat_map(|(_, text)| declared_modules(text)).collect();
    let mut problems = Vec::new();
    for (path, _) in &sources {
        let stem = path.file_stem().unwrap().to_string_lossy().to_string();
        let folder = path.parent().unwrap();
        let targets = ["src", "tests", "benches", "bin", "examples", "fuzz_targets"];
        let is_target = targets.iter().any(|name| folder.ends_with(name))
            && (!folder.ends_with("src") || matches!(stem.as_str(), "lib" | "main"));
        let is_folder_target =
            stem == "main" && folder.parent().is_some_and(|up| targets.iter().any(|name| up.ends_with(name)));
        if is_target || is_folder_target || stem == "build" {
            continue;
        }
        let name = if stem == "mod" { folder.file_name().unwrap().to_string_lossy().to_string() } else { stem };
        let file_name = path.file_name().unwrap().to_string_lossy().to_string();
        if !declared.contains(&name) && !declared.contains(&file_name) {
            problems.push(format!("{}: no `mod {name};` anywhere: use the file or delete it", path.display()));
        }
    }
    fail_with(&problems);
}

/// The names in `mod name;` and the files in `#[path = "file.rs"]` of a source.
fn declared_modules(text: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let line = line.trim();
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            return path.rsplit('/').next().map(str::to_string);
        }
        let (before, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
        (before.is_empty() || before.starts_with("pub")).then(|| name.to_string())
    };
    text.lines().filter_map(of_line).collect()
}

#[test]
fn nothing_is_marked_unfinished() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("HA", "CK:")];
    let mut problems = Vec::new();
    for (path, text) in with_extension("rs") {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                problems.push(format!(
                    "{}:{}: finish it or file an issue: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
            if line.contains(concat!("#[", "ignore")) {
                problems.push(format!("{}:{}: a test that does not run is no test", path.display(), number + 1));
            }
        }
    }
    fail_with(&problems);
}

#[test]
fn links_and_paths_in_documents_lead_somewhere() {
    let mut problems = Vec::new();
    let first = |path: &PathBuf| path.iter().next().map(|part| part.to_string_lossy().into_owned());
    let top_level: BTreeSet<_> = files().iter().filter_map(first).collect();
    for (path, text) in with_extension("md") {
        let folder = root().join(path.parent().unwrap());
        for target in links(&text) {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !folder.join(target).exists() {
                problems.push(format!("{}: the link to {target} leads nowhere", path.display()));
            }
        }
        if ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].iter().any(|name| path == Path::new(name)) {
            for target in quoted_paths(&text, &top_level).into_iter().filter(|target| !exists_as_written(target)) {
                problems.push(format!("{}: there is no `{target}`", path.display()));
            }
        }
    }
    fail_with(&problems);
}

#[test]
fn decisions_are_named_by_their_date() {
    let dated = |name: &str| {
        name.len() > 14
            && name.as_bytes()[..10]
                .iter()
                .enumerate()
                .all(|(at, b)| if at == 4 || at == 7 { *b == b'-' } else { b.is_ascii_digit() })
    };
    let mut problems = Vec::new();
    for path in files().into_iter().filter(|path| path.starts_with("docs/adr")) {
        let name = path.file_name().unwrap().to_string_lossy().to_string();
        if !dated(&name) || !name.ends_with(".md") {
            problems.push(format!("{}: call it YYYY-MM-DD-what-was-decided.md", path.display()));
        }
    }
    fail_with(&problems);
}

/// The targets of `[text](target)`, outside code blocks.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.trim().to_string())
        .collect()
}

/// What is written as `path/with/slash` in backticks: a file or folder of this project.
fn quoted_paths(text: &str, top_level: &BTreeSet<String>) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect::<Vec<_>>().join("\n");
    let spans = prose.split('`').skip(1).step_by(2).map(str::to_string);
    let is_path = |span: &String| {
        let ours = span.split('/').next().is_some_and(|first| top_level.contains(first));
        ours && span.contains('/') && span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    };
    spans.filter(is_path).collect()
}

fn exists_as_written(path: &str) -> bool {
    path.starts_with("target/") || root().join(path).exists()
}
