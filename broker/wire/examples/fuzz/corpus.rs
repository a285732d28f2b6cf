//! The golden files as the inputs that damage starts from.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use flate2::read::GzDecoder;
use forebay_broker_wire::any_message::AnyMessage;
use forebay_broker_wire::messages::every::EVERY;

/// A message as it should be.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) codec: AnyMessage,
    pub(crate) version: i16,
    pub(crate) bytes: Bytes,
}

/// All inputs.
#[derive(Debug, Default)]
pub(crate) struct Corpus {
    pub(crate) messages: Vec<Sample>,
    pub(crate) batches: Vec<Bytes>,
}

impl Corpus {
    pub(crate) fn load() -> Result<Self> {
        let mut corpus = Self::default();
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden");
        let mut files = std::fs::read_dir(&dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.sort(); // so that a seed means the same everywhere
        for file in files {
            let mut text = String::new();
            GzDecoder::new(std::fs::File::open(&file)?).read_to_string(&mut text)?;
            text.lines().try_for_each(|line| corpus.add(line)).with_context(|| file.display().to_string())?;
        }
        ensure!(!corpus.messages.is_empty() && !corpus.batches.is_empty(), "{} has no samples", dir.display());
        Ok(corpus)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["message", _, name, version, _, hex] => {
                let codec =
                    EVERY.iter().find(|codec| codec.name == name).with_context(|| format!("no codec {name}"))?;
                self.messages.push(Sample { codec: codec.clone(), version: version.parse()?, bytes: unhex(hex)? });
            }
            ["batch", _, hex] => self.batches.push(unhex(hex)?),
            _ => {}
        }
        Ok(())
    }
}

fn unhex(hex: &str) -> Result<Bytes> {
    let digits = hex.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
    digits.collect::<Result<Vec<u8>>>().map(Bytes::from)
}
