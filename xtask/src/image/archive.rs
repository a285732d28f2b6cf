//! Tar files of an image: its layer, and the docker archive that docker, kind and containerd load.
//!
//! What must hold: the order is given or sorted, nothing is dated, owners are numbers: equal content, equal bytes.

use std::fmt::Write as _;
use std::io::Read as _;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// A file or folder of a layer, named without a leading slash.
pub(super) struct Entry {
    name: String,
    mode: u32,
    owner: u64,
    /// `None` for a folder.
    content: Option<Vec<u8>>,
}

impl Entry {
    pub(super) fn file(name: &str, mode: u32, content: Vec<u8>) -> Self {
        Self { name: name.to_string(), mode, owner: 0, content: Some(content) }
    }

    pub(super) fn folder(name: &str, mode: u32, owner: u64) -> Self {
        Self { name: format!("{name}/"), mode, owner, content: None }
    }
}

/// The SHA-256 of some bytes in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// One layer with these entries, sorted by name, so that a folder comes before what is in it.
pub(super) fn layer(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut builder = Builder::new(Vec::new());
    for entry in sorted {
        append(&mut builder, entry)?;
    }
    builder.into_inner().context("cannot end the layer")
}

/// A docker archive of one image with one layer.
pub(super) fn docker_archive(tag: &str, config: &[u8], layer: Vec<u8>) -> Result<Vec<u8>> {
    let config_name = format!("{}.json", digest(config));
    let layer_name = format!("{}/layer.tar", digest(&layer));
    let manifest = serde_json::json!([{ "Config": config_name, "RepoTags": [tag], "Layers": [layer_name] }]);
    let mut builder = Builder::new(Vec::new());
    for (name, content) in
        [(config_name, config.to_vec()), (layer_name, layer), ("manifest.json".into(), serde_json::to_vec(&manifest)?)]
    {
        append(&mut builder, &Entry::file(&name, 0o644, content))?;
    }
    builder.into_inner().context("cannot end the archive")
}

/// A docker archive's image under another tag, which is a label of it too: with another digest.
pub(super) fn renamed(archive: &[u8], tag: &str) -> Result<Vec<u8>> {
    let (mut config, mut layer) = (None, None);
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).with_context(|| format!("cannot read {name}"))?;
        match name.as_str() {
            "manifest.json" => {}
            name if name.ends_with("/layer.tar") => layer = Some(content),
            _ => config = Some(content),
        }
    }
    let (config, layer) = config.zip(layer).context("it is no archive of one image with one layer")?;
    let mut config: serde_json::Value = serde_json::from_slice(&config)?;
    config["config"]["Labels"]["org.opencontainers.image.ref.name"] = tag.into();
    docker_archive(tag, &serde_json::to_vec(&config)?, layer)
}

fn append(builder: &mut Builder<Vec<u8>>, entry: &Entry) -> Result<()> {
    let content = entry.content.as_deref().unwrap_or_default();
    let mut header = Header::new_gnu();
    header.set_entry_type(if entry.content.is_some() { EntryType::Regular } else { EntryType::Directory });
    header.set_mode(entry.mode);
    header.set_uid(entry.owner);
    header.set_gid(entry.owner);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    builder.append_data(&mut header, &entry.name, content).with_context(|| format!("cannot pack {}", entry.name))
}
