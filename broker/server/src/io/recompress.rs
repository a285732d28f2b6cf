//! Stores batches the way the topic asks for (`compression.type`), whatever the producer sent.
//!
//! What must hold: records, offsets, timestamps and the producer's sequence stay as they were; batches that are stored that way
//! already are not touched; what cannot be read is passed on as it came, for the log to refuse it with its own reason.

use bytes::{Bytes, BytesMut};
use forebay_broker_wire::records::{Batch, BatchBuilder, Compression, batches};

/// The most that the records of one batch may come to when they are decompressed.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// The same batches, compressed by `wanted`.
pub(super) fn recompress(records: &Bytes, wanted: Compression) -> Bytes {
    let read: Result<Vec<Batch>, _> = batches(records).collect();
    let Ok(read) = read else { return records.clone() };
    if read.iter().all(|batch| batch.header.compression() == wanted) {
        return records.clone();
    }
    let mut stored = BytesMut::with_capacity(records.len());
    for batch in &read {
        match again(batch, wanted) {
            Some(bytes) => stored.extend_from_slice(&bytes),
            None => return records.clone(),
        }
    }
    stored.freeze()
}

fn again(batch: &Batch, wanted: Compression) -> Option<Bytes> {
    if batch.header.compression() == wanted {
        return Some(batch.bytes.clone());
    }
    // IMPORTANT: a new checksum must never be put over damaged records.
    batch.check_crc().ok()?;
    let mut builder = BatchBuilder::like(&batch.header).compression(wanted);
    for record in batch.records(DECOMPRESSED_BYTES_MAX).ok()? {
        builder.push_record(&record.ok()?).ok()?;
    }
    builder.build().ok()
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::records::NewRecord;
    use forebay_broker_wire::types::{ProducerEpoch, ProducerId};

    use super::*;

    fn batch(compression: Compression) -> Bytes {
        let mut builder =
            BatchBuilder::default().compression(compression).producer(ProducerId(7), ProducerEpoch(1), 40);
        for number in 0..5i64 {
            let value = "x".repeat(50);
            let headers: [(&[u8], Option<&[u8]>); 1] = [(b"h", None)];
            let record = NewRecord {
                timestamp_ms: 1000 + number,
                key: Some(b"key"),
                value: Some(value.as_bytes()),
                headers: &headers,
            };
            builder.push(&record).unwrap();
        }
        builder.build().unwrap()
    }

    fn only(bytes: Bytes) -> Batch {
        Batch::validate(bytes).unwrap()
    }

    #[test]
    fn every_pair_of_codecs_keeps_records_and_producer() {
        for from in Compression::ALL {
            for to in Compression::ALL {
                let (before, after) = (only(batch(from)), only(recompress(&batch(from), to)));
                assert_eq!(after.header.compression(), to);
                let records = |batch: &Batch| batch.records(1 << 20).unwrap().map(Result::unwrap).collect::<Vec<_>>();
                assert_eq!(records(&before), records(&after), "{from:?} to {to:?}");
                let told = |batch: &Batch| {
                    let header = &batch.header;
                    (header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp_ms)
                };
                assert_eq!(told(&before), told(&after));
            }
        }
    }

    #[test]
    fn a_damaged_batch_is_passed_on_damaged() {
        let mut bytes = batch(Compression::Lz4).to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let bytes = Bytes::from(bytes);
        assert_eq!(recompress(&bytes, Compression::Gzip), bytes);
    }

    #[test]
    fn what_is_stored_that_way_already_is_not_copied() {
        let bytes = batch(Compression::Zstd);
        assert_eq!(recompress(&bytes, Compression::Zstd).as_ptr(), bytes.as_ptr());
    }
}
