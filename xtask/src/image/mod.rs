//! `cargo xtask image`: the container images, built with no daemon and no base image.
//!
//! What must hold: an image holds one static program and what that program needs to run as nobody, and the same
//! program gives the same bytes (sorted, undated), so that a digest says whether anything changed.

mod archive;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::{cargo, step, workspace_root};
use archive::Entry;

/// Who runs in every image: nobody, by number so that Kubernetes can check that it is not root.
const USER_ID: u64 = 65532;

/// The folder of the archives.
const FOLDER: &str = "target/images";

/// Options of `cargo xtask image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which images.
    #[arg(value_enum, default_value = "all")]
    what: What,
}

/// The images, each one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// `forebay-broker`
    Broker,
    /// `forebay-operator`
    Operator,
    /// `forebay-cli`: `forebay`, for pods that look into a cluster or try it out
    Cli,
    /// All of them
    All,
}

/// One image: a program in an otherwise empty file system.
struct Image {
    name: &'static str,
    package: &'static str,
    program: &'static str,
    description: &'static str,
}

const BROKER: Image = Image {
    name: "forebay-broker",
    package: "forebay-broker-server",
    program: "forebay-broker",
    description: "Forebay's broker: one static binary that speaks the Kafka protocol",
};
const OPERATOR: Image = Image {
    name: "forebay-operator",
    package: "forebay-operator",
    program: "forebay-operator",
    description: "Forebay's operator for Kubernetes",
};
const CLI: Image = Image {
    name: "forebay-cli",
    package: "forebay-cli",
    program: "forebay",
    description: "Forebay's command line: topics, groups, profiles, produce and consume",
};

impl What {
    fn images(self) -> Vec<&'static Image> {
        match self {
            Self::Broker => vec![&BROKER],
            Self::Operator => vec![&OPERATOR],
            Self::Cli => vec![&CLI],
            Self::All => vec![&BROKER, &OPERATOR, &CLI],
        }
    }
}

/// Builds the images and says where they are and how large.
pub(crate) fn run(args: &Args) -> Result<()> {
    for path in build(args.what)? {
        println!("{}", path.display());
    }
    Ok(())
}

/// Builds the static programs and packs them: the archives, in the order of [`What`].
pub(crate) fn build(what: What) -> Result<Vec<PathBuf>> {
    let images = what.images();
    let programs = build_static(&images)?;
    let archives = archives(what);
    let folder = workspace_root().join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for ((image, program), path) in images.iter().zip(programs).zip(&archives) {
        let binary = std::fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
        require_static(&program, &binary)?;
        let packed = pack(image, binary)?;
        std::fs::write(path, &packed).with_context(|| format!("cannot write {}", path.display()))?;
        let tenths = packed.len() as u64 * 10 / (1 << 20);
        println!("── image {}: {}.{} MiB", tag(image), tenths / 10, tenths % 10);
    }
    Ok(archives)
}

