//! Any bytes as record batches, their records read within a limit.

#![no_main]

use bytes::Bytes;
use forebay_broker_wire::records::batches;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for batch in batches(&Bytes::copy_from_slice(input)).flatten() {
        if let Ok(records) = batch.records(1 << 20) {
            records.for_each(drop);
        }
    }
});
