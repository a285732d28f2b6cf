//! The wire's encodings: big-endian integers, varints, strings, arrays, tagged fields. `flexible` chooses between the protocol's two
//! generations of length prefixes: fixed-width, or a varint of the length plus one.

mod decoder;
mod encoder;
mod records_field;

pub use decoder::{DecodeError, DecodeErrorKind, Decoder};
pub use encoder::{EncodeError, Encoder, Part};
pub use records_field::Records;

#[cfg(test)]
mod tests;
