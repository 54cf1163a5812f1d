//! The command line: client commands, `up`, and a command per service.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::client::{apply, audit, delete, describe, events, failure, gates, get, migrate, ready, submit, wait};
use crate::service::{AllocatorArgs, DatabaseServiceArgs, IngestArgs, NodeAgentArgs, SimDriverArgs};
use crate::{openb, service, up};

/// Dray gives devices to claims.
#[derive(Parser)]
#[command(name = "dray", version, about, disable_help_subcommand = true, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start everything on this machine: Postgres, NATS and the services.
    Up(up::Args),
    /// Create or replace objects from YAML or JSON.
    Apply(apply::Args),
    /// Submit claims from YAML as one unit that lands on one node.
    Submit(submit::Args),
    /// Wait until a unit or claim is allocated.
    Wait(wait::Args),
    /// Show objects.
    Get(get::Args),
    /// Tell one object's story: requests, devices, reasons, events.
    Describe(describe::Args),
    /// Delete objects; deleting a unit releases its devices.
    Delete(delete::Args),
    /// Show the event log.
    Events(events::Args),
    /// Show or switch feature gates.
    #[command(subcommand)]
    Gates(gates::Command),
    /// Prove the invariants from the database's tables.
    Audit(audit::Args),
    /// Bring the database's schema up to date; waits up to a minute for the database.
    Migrate(migrate::Args),
    /// Ask a service whether it is ready.
    Ready(ready::Args),
    /// Import a trace of a real cluster.
    #[command(subcommand)]
    Import(Import),
    /// Service: accepts submissions and serves the API.
    Ingest(IngestArgs),
    /// Service: decides which devices serve which unit.
    Allocator(AllocatorArgs),
    /// Service: relays events, follows up on releases, keeps the log short.
    Controller(DatabaseServiceArgs),
    /// Service: prepares devices on a node, or on a fleet of simulated ones.
    NodeAgent(NodeAgentArgs),
    /// A driver without devices, for demonstrations and tests: publishes a node's pool and prepares like a real one.
    SimDriver(SimDriverArgs),
}

#[derive(Subcommand)]
enum Import {
    /// The openb GPU cluster trace: nodes become pools, pods become claims for GPUs or parts of them.
    Openb(openb::Args),
}

/// Runs the command. Exit codes: 0 success, 1 failure, 2 wrong usage or settings.
pub(crate) fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Ingest(args) => service::run_ingest(args),
        Command::NodeAgent(args) => service::run_node_agent(args),
        Command::SimDriver(args) => service::run_sim_driver(args),
        Command::Allocator(args) => service::run_allocator(args),
        Command::Controller(args) => service::run_controller(args),
        Command::Up(args) => block_on(up::run(args)),
        Command::Apply(args) => block_on(apply::run(args)),
        Command::Submit(args) => block_on(submit::run(args)),
        Command::Wait(args) => block_on(wait::run(args)),
        Command::Get(args) => block_on(get::run(args)),
        Command::Describe(args) => block_on(describe::run(args)),
        Command::Delete(args) => block_on(delete::run(args)),
        Command::Events(args) => block_on(events::run(args)),
        Command::Gates(command) => block_on(gates::run(command)),
        Command::Audit(args) => block_on(audit::run(args)),
        Command::Migrate(args) => block_on(migrate::run(args)),
        Command::Ready(args) => block_on(ready::run(args)),
        Command::Import(Import::Openb(args)) => block_on(openb::run(args)),
    }
}

/// Runs a command that is not a service.
fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start a runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(command) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output had enough, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{}", failure::render(&error));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
