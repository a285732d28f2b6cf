//! `cargo xtask generate`: what is written by a program and committed. Every generator has `--check`, which writes nothing and fails
//! where the committed files are not what it would write.

mod emit;
mod golden;
mod kafka;
mod messages;
mod spec;

use anyhow::Result;
use clap::Subcommand;

/// Which generator, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What Apache Kafka's own code writes, into broker/wire/testdata/golden; needs Maven and a Java development kit
    Golden {
        /// Write nothing; fail if the committed files differ
        #[arg(long)]
        check: bool,
    },
    /// The protocol's messages, into broker/wire/src/messages
    Messages {
        /// Write nothing; fail if the committed files differ
        #[arg(long)]
        check: bool,
    },
}

/// Runs one generator.
pub(crate) fn run(args: &Args) -> Result<()> {
    match args.what {
        What::Golden { check } => golden::generate(check),
        What::Messages { check } => messages::generate(check),
    }
}
