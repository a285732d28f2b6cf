//! `forebay broker`: the program `forebay-broker` inside this one, so that `up` needs no second executable.

use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;

use clap::Parser;
use forebay_broker_server::program::{self, Arguments};
use rustix::process::{Signal, getpid, kill_process};

use crate::up::FOLLOW_STDIN;

/// Runs the broker with its own arguments. With [`FOLLOW_STDIN`] before them it stops when its standard input ends, which is how
/// it learns that whoever started it is gone.
pub(crate) fn run(mut args: Vec<OsString>) -> ExitCode {
    if args.first().is_some_and(|first| first == FOLLOW_STDIN) {
        args.remove(0);
        std::thread::spawn(stop_when_stdin_ends);
    }
    let arguments = Arguments::parse_from(std::iter::once(OsString::from("forebay broker")).chain(args));
    match program::main(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebay broker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn stop_when_stdin_ends() {
    let mut nothing = [0; 64];
    let mut stdin = std::io::stdin();
    while stdin.read(&mut nothing).is_ok_and(|bytes| bytes > 0) {}
    // The same clean stop as by anybody else's SIGTERM.
    if let Err(error) = kill_process(getpid(), Signal::TERM) {
        eprintln!("can't stop after whoever started this broker: {error}");
    }
}
