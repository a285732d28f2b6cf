//! The command line: what can be asked, with what, and the defaults.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use forebay_broker_client::Compression;

/// No broker takes a larger request by default (`socket.request.max.bytes`).
const RECORD_BYTES_MAX: i64 = 100 << 20;

/// Runs Forebay's manifests without Kubernetes, and administers any Kafka cluster.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the manifests' cluster on this machine until Ctrl-C; data is kept.
    Up(UpArgs),
    /// Show the brokers that `up` runs.
    Status(StatusArgs),
    /// List, describe, create, alter and delete topics.
    Topic(TopicArgs),
    /// List, describe and delete consumer groups; reset their offsets.
    Group(GroupArgs),
    /// Solve consumer profiles, and list those that `up` has solved.
    Profile(ProfileArgs),
    /// Write lines from standard input, or records made up, to a topic.
    Produce(ProduceArgs),
    /// Write a topic's records to standard output.
    Consume(ConsumeArgs),
    /// Run one broker: the same program as `forebay-broker`.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Broker {
        /// What `forebay-broker` takes; see `forebay broker --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<std::ffi::OsString>,
    },
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// How to print.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, global = true)]
    pub(crate) format: Format,
}

/// What every command needs that asks a cluster.
#[derive(Debug, Args)]
pub(crate) struct Remote {
    /// Brokers to ask first: host:port, with commas between.
    #[arg(
        short,
        long,
        alias = "bootstrap-server",
        default_value = "127.0.0.1:9092",
        env = "FOREBAY_BOOTSTRAP",
        global = true
    )]
    pub(crate) bootstrap: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Files of manifests: one Cluster, with its Topics and ConsumerProfiles.
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Where everything is kept.
    #[arg(long, value_name = "DIR", default_value = "./forebay-data")]
    pub(crate) data: PathBuf,
    /// Kafka port of the first broker; the others follow.
    #[arg(long, default_value_t = 9092, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Metrics and status port of the first broker; the others follow.
    #[arg(long, default_value_t = 9644, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) http_port: u16,
    /// Port on which the first of several brokers listens to the others; theirs follow.
    #[arg(long, default_value_t = 9192, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) controller_port: u16,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The data folder of the `up` that is asked about.
    #[arg(long, value_name = "DIR", default_value = "./forebay-data")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct TopicArgs {
    #[command(flatten)]
    pub(crate) remote: Remote,
    #[command(subcommand)]
    pub(crate) command: TopicCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// All topics.
    List {
        /// Those of the brokers too.
        #[arg(long)]
        internal: bool,
    },
    /// Partitions and settings of topics.
    Describe {
        /// Topics.
        #[arg(required = true)]
        topics: Vec<String>,
    },
    /// Create a topic.
    Create {
        /// Its name.
        topic: String,
        /// Partitions; the brokers' default when left out.
        #[arg(short, long, default_value_t = -1, allow_negative_numbers = true)]
        partitions: i32,
        /// Replicas of each; the brokers' default when left out.
        #[arg(short, long, default_value_t = -1, allow_negative_numbers = true)]
        replication_factor: i16,
        /// A setting; may be given many times.
        #[arg(short, long = "config", value_name = "NAME=VALUE", value_parser = name_and_value)]
        config: Vec<(String, String)>,
        /// Succeed when it is there already, whatever it is like.
        #[arg(long)]
        if_not_exists: bool,
    },
    /// Add partitions, change settings.
    #[command(group(ArgGroup::new("changes").args(["partitions", "set", "unset"]).required(true).multiple(true)))]
    Alter {
        /// The topic.
        topic: String,
        /// Grow to so many partitions.
        #[arg(short, long)]
        partitions: Option<i32>,
        /// Set a setting; may be given many times.
        #[arg(short, long = "set", value_name = "NAME=VALUE", value_parser = name_and_value)]
        set: Vec<(String, String)>,
        /// Put a setting back to its default; may be given many times.
        #[arg(short, long = "unset", value_name = "NAME")]
        unset: Vec<String>,
    },
    /// Delete topics and their records.
    Delete {
        /// Topics.
        #[arg(required = true)]
        topics: Vec<String>,
        /// Succeed when one is not there.
        #[arg(long)]
        if_exists: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    #[command(flatten)]
    pub(crate) remote: Remote,
    #[command(subcommand)]
    pub(crate) command: GroupCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// All groups.
    List,
    /// Members, committed offsets and lag of groups.
    Describe {
        /// Groups.
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Delete groups that have no members, with their offsets.
    Delete {
        /// Groups.
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Move the offsets of a group that has no members.
    ResetOffsets {
        /// The group.
        group: String,
        /// A topic, or one of its partitions; may be given many times. All that the group has committed when left out.
        #[arg(short, long = "topic", value_name = "TOPIC[:PARTITION]")]
        topics: Vec<String>,
        #[command(flatten)]
        to: ResetTo,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Where to.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ResetTo {
    /// To the first record.
    #[arg(long)]
    pub(crate) to_earliest: bool,
    /// Behind the last record.
    #[arg(long)]
    pub(crate) to_latest: bool,
    /// To this offset, kept within what there is.
    #[arg(long, value_name = "OFFSET")]
    pub(crate) to_offset: Option<i64>,
    /// To the first record at or after this time, milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    pub(crate) to_timestamp: Option<i64>,
    /// By so many records, backwards if negative, kept within what there is.
    #[arg(long, value_name = "RECORDS", allow_negative_numbers = true)]
    pub(crate) shift_by: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) command: ProfileCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Compute client settings and verdicts of the profiles in manifests, without a cluster.
    Solve {
        /// Files of manifests.
        #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
        files: Vec<PathBuf>,
        /// Only the profile of this name.
        #[arg(long)]
        name: Option<String>,
    },
    /// The profiles that `up` has solved.
    List {
        /// The data folder of the `up` that is asked about.
        #[arg(long, value_name = "DIR", default_value = "./forebay-data")]
        data: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// The topic.
    pub(crate) topic: String,
    /// What separates key and value in a line; without it lines have no key.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "count")]
    pub(crate) key_separator: Option<String>,
    /// Make so many records instead of reading lines.
    #[arg(short = 'n', long, value_name = "RECORDS")]
    pub(crate) count: Option<u64>,
    /// Size of the values that are made.
    #[arg(long, value_name = "BYTES", default_value_t = 100, requires = "count", value_parser = clap::value_parser!(u32).range(..=RECORD_BYTES_MAX))]
    pub(crate) record_bytes: u32,
    /// Records that are made have this and their number as key.
    #[arg(long, value_name = "TEXT", requires = "count")]
    pub(crate) key_prefix: Option<String>,
    /// none, gzip, snappy, lz4 or zstd.
    #[arg(short = 'z', long, default_value = "none", value_parser = compression)]
    pub(crate) compression: Compression,
}

#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// The topic.
    pub(crate) topic: String,
    /// Read as a member of this group, from where it has committed, and commit what was printed.
    #[arg(short, long)]
    pub(crate) group: Option<String>,
    /// Consumer settings in Java's names, such as a ConsumerProfile's `java.properties`.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// End after so many records.
    #[arg(short = 'n', long, value_name = "RECORDS")]
    pub(crate) count: Option<u64>,
    /// Go on waiting for new records at the end of the partitions.
    #[arg(short = 'F', long)]
    pub(crate) follow: bool,
}

fn compression(text: &str) -> Result<Compression, String> {
    let known = Compression::ALL.into_iter().find(|c| c.name() == text);
    known.ok_or_else(|| "must be none, gzip, snappy, lz4 or zstd".to_owned())
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_bootstrap_and_output_may_come_after_the_subcommand() {
        let cli = Cli::try_parse_from(["forebay", "topic", "list", "-b", "host:1", "-o", "json"]).unwrap();
        let Command::Topic(topic) = cli.command else { panic!("not a topic command") };
        assert_eq!(topic.remote.bootstrap, "host:1");
        assert_eq!(topic.remote.output.format, Format::Json);
    }

    #[test]
    fn offsets_are_reset_to_exactly_one_place() {
        let parse =
            |more: &[&str]| Cli::try_parse_from([&["forebay", "group", "reset-offsets", "g"], more].concat()).is_ok();
        assert!(parse(&["--to-earliest"]));
        assert!(parse(&["--shift-by", "-5"]));
        assert!(!parse(&[]));
        assert!(!parse(&["--to-earliest", "--to-latest"]));
    }

    #[test]
    fn records_that_no_broker_takes_are_not_made() {
        let produce =
            |bytes: &str| Cli::try_parse_from(["forebay", "produce", "t", "-n", "1", "--record-bytes", bytes]).is_ok();
        assert!(produce("0") && produce("104857600"));
        assert!(!produce("104857601") && !produce("99999999999999") && !produce("-1"));
    }

    #[test]
    fn a_topic_is_not_altered_by_nothing() {
        let alter = |more: &[&str]| Cli::try_parse_from([&["forebay", "topic", "alter", "t"], more].concat());
        let error = alter(&[]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("Usage: forebay topic alter"), "{error}");
        assert!(alter(&["--set", "retention.ms=1", "--unset", "flush.ms"]).is_ok());
    }
}
