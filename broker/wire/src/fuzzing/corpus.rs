//! The golden files as the inputs that damage starts from.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::GzDecoder;
use thiserror::Error;

use super::AnyMessage;
use crate::messages::every::EVERY;

/// A message as it should be.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What it is.
    pub codec: AnyMessage,
    /// Its version.
    pub version: i16,
    /// Its bytes.
    pub bytes: Bytes,
}

/// All samples, always in the same order.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// Messages of every version.
    pub messages: Vec<Sample>,
    /// Record batches of every compression.
    pub batches: Vec<Bytes>,
}

/// Why there are no samples.
#[derive(Debug, Error)]
pub enum CorpusError {
    /// The files can't be read.
    #[error("golden files {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line is not one of a golden file's.
    #[error("golden line {0:?} is not a known message with its version and bytes")]
    Line(String),
}

impl Corpus {
    /// Reads the golden files of this source tree.
    pub fn load() -> Result<Self, CorpusError> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden");
        let listed = fs::read_dir(&dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        let mut files: Vec<PathBuf> = listed.map_err(|source| CorpusError::Read { path: dir, source })?;
        files.sort(); // so that a seed means the same everywhere
        let mut corpus = Self::default();
        for path in files {
            let mut text = String::new();
            let read = File::open(&path).and_then(|file| GzDecoder::new(file).read_to_string(&mut text));
            read.map_err(|source| CorpusError::Read { path, source })?;
            for line in text.lines() {
                corpus.add(line).ok_or_else(|| CorpusError::Line(line.chars().take(80).collect()))?;
            }
        }
        Ok(corpus)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["message", _, name, version, _, hex] => {
                let codec = EVERY.iter().find(|codec| codec.name == name)?.clone();
                self.messages.push(Sample { codec, version: version.parse().ok()?, bytes: unhex(hex)? });
            }
            ["batch", _, hex] => self.batches.push(unhex(hex)?),
            _ => {} // facts about the protocol
        }
        Some(())
    }
}

fn unhex(hex: &str) -> Option<Bytes> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
