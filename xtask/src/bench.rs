//! `cargo xtask bench NAME`, `chaos`, `conformance`: measurements and judgements run in release builds by `loadtest/bench`, which also starts
//! the `dray` binary built beside it.

use crate::{needs, shell};

/// Arguments go on to the bench as they are.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// e.g. `e2e`, `log`, `openb`, `shards`; then its own flags.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What follows the command's name.
#[derive(clap::Args)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Runs a bench; it prints a table and writes `target/bench/NAME.json`.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    needs::servers()?;
    start(&["bench", "dray"], &args.words)
}

/// Kills what runs while claims flow, then proves that nothing was lost.
pub(crate) fn chaos(rest: &Rest) -> anyhow::Result<()> {
    needs::servers()?;
    let words: Vec<String> = std::iter::once("chaos".to_owned())
        .chain(rest.words.iter().cloned())
        .collect();
    start(&["bench", "dray"], &words)
}

/// Judges a file or folder of inputs with recorded results.
pub(crate) fn conformance(rest: &Rest) -> anyhow::Result<()> {
    let words: Vec<String> = std::iter::once("conformance".to_owned())
        .chain(rest.words.iter().cloned())
        .collect();
    start(&["bench"], &words)
}

fn start(packages: &[&str], words: &[String]) -> anyhow::Result<()> {
    let mut build = shell::cargo();
    build
        .args(["build", "--release"])
        .args(packages.iter().flat_map(|package| ["--package", package]));
    shell::run(&mut build)?;
    shell::run(
        shell::cargo()
            .args(["run", "--quiet", "--release", "--package", "bench", "--"])
            .args(words),
    )
}