/// Packs the archives that there are once more, under another tag and with another digest: the same programs, and to Kubernetes
/// another version.
pub(crate) fn again(what: What, tag: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let one = |(image, path): (&Image, PathBuf)| {
        let packed = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let renamed = archive::renamed(&packed, &format!("{}:{tag}", image.name))?;
        let path = folder.join(format!("{}-{tag}.tar", image.name));
        std::fs::write(&path, renamed).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    what.images().into_iter().zip(archives(what)).map(one).collect()
}

/// Where the archives are.
pub(crate) fn archives(what: What) -> Vec<PathBuf> {
    let folder = workspace_root().join(FOLDER);
    what.images().iter().map(|image| folder.join(format!("{}.tar", image.name))).collect()
}

/// The name by which Kubernetes and docker know the image: the chart's default has the same version.
fn tag(image: &Image) -> String {
    format!("{}:{}", image.name, env!("CARGO_PKG_VERSION"))
}

/// One cargo run for all, apart from the usual target folder: other flags would throw away what is built there.
fn build_static(images: &[&Image]) -> Result<Vec<PathBuf>> {
    // With `--target`, build scripts and proc macros are built without the flag, which they could not bear.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let folder = workspace_root().join("target/static");
    let mut command = cargo(&["build", "--release", "--locked", "--target", &target]);
    command.arg("--target-dir").arg(&folder).env("RUSTFLAGS", "-C target-feature=+crt-static");
    for image in images {
        command.args(["--package", image.package, "--bin", image.program]);
    }
    step("static programs", &mut command)?;
    Ok(images.iter().map(|image| folder.join(&target).join("release").join(image.program)).collect())
}

/// An image with nothing else in it has no loader either: a program that asks for one would not start.
fn require_static(path: &Path, binary: &[u8]) -> Result<()> {
    const PROGRAM_HEADER_INTERPRETER: u32 = 3;
    let read_u16 = |at: usize| binary.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes);
    let read_u32 = |at: usize| binary.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let read_u64 = |at: usize| binary.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    if !binary.starts_with(b"\x7fELF\x02\x01") {
        bail!("{} is no 64-bit little-endian ELF file", path.display());
    }
    let short = || format!("{} ends in the middle of its ELF header", path.display());
    let table = usize::try_from(read_u64(0x20).with_context(short)?)?;
    let (size, count) = (read_u16(0x36).with_context(short)?, read_u16(0x38).with_context(short)?);
    for index in 0..usize::from(count) {
        if read_u32(table + index * usize::from(size)).with_context(short)? == PROGRAM_HEADER_INTERPRETER {
            bail!("{} is dynamically linked: an image with nothing else in it cannot run it", path.display());
        }
    }
    Ok(())
}

