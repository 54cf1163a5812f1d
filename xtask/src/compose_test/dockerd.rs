//! The Docker daemon: the one that runs, else one of our own for as long as the test takes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::stack::{docker, pause};
use crate::shell;

const START_DEADLINE: Duration = Duration::from_secs(60);
/// Lines of the daemon's log in an error.
const LOG_TAIL: usize = 20;

/// A daemon that answers. Ours is stopped when this is dropped; somebody else's is left alone.
pub(super) struct Dockerd {
    ours: Option<Child>,
}

impl Dockerd {
    /// Finds or starts it. An error says why it does not start, with the end of its log.
    pub(super) fn ensure(log: &Path) -> anyhow::Result<Self> {
        if answers() {
            return Ok(Self { ours: None });
        }
        let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program());
        eprintln!("$ {} (log: {})", shell::show(&command), log.display());
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot run dockerd")?;
        let mut daemon = Self { ours: Some(child) };
        daemon.until_it_answers(log)?;
        Ok(daemon)
    }

    fn until_it_answers(&mut self, log: &Path) -> anyhow::Result<()> {
        let end = Instant::now() + START_DEADLINE;
        while !answers() {
            if let Some(child) = &mut self.ours
                && let Some(status) = child.try_wait()?
            {
                bail!("dockerd cannot start here ({status}): {}", tail(log));
            }
            if Instant::now() > end {
                bail!("dockerd does not answer within {START_DEADLINE:?}: {}", tail(log));
            }
            pause();
        }
        Ok(())
    }

    /// Stops ours and waits until it has ended.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.end().context("cannot stop dockerd")
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.ours.take() else { return Ok(()) };
        if child.try_wait()?.is_none() {
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

/// Asks for the server's version: plain `docker info` succeeds without a server in some versions.
fn answers() -> bool {
    let output = docker(&["info", "--format", "{{.ServerVersion}}"]).output();
    output.is_ok_and(|output| output.status.success() && !output.stdout.trim_ascii().is_empty())
}

fn program() -> PathBuf {
    let usual = PathBuf::from("/usr/sbin/dockerd");
    if shell::on_path("dockerd") || !usual.is_file() {
        PathBuf::from("dockerd")
    } else {
        usual
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_TAIL)..];
    format!("the end of its log, {}:\n{}", log.display(), last.join("\n"))
}
