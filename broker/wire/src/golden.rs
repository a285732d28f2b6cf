//! The golden files compared with what this crate does: every message of every version, default and random, must be read whole and
//! written back byte for byte as Apache Kafka's own code wrote it. `cargo xtask generate golden` makes the files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::frame::{request_header_version, response_header_version};
use crate::messages::{api_info, every::EVERY};
use crate::primitives::{DecodeErrorKind, Decoder, Encoder};
use crate::records::{Batch, BatchHeader, Record, TimestampType, batches};
use crate::types::{ApiKey, ErrorCode, Offset};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden")
}

fn lines(file: &Path) -> Vec<Vec<String>> {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// The lines that start with this word, without it.
fn all(word: &str) -> Vec<Vec<String>> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let lines = files.flat_map(|file| lines(&file));
    let found: Vec<_> = lines.filter(|line| line[0] == word).map(|line| line[1..].to_vec()).collect();
    assert!(!found.is_empty(), "no golden lines {word}");
    found
}

fn unhex(hex: &str) -> Bytes {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

#[test]
fn every_message_is_read_and_written_as_kafka_does() {
    let mut seen = BTreeSet::new();
    for line in all("message") {
        let [_group, name, version, fixture, hex] = &line[..] else { panic!("{line:?}") };
        let version: i16 = version.parse().unwrap();
        let codec = EVERY.iter().find(|codec| codec.name == name).unwrap_or_else(|| panic!("{name} has no codec"));
        let golden = unhex(hex);
        let recoded = (codec.recode)(golden.clone(), version);
        let recoded = recoded.unwrap_or_else(|error| panic!("{name} v{version} {fixture}: {error}"));
        assert_eq!(recoded.trailing_bytes, 0, "{name} v{version} {fixture}");
        assert_eq!(recoded.encoded.as_ref(), Ok(&golden), "{name} v{version} {fixture}");
        if fixture == "default" {
            assert_eq!((codec.default)(version), Ok(golden), "{name} v{version}: our default is another");
        }
        seen.insert((codec.name, version));
    }
    let ours = EVERY.iter().flat_map(|codec| codec.versions.clone().map(|version| (codec.name, version)));
    assert_eq!(seen, ours.collect(), "golden files have the same messages and versions");
}

#[test]
fn every_message_cut_short_is_refused_by_field() {
    for line in all("message").iter().filter(|line| line[3] == "random0") {
        let [_group, name, version, _fixture, hex] = &line[..] else { panic!("{line:?}") };
        let version: i16 = version.parse().unwrap();
        let codec = EVERY.iter().find(|codec| codec.name == name).unwrap();
        let golden = unhex(hex);
        for length in 0..golden.len() {
            let refused = (codec.recode)(golden.slice(..length), version).unwrap_err();
            assert!(
                matches!(refused.kind, DecodeErrorKind::TooShort { .. } | DecodeErrorKind::TooMany { .. }),
                "{name} v{version} cut to {length}: {refused}"
            );
        }
    }
}

#[test]
fn api_versions_are_kafkas() {
    let mut seen = 0;
    for line in all("api") {
        let [name, min, settled, max] = &line[..] else { panic!("{line:?}") };
        let key = ApiKey::ALL.iter().find(|key| key.name() == name).unwrap();
        let api = api_info(*key).unwrap();
        let ours = [api.min, api.max, api.max_unstable].map(|version| version.to_string());
        assert_eq!(ours, [min.clone(), settled.clone(), max.clone()], "{name}");
        seen += 1;
    }
    assert_eq!(seen, crate::messages::APIS.len());
}

#[test]
fn header_versions_are_kafkas() {
    for line in all("header") {
        let [name, version, request, response] = &line[..] else { panic!("{line:?}") };
        let api = api_info(*ApiKey::ALL.iter().find(|key| key.name() == name).unwrap()).unwrap();
        let version = version.parse().unwrap();
        assert_eq!(request_header_version(api, version).to_string(), *request, "{name} v{version}");
        assert_eq!(response_header_version(api, version).to_string(), *response, "{name} v{version}");
    }
}

#[test]
fn api_keys_and_error_codes_are_kafkas() {
    let keys: Vec<_> = ApiKey::ALL.iter().map(|key| vec![key.as_i16().to_string(), key.name().to_owned()]).collect();
    assert_eq!(all("key"), keys);
    let errors = ErrorCode::ALL
        .iter()
        .map(|error| vec![error.code().to_string(), error.name().to_owned(), error.is_retriable().to_string()]);
    assert_eq!(all("error"), errors.collect::<Vec<_>>());
    assert!(ErrorCode::ALL.iter().all(|error| ErrorCode::from_code(error.code()) == *error));
    assert!(ApiKey::ALL.iter().all(|key| ApiKey::from_i16(key.as_i16()) == Some(*key)));
}

fn golden_batch(label: &str) -> Batch {
    let line = all("batch").into_iter().find(|line| line[0] == label).unwrap();
    let mut all = batches(&unhex(&line[1]));
    let batch = all.next().unwrap().unwrap();
    assert_eq!(all.next(), None);
    batch.check_crc().unwrap();
    batch
}

fn records(batch: &Batch) -> Vec<Record> {
    batch.records(1 << 20).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn batches_of_every_compression_are_read_as_kafka_wrote_them() {
    for label in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let batch = golden_batch(label);
        assert_eq!(batch.header.compression().name(), label);
        assert_eq!(batch.header.base_offset, Offset(1000));
        assert_eq!(batch.header.partition_leader_epoch.0, 5);
        assert_eq!(batch.header.max_timestamp_ms, 1_700_000_000_007);
        let records = records(&batch);
        assert_eq!(records.len(), 3, "{label}");
        assert_eq!(records[0].key.as_deref(), Some(&b"key"[..]));
        assert_eq!(records[0].headers[0].key, "trace");
        assert_eq!(records[0].headers[0].value.as_deref(), Some(&b"abc"[..]));
        assert_eq!(records[0].headers[1].value, None);
        assert_eq!(records[1].value.as_ref().unwrap(), &vec![b'x'; 100_000]);
        assert_eq!((records[2].offset, records[2].timestamp_ms), (Offset(1002), 1_700_000_000_003));
        assert_eq!(records[2].value, None);
    }
}

#[test]
fn an_uncompressed_batch_is_built_as_kafka_does() {
    let golden = golden_batch("none");
    let mut builder = crate::records::BatchBuilder::new(Offset(1000)).leader_epoch(crate::types::LeaderEpoch(5));
    for record in records(&golden) {
        builder.push_record(&record).unwrap();
    }
    assert_eq!(builder.build().unwrap(), golden.bytes);
}

#[test]
fn transactions_and_markers_are_recognized() {
    let batch = golden_batch("transactional");
    assert!(batch.header.is_transactional() && !batch.header.is_control());
    assert_eq!((batch.header.producer_id.0, batch.header.producer_epoch.0, batch.header.base_sequence), (9, 3, 17));
    assert_eq!((batch.header.last_sequence(), batch.header.last_offset()), (18, Offset(43)));
    let marker = golden_batch("commit-marker");
    assert!(marker.header.is_transactional() && marker.header.is_control());
    assert_eq!(records(&marker)[0].key.as_deref(), Some(&[0, 0, 0, 1][..]));
    let appended = golden_batch("log-append-time");
    assert_eq!(appended.header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(records(&appended)[0].timestamp_ms, appended.header.max_timestamp_ms);
    assert_eq!(BatchHeader::parse(&appended.header.to_bytes()), Ok(appended.header));
}

#[test]
fn tagged_fields_from_the_future_are_skipped() {
    let mut encoder = Encoder::new();
    encoder.uvarint(2);
    encoder.tagged(0, |e| e.string_opt(true, "cluster_id", Some("c"))).unwrap();
    encoder.tagged(77, |e| e.bytes(true, "new", &[1, 2, 3])).unwrap();
    let tags = encoder.into_bytes().unwrap();
    let fetch = EVERY.iter().find(|codec| codec.name == "FetchRequest").unwrap();
    let plain = (fetch.default)(12).unwrap();
    let newer = Bytes::from([&plain[..plain.len() - 1], &tags[..]].concat());
    let recoded = (fetch.recode)(newer, 12).unwrap();
    assert_eq!(recoded.trailing_bytes, 0);
    let mut decoder = Decoder::new(recoded.encoded.unwrap());
    let request = <crate::messages::fetch::FetchRequest as crate::messages::Message>::decode(&mut decoder, 12).unwrap();
    assert_eq!(request.cluster_id.as_deref(), Some("c"));
}
