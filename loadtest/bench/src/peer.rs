//! The reference allocator as a child process: `loadtest/peer`, a Go program that reads the same inputs as we do. Built on demand into
//! `target/peer`.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The program.
#[derive(Clone, Debug)]
pub(crate) struct Peer(PathBuf);

/// A run of a workload; absent limits mean none.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunOrder {
    pub(crate) mode: Mode,
    pub(crate) workers: usize,
    /// No claim is started later.
    pub(crate) max_seconds: f64,
}

/// How nodes are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// In order until one fits.
    Seq,
    /// As kube-scheduler filters them: until enough fit.
    Sched,
}

/// What became of the claims that were started.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunReport {
    pub(crate) claims: Vec<ClaimReport>,
    pub(crate) gave_up: usize,
    /// Of the whole process, garbage collection included.
    pub(crate) cpu_nanos: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ClaimReport {
    /// `allocated`, `none`, `timeout` or `error`.
    pub(crate) outcome: String,
    pub(crate) node: Option<String>,
    #[serde(default)]
    pub(crate) devices: Vec<String>,
    pub(crate) nanos: u64,
}

/// Evaluations of selectors without an allocator around them.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct SelectorReport {
    pub(crate) evaluations: u64,
    pub(crate) nanos: u64,
}

impl Peer {
    /// Builds the program with the `go` on `PATH`; quick if nothing changed.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let program = std::env::current_dir()?.join("target/peer/peer");
        let status = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir("loadtest/peer")
            .status()
            .context("cannot run go: install Go 1.26 or newer to build loadtest/peer")?;
        ensure!(status.success(), "go build of loadtest/peer failed: {status}");
        Ok(Self(program))
    }

    /// Reads a workload once; runs follow.
    pub(crate) fn workload(&self, file: &Path) -> anyhow::Result<Conversation> {
        Conversation::start(Command::new(&self.0).args(["workload", "-serve"]).arg(file))
    }

    /// Waits for conformance cases, one JSON line each.
    pub(crate) fn cases(&self, seconds_per_answer: f64) -> anyhow::Result<Conversation> {
        Conversation::start(Command::new(&self.0).args(["cases", "-timeout", &format!("{seconds_per_answer}s")]))
    }

    /// Measures the workload's selectors.
    pub(crate) fn selectors(&self, file: &Path) -> anyhow::Result<SelectorReport> {
        Conversation::start(Command::new(&self.0).arg("selectors").arg(file))?.answer()
    }
}

/// A child that answers a line with a line. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Conversation {
    child: Child,
    /// `None` once closed: the child ends by itself then.
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peer")?;
        let input = child.stdin.take().map(BufWriter::new);
        let output = BufReader::new(child.stdout.take().context("the peer has no output")?);
        Ok(Self { child, input, output })
    }

    /// Sends a line.
    pub(crate) fn ask(&mut self, question: &impl Serialize) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the conversation is over")?;
        serde_json::to_writer(&mut *input, question)?;
        input.write_all(b"\n")?;
        input.flush().context("the peer does not listen any more")
    }

    /// Waits for a line.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the peer ended without an answer; its error is above");
        serde_json::from_str(&line).context("the peer's answer is not of the form expected")
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.input = None;
        // It may be in the middle of a long search. Both fail only if it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