/// An image of a program of this machine with its files, each at its own path: for tests with programs of others.
pub(crate) fn host_program(tag: &str, program: &Path, files: &BTreeSet<PathBuf>) -> Result<Vec<u8>> {
    let mut root = vec![Entry::folder("tmp", 0o1777, 0)];
    for path in files {
        let content = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix("/").unwrap_or(path);
        root.push(Entry::file(&name.display().to_string(), 0o755, content));
    }
    let layer = archive::layer(&root)?;
    let config = serde_json::json!({
        "architecture": docker_architecture(),
        "os": "linux",
        "config": { "User": format!("{USER_ID}:{USER_ID}"), "Entrypoint": [program] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", archive::digest(&layer))] },
    });
    archive::docker_archive(tag, &serde_json::to_vec(&config)?, layer)
}

fn pack(image: &Image, binary: Vec<u8>) -> Result<Vec<u8>> {
    let root = [
        Entry::file(image.program, 0o755, binary),
        Entry::folder("tmp", 0o1777, 0),
        Entry::folder("var", 0o755, 0),
        Entry::folder("var/lib", 0o755, 0),
        Entry::folder("var/lib/forebay", 0o755, USER_ID),
    ];
    let layer = archive::layer(&root)?;
    let config = serde_json::json!({
        "architecture": docker_architecture(),
        "os": "linux",
        "config": {
            "User": format!("{USER_ID}:{USER_ID}"),
            "Entrypoint": [format!("/{}", image.program)],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": image.name,
                "org.opencontainers.image.description": image.description,
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", archive::digest(&layer))] },
        "history": [{ "created_by": "cargo xtask image" }],
    });
    archive::docker_archive(&tag(image), &serde_json::to_vec(&config)?, layer)
}

fn docker_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn files_of(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut read = tar::Archive::new(archive);
        let entries = read.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0, "undated");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        });
        entries.collect()
    }

    #[test]
    fn the_same_program_gives_the_same_image() {
        let one = pack(&BROKER, b"program".to_vec()).unwrap();
        assert_eq!(one, pack(&BROKER, b"program".to_vec()).unwrap());
        assert_ne!(one, pack(&BROKER, b"another".to_vec()).unwrap());
    }

    #[test]
    fn the_archive_is_what_docker_and_containerd_load() {
        let files = files_of(&pack(&OPERATOR, b"program".to_vec()).unwrap());
        let of = |name: &str| files.iter().find(|(found, _)| found == name).map(|(_, bytes)| bytes.clone()).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&of("manifest.json")).unwrap();
        let tag = manifest[0]["RepoTags"][0].as_str().unwrap();
        assert_eq!(tag, format!("forebay-operator:{}", env!("CARGO_PKG_VERSION")));
        let config_name = manifest[0]["Config"].as_str().unwrap();
        let config_bytes = of(config_name);
        assert_eq!(config_name, format!("{}.json", archive::digest(&config_bytes)), "named by its content");
        let config: serde_json::Value = serde_json::from_slice(&config_bytes).unwrap();
        let layer = of(manifest[0]["Layers"][0].as_str().unwrap());
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", archive::digest(&layer)));
        assert_eq!(config["config"]["Entrypoint"][0], "/forebay-operator");
        assert_eq!(config["config"]["User"], "65532:65532", "a number: runAsNonRoot can be checked");
    }

    #[test]
    fn an_image_packed_again_is_another_one_with_the_same_program() {
        let packed = pack(&BROKER, b"program".to_vec()).unwrap();
        let again = archive::renamed(&packed, "forebay-broker:other").unwrap();
        let (before, after) = (files_of(&packed), files_of(&again));
        let layer = |files: &[(String, Vec<u8>)]| files.iter().find(|(name, _)| name.ends_with("layer.tar")).cloned();
        assert_eq!(layer(&before), layer(&after));
        let manifest = |files: &[(String, Vec<u8>)]| {
            let (_, bytes) = files.iter().find(|(name, _)| name == "manifest.json").unwrap();
            serde_json::from_slice::<serde_json::Value>(bytes).unwrap()[0].clone()
        };
        assert_eq!(manifest(&after)["RepoTags"][0], "forebay-broker:other");
        assert_ne!(manifest(&after)["Config"], manifest(&before)["Config"], "another digest");
    }

    #[test]
    fn a_layer_is_sorted_and_its_program_can_be_run() {
        let files = files_of(&pack(&BROKER, b"program".to_vec()).unwrap());
        let (_, layer) = files.iter().find(|(name, _)| name.ends_with("layer.tar")).unwrap();
        let names: Vec<String> = files_of(layer).into_iter().map(|(name, _)| name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(names, sorted);
        let mut read = tar::Archive::new(layer.as_slice());
        let mut programs =
            read.entries().unwrap().filter(|e| e.as_ref().unwrap().path().unwrap().ends_with("forebay-broker"));
        assert_eq!(programs.next().unwrap().unwrap().header().mode().unwrap(), 0o755);
    }

    #[test]
    fn a_dynamically_linked_program_is_refused() {
        let own = std::env::current_exe().unwrap();
        let error = require_static(&own, &std::fs::read(&own).unwrap()).unwrap_err().to_string();
        assert!(error.contains("dynamically linked"), "{error}");
        assert!(require_static(&own, b"#!/bin/sh").unwrap_err().to_string().contains("no 64-bit"));
        assert!(require_static(&own, b"\x7fELF\x02\x01").unwrap_err().to_string().contains("in the middle"));
    }

    #[test]
    fn the_dockerfiles_give_the_same_image() {
        for image in What::All.images() {
            let path = workspace_root().join(format!("docs/images/{}.Dockerfile", image.name));
            let text = std::fs::read_to_string(&path).unwrap();
            let program = image.program;
            assert!(text.contains("FROM scratch\n"), "{text}");
            assert!(text.contains(&format!("COPY {program} /{program}\n")), "{text}");
            assert!(text.contains(&format!("USER {USER_ID}:{USER_ID}\n")), "{text}");
            assert!(text.contains(&format!("ENTRYPOINT [\"/{program}\"]\n")), "{text}");
        }
    }
}
