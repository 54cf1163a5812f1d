//! Measurements of Dray, each beside its own yardstick in the same run. Every bench prints a table and writes the same figures to
//! `target/bench/<name>.json`. Run them with `cargo xtask bench <name>`.

mod chaos;
mod cluster;
mod conformance;
mod core;
mod dice;
mod differential;
mod e2e;
mod fleet;
mod floor;
mod log;
mod machine;
mod openb;
mod peer;
mod report;
mod shards;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "bench", about = "Measures Dray beside its yardsticks")]
struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Event rows per second with 1, 4, 32 and 64 concurrent writers, beside plain UNNEST writes of as many connections.
    Log(log::Args),
    /// The openb trace through the services.
    Openb(openb::Args),
    /// 1, 2 and 4 allocator processes over 10,000 nodes.
    Shards(shards::Args),
    /// Kills services and servers while claims flow, then proves that nothing acknowledged was lost.
    Chaos(chaos::Args),
    /// The allocator alone beside the reference implementation, and how its cost grows.
    Core(core::Args),
    /// Random small inputs to both allocators; every difference is a fault or a documented choice.
    Differential(differential::Args),
    /// Judges sets of inputs with recorded results.
    Conformance(conformance::Args),
    /// Durable claims per second from submission to allocation, beside bare SQL writing the same rows.
    E2e(e2e::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse().bench {
        Bench::Log(args) => log::run(args).await,
        Bench::Openb(args) => openb::run(args).await,
        Bench::Shards(args) => shards::run(args).await,
        Bench::Chaos(args) => chaos::run(args).await,
        Bench::Core(args) => core::run(&args),
        Bench::Differential(args) => differential::run(&args),
        Bench::Conformance(args) => conformance::run(&args),
        Bench::E2e(args) => e2e::run(args).await,
    }
}
