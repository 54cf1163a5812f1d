//! The stack under test: docker-compose.yml under a project name of its own.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::shell;

/// Fixed, so that what a broken-off run left behind is found and removed by the next.
const PROJECT: &str = "dray-compose-test";
pub(super) const ALLOCATORS: usize = 3;
/// postgres, nats, ingest, controller, node-agent and the allocators; `migrate` has ended by then.
const CONTAINERS: usize = 5 + ALLOCATORS;
const HEALTHY_DEADLINE: Duration = Duration::from_secs(180);

/// Containers, network and volumes of the project. Removed by [`Stack::remove`], or else when dropped.
pub(super) struct Stack {
    environment: Vec<(String, String)>,
    port: u16,
    removed: bool,
}

impl Stack {
    /// Creates and starts everything; gRPC is at a free port of this machine.
    pub(super) fn start(images: &[(&str, &str)]) -> anyhow::Result<Self> {
        // Somebody else may take the port before Docker does; Docker then says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let images = images.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let stack = Self {
            environment: images.chain([("DRAY_PORT".to_owned(), port.to_string())]).collect(),
            port,
            removed: false,
        };
        stack.down()?;
        let scale = format!("allocator={ALLOCATORS}");
        shell::run(stack.compose(&["up", "-d", "--scale", &scale]).stdin(Stdio::null()))?;
        Ok(stack)
    }

    /// Address of ingest as seen from outside.
    pub(super) fn server(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until every container's own health check passes.
    pub(super) fn until_healthy(&self) -> anyhow::Result<()> {
        let end = Instant::now() + HEALTHY_DEADLINE;
        loop {
            let healthy = self.containers(&["health=healthy"])?.len();
            if healthy == CONTAINERS {
                eprintln!("all {CONTAINERS} containers are healthy");
                return Ok(());
            }
            if Instant::now() > end {
                shell::run(&mut self.compose(&["ps"]))?;
                bail!("{healthy} of {CONTAINERS} containers are healthy after {HEALTHY_DEADLINE:?}");
            }
            pause();
        }
    }

    /// Kills one allocator's container with SIGKILL, and makes sure that it stays dead: its work must move, not wait for a
    /// restart.
    pub(super) fn kill_an_allocator(&self) -> anyhow::Result<()> {
        let running = self.allocators()?;
        ensure!(
            running.len() == ALLOCATORS,
            "{} allocators run, not {ALLOCATORS}",
            running.len()
        );
        shell::run(docker(&["kill", &running[0]]).stdout(Stdio::null()))?;
        self.must_have_allocators(ALLOCATORS - 1)
    }

    /// An error unless exactly so many run.
    pub(super) fn must_have_allocators(&self, wanted: usize) -> anyhow::Result<()> {
        let running = self.allocators()?.len();
        ensure!(running == wanted, "{running} allocators run, not {wanted}");
        Ok(())
    }

    fn allocators(&self) -> anyhow::Result<Vec<String>> {
        self.containers(&["label=com.docker.compose.service=allocator", "status=running"])
    }

    /// Proves the invariants from inside: the database has no port outside.
    pub(super) fn audit(&self) -> anyhow::Result<()> {
        shell::run(&mut self.compose(&["exec", "-T", "ingest", "dray", "audit"]))
    }

    /// What the containers said last, on standard error.
    pub(super) fn show_logs(&self) {
        let mut logs = self.compose(&["logs", "--no-color", "--tail", "40"]);
        if let Err(error) = shell::run(&mut logs) {
            eprintln!("{error:#}");
        }
    }

    /// Removes containers, network and volumes.
    pub(super) fn remove(mut self) -> anyhow::Result<()> {
        self.removed = true;
        self.down()
    }

    fn down(&self) -> anyhow::Result<()> {
        let mut down = self.compose(&["down", "--volumes", "--remove-orphans", "--timeout", "20"]);
        let output = down.stdin(Stdio::null()).output().context("cannot run docker-compose")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{}` failed: {said}", shell::show(&down));
        Ok(())
    }

    /// Ids of the project's containers that pass all filters.
    fn containers(&self, filters: &[&str]) -> anyhow::Result<Vec<String>> {
        let project = format!("label=com.docker.compose.project={PROJECT}");
        let mut command = docker(&["ps", "--quiet", "--filter", &project]);
        command.args(filters.iter().flat_map(|filter| ["--filter", filter]));
        Ok(shell::output(&mut command)?.lines().map(str::to_owned).collect())
    }

    fn compose(&self, args: &[&str]) -> Command {
        let mut command = shell::program("docker-compose".as_ref());
        command.args(["--project-name", PROJECT]).args(args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if !self.removed
            && let Err(error) = self.down()
        {
            eprintln!("{error:#}");
        }
    }
}

pub(super) fn docker(args: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(args).stdin(Stdio::null());
    command
}

/// This program has no runtime; it looks again after a moment.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime here whose threads could be blocked"
)]
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(300));
}
