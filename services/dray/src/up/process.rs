//! One service as a child process of `dray up`: started with its log in a file, watched, restarted when it dies.
//!
//! The child stops when its standard input closes, so it does not outlive us however we end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::ready;
use super::running::RunningProcess;

/// From start to ready, migrations and state rebuilt from a large log included.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Longer than a service's own drain timeout; then it is killed.
const STOP_DEADLINE: Duration = Duration::from_secs(45);
/// Restarts wait from the first of these to the last, doubling.
const RESTART_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// A process that lived this long was well; its next restart is quick again.
const WELL_AFTER: Duration = Duration::from_secs(30);
/// Lines of a log shown when a service does not start.
const LOG_LINES_SHOWN: usize = 20;

/// How to run a service.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Shown and used for the log file, e.g. `allocator-2`.
    pub(crate) name: String,
    /// Arguments of the `dray` binary.
    pub(crate) args: Vec<String>,
    pub(crate) health: SocketAddr,
}

/// A service that is kept running.
pub(crate) struct Process {
    plan: Plan,
    log: PathBuf,
    child: Option<Child>,
    started: Instant,
    pause: Duration,
    restart_at: Option<Instant>,
}

impl Process {
    /// Starts the service; its log begins anew.
    pub(crate) fn start(plan: Plan, log_dir: &Path) -> anyhow::Result<Self> {
        let log = log_dir.join(format!("{}.log", plan.name));
        std::fs::write(&log, "").with_context(|| format!("cannot write {}", log.display()))?;
        let child = Some(spawn(&plan, &log)?);
        Ok(Self {
            plan,
            log,
            child,
            started: Instant::now(),
            pause: RESTART_PAUSE.0,
            restart_at: None,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.plan.name
    }

    /// Answers when the service is ready; an error shows the end of its log.
    pub(crate) async fn until_ready(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + READY_DEADLINE;
        loop {
            let Err(answer) = ready::check(self.plan.health).await else {
                return Ok(());
            };
            if let Some(status) = self.ended()? {
                bail!("{} ended while starting ({status}):\n{}", self.name(), self.log_end());
            }
            if Instant::now() > end {
                bail!(
                    "{} was not ready after {READY_DEADLINE:?} ({answer}):\n{}",
                    self.name(),
                    self.log_end()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Restarts the service if it died, after a pause that grows with each death. True if its process changed.
    pub(crate) fn look_after(&mut self) -> anyhow::Result<bool> {
        if let Some(status) = self.ended()? {
            self.pause = if self.started.elapsed() > WELL_AFTER {
                RESTART_PAUSE.0
            } else {
                self.pause
            };
            eprintln!(
                "{} ended ({status}); starting it again in {:?}; log: {}",
                self.name(),
                self.pause,
                self.log.display()
            );
            self.child = None;
            self.restart_at = Some(Instant::now() + self.pause);
            self.pause = (self.pause * 2).min(RESTART_PAUSE.1);
            return Ok(true);
        }
        if self.restart_at.is_some_and(|at| Instant::now() >= at) {
            self.child = Some(spawn(&self.plan, &self.log)?);
            self.started = Instant::now();
            self.restart_at = None;
            return Ok(true);
        }
        Ok(false)
    }

    /// How the process ended; `None` while it runs or when its end was seen before.
    fn ended(&mut self) -> anyhow::Result<Option<std::process::ExitStatus>> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    /// Lets the service drain and end; kills it when that takes too long or `insist` comes.
    pub(crate) async fn stop(&mut self, insist: impl Future<Output = ()>) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        if let Some(pid) = child.id() {
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).ok();
        }
        let is_drained = tokio::select! {
            _ = child.wait() => true,
            () = insist => false,
            () = tokio::time::sleep(STOP_DEADLINE) => false,
        };
        if !is_drained {
            eprintln!("{} did not drain; killing it", self.plan.name);
            child.kill().await.ok();
        }
    }

    /// For the note of what runs.
    pub(crate) fn running(&self) -> RunningProcess {
        let pid = self.child.as_ref().and_then(Child::id).map(u32::cast_signed);
        let health = Some(format!("http://{}", self.plan.health));
        RunningProcess {
            name: self.plan.name.clone(),
            pid,
            health,
            log: self.log.clone(),
        }
    }

    fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

fn spawn(plan: &Plan, log: &Path) -> anyhow::Result<Child> {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(log)?;
    let program = std::env::current_exe().context("cannot find the dray binary")?;
    let mut command = Command::new(program);
    // A group of its own: the terminal's Ctrl-C goes to us alone, and we stop the services in order.
    command.args(&plan.args).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
    command.spawn().with_context(|| format!("cannot start {}", plan.name))
}
