//! The `dray` binary: one subcommand per service, `up` for all of them on one machine, and the client's commands.
//!
//! Only the command line and what belongs to a person at a terminal is here; the services are libraries.

mod cli;
mod client;
mod openb;
mod service;
mod up;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse())
}
