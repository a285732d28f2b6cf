//! Any bytes through any decoder: the first two choose message and version. What is read must be written and read again the same.

#![no_main]

use bytes::Bytes;
use forebay_broker_wire::messages::every::EVERY;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [message, version, body @ ..] = input else { return };
    let codec = &EVERY[usize::from(*message) % EVERY.len()];
    let versions = codec.versions.end() - codec.versions.start() + 1;
    let version = codec.versions.start() + i16::from(*version) % versions;
    let Ok(recoded) = (codec.recode)(Bytes::copy_from_slice(body), version) else { return };
    let written = recoded.encoded.expect("what was read can be written");
    let again = (codec.recode)(written.clone(), version).expect("what was written can be read");
    assert_eq!(again.encoded, Ok(written));
});
