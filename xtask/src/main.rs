//! The project's own commands: `cargo xtask up`, `test`, `lint`, `tidy`.
//!
//! Each command is one file. Nothing here is linked into the product; what `dray` itself can do is asked of the `dray`
//! binary, so that these commands see what a user sees.

mod lint;
mod needs;
mod shell;
mod test;
mod tidy;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds Dray, starts it on this machine and imports a part of a real trace.
    Up(up::Args),
    /// Runs all tests.
    Test(test::Args),
    /// Checks format, clippy, the architecture and dependencies.
    Lint,
    /// Checks the architecture only: who may depend on what, and what each file must have.
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Lint => lint::run(),
        Command::Tidy => tidy::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
