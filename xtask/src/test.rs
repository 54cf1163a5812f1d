//! `cargo xtask test`: all tests of the workspace, and those of the reference's peer, ending with the runner's own result lines and their sum.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::{needs, shell};

/// How to run the tests.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this crate (may be repeated).
    #[arg(short, long)]
    package: Vec<String>,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// Runs the tests; fails when one fails or none ran.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    needs::servers()?;
    let path = needs::go()?;
    if args.package.is_empty() && args.filter.is_none() {
        let mut peer = Command::new("go");
        shell::run(
            peer.args(["test", "./..."])
                .current_dir(shell::root().join("loadtest/peer"))
                .env("PATH", &path),
        )?;
    }
    let mut command = shell::cargo();
    command.args(["test", "--no-fail-fast"]);
    match args.package.as_slice() {
        [] => command.arg("--workspace"),
        packages => command.args(packages.iter().flat_map(|package| ["--package", package])),
    };
    command.args(&args.filter).env("PATH", &path);
    eprintln!("$ {}", shell::show(&command));
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo test")?;
    let lines = BufReader::new(child.stdout.take().context("cargo test has no output")?).lines();
    let tally = tee(lines)?;
    let status = child.wait()?;
    println!("{tally}");
    if !status.success() || tally.failed > 0 {
        bail!("tests failed: {status}");
    }
    if tally.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// The sum of the `test result:` lines of all test binaries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    binaries: u32,
    passed: u32,
    failed: u32,
    ignored: u32,
    failures: Vec<String>,
}

/// Prints what the tests print and adds up their result lines.
fn tee(lines: impl Iterator<Item = std::io::Result<String>>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut out = std::io::stdout().lock();
    for line in lines {
        let line = line?;
        writeln!(out, "{line}")?;
        tally.add(&line);
    }
    Ok(tally)
}

impl Tally {
    /// Reads `test NAME ... FAILED` and `test result: ok. 3 passed; 0 failed; 1 ignored; ...`; other lines say nothing.
    fn add(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let count = |what: &str| {
            let part = result
                .split([';', '.'])
                .map(str::trim)
                .find_map(|part| part.strip_suffix(what));
            part.and_then(|number| number.trim().parse::<u32>().ok()).unwrap_or(0)
        };
        self.binaries += 1;
        self.passed += count("passed");
        self.failed += count("failed");
        self.ignored += count("ignored");
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for name in &self.failures {
            writeln!(f, "failed: {name}")?;
        }
        let verdict = if self.failed == 0 && self.failures.is_empty() {
            "ok"
        } else {
            "FAILED"
        };
        let Self {
            binaries,
            passed,
            failed,
            ignored,
            ..
        } = self;
        write!(
            f,
            "all tests: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; {binaries} test binaries"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_all_binaries_are_added_up() {
        let mut tally = Tally::default();
        for line in [
            "test codec::round_trip ... ok",
            "test codec::bad_input ... FAILED",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            tally.add(line);
        }
        let failures = vec!["codec::bad_input".to_owned()];
        assert_eq!(
            tally,
            Tally {
                binaries: 2,
                passed: 15,
                failed: 1,
                ignored: 2,
                failures
            }
        );
    }
}
