//! `cargo xtask compose-test`: starts docker-compose.yml as it is, with three allocators, submits claims from outside, kills
//! an allocator's container while they are allocated, and audits the database.
//!
//! No image is pulled: `images` makes stand-ins that behave like the official ones as far as the file uses them.

mod claims;
mod dockerd;
mod images;
mod stack;
mod tools;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use nix::unistd::geteuid;

use crate::{shell, up};
use dockerd::Dockerd;
use stack::Stack;

/// How to run it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this `dray` program, built for this machine, and build none.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Build faster and run slower.
    #[arg(long, conflicts_with = "binary")]
    dev: bool,
}

/// Runs the test; needs root for the Docker daemon and for making the images.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        geteuid().is_root(),
        "compose-test makes images and may start dockerd: run it as root"
    );
    let began = Instant::now();
    tools::install()?;
    let dray = args.binary.clone().map_or_else(|| up::build(args.dev), Ok)?;
    std::fs::create_dir_all(folder())?;
    let dockerd = Dockerd::ensure(&folder().join("dockerd.log"))?;
    let tested = test_with_images(&dray);
    // Ours is stopped also after a failure, and the failure is what is told.
    let stopped = dockerd.stop();
    let figures = tested?;
    stopped?;
    eprintln!("\ncompose-test: ok: {figures}; {:.0?} in all", began.elapsed());
    Ok(())
}

/// The Debian that images are made of, logs and inputs; kept between runs.
fn folder() -> PathBuf {
    shell::root().join("target/compose-test")
}

/// Makes the images, tests with them and removes them: they are large, and made again faster than kept up to date.
fn test_with_images(dray: &Path) -> anyhow::Result<String> {
    images::remove()?;
    let tested = images::make(&folder(), dray).and_then(|()| test(dray));
    let removed = images::remove();
    let figures = tested?;
    removed.map(|()| figures)
}

/// Starts the stack, tests it, and removes it with its volumes whatever happened. Returns what to tell.
fn test(dray: &Path) -> anyhow::Result<String> {
    let stack = Stack::start(images::VARIABLES)?;
    let tested = stack
        .until_healthy()
        .and_then(|()| claims::run(dray, &stack, &folder()))
        .and_then(|figures| stack.audit().map(|()| figures));
    if tested.is_err() {
        stack.show_logs();
    }
    let removed = stack.remove();
    let figures = tested?;
    removed.map(|()| figures)
}
