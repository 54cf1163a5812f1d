//! `cargo xtask bench NAME`, `chaos`, `conformance`, `differential`: measurements and judgements run in release builds by `loadtest/bench`,
//! which also starts the `dray` binary built beside it, or the reference allocator in `loadtest/peer`.

use std::ffi::OsStr;

use crate::{needs, shell};

/// The bench that needs no servers but the reference allocator.
const CORE: &str = "core";

/// Arguments go on to the bench as they are.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// e.g. `core`, `e2e`, `log`, `openb`, `shards`; then its own flags.
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
    if args.words.first().is_some_and(|name| name == CORE) {
        return start(&["bench"], &args.words, Some(&needs::go()?));
    }
    needs::servers()?;
    start(&["bench", "dray"], &args.words, None)
}

/// Puts random inputs to our allocator and to the reference.
pub(crate) fn differential(rest: &Rest) -> anyhow::Result<()> {
    let words: Vec<String> = std::iter::once("differential".to_owned())
        .chain(rest.words.iter().cloned())
        .collect();
    start(&["bench"], &words, Some(&needs::go()?))
}

/// Kills what runs while claims flow, then proves that nothing was lost.
pub(crate) fn chaos(rest: &Rest) -> anyhow::Result<()> {
    needs::servers()?;
    let words: Vec<String> = std::iter::once("chaos".to_owned())
        .chain(rest.words.iter().cloned())
        .collect();
    start(&["bench", "dray"], &words, None)
}

/// Judges a file or folder of inputs with recorded results.
pub(crate) fn conformance(rest: &Rest) -> anyhow::Result<()> {
    let words: Vec<String> = std::iter::once("conformance".to_owned())
        .chain(rest.words.iter().cloned())
        .collect();
    start(&["bench"], &words, None)
}

/// Builds and runs, with `path` as `PATH` if there is one.
fn start(packages: &[&str], words: &[String], path: Option<&OsStr>) -> anyhow::Result<()> {
    let mut build = shell::cargo();
    build
        .args(["build", "--release"])
        .args(packages.iter().flat_map(|package| ["--package", package]));
    shell::run(&mut build)?;
    let mut bench = shell::cargo();
    bench
        .args(["run", "--quiet", "--release", "--package", "bench", "--"])
        .args(words);
    if let Some(path) = path {
        bench.env("PATH", path);
    }
    shell::run(&mut bench)
}
