//! What tests and fuzzers share: every message by name, the golden files as samples, damage. Behind the feature `fuzzing`; no program
//! that users get has it.

mod any_message;
mod corpus;
mod mutate;

pub use any_message::{AnyMessage, Recoded};
pub use corpus::{Corpus, CorpusError, Sample};
pub use mutate::{Random, mutate, with_right_length_and_crc};
