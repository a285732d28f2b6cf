//! Tests of the encodings.
