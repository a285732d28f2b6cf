//! Tests of the encodings: what is written is read back, and what is wrong is named.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn written(write: impl FnOnce(&mut Encoder)) -> Decoder {
    let mut encoder = Encoder::new();
    write(&mut encoder);
    Decoder::new(encoder.into_bytes().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn varints_come_back(unsigned in any::<u32>(), signed in any::<i32>(), long in any::<i64>()) {
        let mut decoder = written(|e| {
            e.uvarint(unsigned);
            e.varint(signed);
            e.varlong(long);
        });
        prop_assert_eq!(decoder.uvarint("a"), Ok(unsigned));
        prop_assert_eq!(decoder.varint("b"), Ok(signed));
        prop_assert_eq!(decoder.varlong("c"), Ok(long));
        prop_assert_eq!(decoder.remaining(), 0);
    }

    #[test]
    fn text_comes_back_in_both_generations(text in ".{0,50}", flexible in any::<bool>()) {
        let mut decoder = written(|e| {
            e.string(flexible, "a", &text).unwrap();
            e.string_opt(flexible, "b", None).unwrap();
        });
        prop_assert_eq!(decoder.string(flexible, "a").unwrap(), text);
        prop_assert_eq!(decoder.string_opt(flexible, "b"), Ok(None));
        prop_assert_eq!(decoder.remaining(), 0);
    }
}

#[test]
fn a_varint_longer_than_its_type_is_refused() {
    let too_long = |bytes: &'static [u8]| Decoder::new(Bytes::from_static(bytes)).uvarint("n");
    let refused = Err(DecodeError { field: "n", kind: DecodeErrorKind::VarintTooLong(5) });
    assert_eq!(too_long(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
    assert_eq!(too_long(&[0xff, 0xff, 0xff, 0xff, 0x1f]), refused);
    assert_eq!(too_long(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), refused);
}

#[test]
fn a_count_that_the_frame_cannot_hold_allocates_nothing() {
    // 54 million elements announced in eight bytes.
    let mut decoder = Decoder::new(Bytes::from_static(&[0x03, 0x3c, 0x0c, 0x00, 0xb6, 0, 0, 0]));
    let refused = decoder.array(false, "topics", 2, |d| d.i16("topic")).unwrap_err();
    assert_eq!(refused.to_string(), "topics: counts 54266880 elements, 4 remaining bytes can't hold them");
}

#[test]
fn errors_name_the_field() {
    let mut decoder = Decoder::new(Bytes::from_static(&[0, 9, b'x']));
    assert_eq!(decoder.string(false, "Request.name").unwrap_err().to_string(), "Request.name: needs 9 bytes, 1 remain");
    let mut decoder = Decoder::new(Bytes::from_static(&[0xff, 0xff]));
    assert_eq!(decoder.string(false, "a").unwrap_err().kind, DecodeErrorKind::Null);
    let mut decoder = Decoder::new(Bytes::from_static(&[0xff, 0xfe]));
    assert_eq!(decoder.string(false, "a").unwrap_err().kind, DecodeErrorKind::InvalidLength(-2));
}

#[test]
fn unknown_tagged_fields_are_skipped_and_known_ones_must_end() {
    let mut decoder = Decoder::new(Bytes::from_static(&[2, 7, 3, 1, 2, 3, 0, 1, 5, 99]));
    let mut seen = 0;
    let read = decoder.tagged("s", |tag, value| {
        if tag == 0 {
            seen = value.u8("s.known")?;
        }
        Ok(tag == 0)
    });
    assert_eq!((read, seen, decoder.remaining()), (Ok(()), 5, 1));
    let mut decoder = Decoder::new(Bytes::from_static(&[1, 0, 2, 5, 5]));
    let refused = decoder.tagged("s", |_, value| value.u8("s.known").map(|_| true)).unwrap_err();
    assert_eq!(refused, DecodeError { field: "s", kind: DecodeErrorKind::Trailing(1) });
}

#[test]
fn regions_and_long_records_come_out_as_parts_in_order() {
    let long = Bytes::from(vec![7; 10_000]);
    let mut encoder = Encoder::new();
    encoder.i8(1);
    encoder.records(false, "r", &Records::Region { token: 9, length: 100 }).unwrap();
    encoder.records(true, "r", &Records::Bytes(long.clone())).unwrap();
    encoder.records(false, "r", &Records::Bytes(Bytes::from_static(b"short"))).unwrap();
    let total = encoder.len();
    let parts = encoder.finish();
    assert_eq!(parts.iter().map(Part::len).sum::<usize>(), total);
    assert_eq!(
        parts,
        [
            Part::Bytes(Bytes::from_static(&[1, 0, 0, 0, 100])),
            Part::Region { token: 9, length: 100 },
            Part::Bytes(Bytes::from_static(&[0x91, 0x4e])),
            Part::Bytes(long),
            Part::Bytes(Bytes::from_static(&[0, 0, 0, 5, b's', b'h', b'o', b'r', b't'])),
        ]
    );
}

#[test]
fn text_that_no_length_prefix_can_say_is_refused() {
    let text = "x".repeat(32_768);
    for flexible in [false, true] {
        let refused = Encoder::new().string(flexible, "name", &text).unwrap_err();
        assert_eq!(refused, EncodeError::TooLong { field: "name", length: 32_768, most: 32_767 });
    }
    let mut longer = written(|e| e.bytes(true, "name", text.as_bytes()).unwrap());
    assert_eq!(longer.string(true, "name").unwrap_err().kind, DecodeErrorKind::InvalidLength(32_768));
}
