//! The project's own commands: `cargo xtask up`, `test`, `lint`, `tidy`, `bench`, `chaos`, `conformance`, `differential`,
//! `compose-test`, `loadtest`.
//!
//! Each command is one file. Nothing here is linked into the product; what `dray` itself can do is asked of the `dray`
//! binary, so that these commands see what a user sees.

mod bench;
mod compose_test;
mod lint;
mod loadtest;
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
    /// Measures Dray beside its yardsticks.
    Bench(bench::Args),
    /// Kills services and servers while claims flow, then proves that nothing acknowledged was lost.
    Chaos(bench::Rest),
    /// Judges a file or folder of inputs with recorded results.
    Conformance(bench::Rest),
    /// Puts random inputs to our allocator and to the reference; every difference is a fault or a documented choice.
    Differential(bench::Rest),
    /// Starts docker-compose.yml with images made here, kills an allocator's container under load, audits.
    ComposeTest(compose_test::Args),
    /// Runs a k6 script of loadtest/ against a server.
    Loadtest(loadtest::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Lint => lint::run(),
        Command::Tidy => tidy::run(),
        Command::Bench(args) => bench::run(&args),
        Command::Chaos(rest) => bench::chaos(&rest),
        Command::Conformance(rest) => bench::conformance(&rest),
        Command::Differential(rest) => bench::differential(&rest),
        Command::ComposeTest(args) => compose_test::run(&args),
        Command::Loadtest(args) => loadtest::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
