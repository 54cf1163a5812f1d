//! A running `dray up` of one test, as a user runs it, and the client commands against it.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use testkit::eventually;
use tokio::process::{Child, Command};

/// A database is made, all services start; tests of other crates may run beside it.
const READY_DEADLINE: Duration = Duration::from_secs(90);
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// One client command, a build machine's slowness included.
const COMMAND_DEADLINE: Duration = Duration::from_secs(120);

/// `dray up` in a folder of its own. Killed when this is dropped; its services then stop by themselves.
pub(crate) struct Installation {
    up: Child,
    folder: TempDir,
}

impl Installation {
    /// Starts in a new folder.
    pub(crate) async fn start(more: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(testkit::open_tempdir()?, more).await
    }

    /// Starts with what an earlier one left.
    pub(crate) async fn start_in(folder: TempDir, more: &[&str]) -> anyhow::Result<Self> {
        let log = std::fs::File::create(folder.path().join("up.log"))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_dray"));
        command
            .args(["up", "--grpc-listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path())
            .args(more);
        let up = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let installation = Self { up, folder };
        installation.until_ready().await?;
        Ok(installation)
    }

    async fn until_ready(&self) -> anyhow::Result<()> {
        let pid = self.up.id().context("dray up has ended")?;
        let ready = || {
            let is_ours = self.note()["pid"] == pid;
            let answer = if is_ours { Ok(()) } else { Err(self.up_log()) };
            async move { answer }
        };
        eventually(READY_DEADLINE, ready).await;
        Ok(())
    }

    /// Stops everything in order; the folder stays usable.
    pub(crate) async fn stop(mut self) -> anyhow::Result<TempDir> {
        let pid = self.up.id().context("dray up has ended")?;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM)?;
        let status = tokio::time::timeout(STOP_DEADLINE, self.up.wait())
            .await
            .context("dray up does not stop")??;
        let log = self.up_log();
        ensure!(status.success(), "dray up ended with {status}: {log}");
        ensure!(!log.contains("did not drain"), "a service had to be killed: {log}");
        ensure!(!self.note_file().exists(), "the note of what runs stays behind");
        Ok(self.folder)
    }

    fn up_log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("up.log")).unwrap_or_default()
    }

    fn note_file(&self) -> PathBuf {
        self.folder.path().join("running.json")
    }

    /// What runs, as `dray up` notes it; null until it is ready.
    pub(crate) fn note(&self) -> Value {
        let text = std::fs::read(self.note_file()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// The process id of a part, if it runs.
    pub(crate) fn pid_of(&self, name: &str) -> Option<i32> {
        let note = self.note();
        let processes = note["processes"].as_array()?;
        let process = processes.iter().find(|process| process["name"] == name)?;
        i32::try_from(process["pid"].as_i64()?).ok()
    }

    /// Kills a part as a crash would; its old process id.
    pub(crate) fn kill9(&self, name: &str) -> anyhow::Result<i32> {
        let pid = self.pid_of(name).with_context(|| format!("{name} does not run"))?;
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        Ok(pid)
    }

    /// Runs a client command to its end, from the repository's root.
    pub(crate) async fn output(&self, words: &[&str]) -> anyhow::Result<Output> {
        let note = self.note();
        let server = note["server"].as_str().context("the note names no server")?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_dray"));
        command
            .args(words)
            .env("DRAY_SERVER", server)
            .env("DRAY_DATA_DIR", self.folder.path());
        command
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(tokio::time::timeout(COMMAND_DEADLINE, command.output())
            .await
            .context("the command does not end")??)
    }

    /// The standard output of a command that must succeed.
    pub(crate) async fn ok(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = self.output(words).await?;
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "`dray {}` failed: {stdout}{stderr}", words.join(" "));
        Ok(stdout)
    }

    /// The standard error of a command that must fail.
    pub(crate) async fn err(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = self.output(words).await?;
        ensure!(
            output.status.code() == Some(1),
            "`dray {}` ended with {}",
            words.join(" "),
            output.status
        );
        Ok(text(&output.stderr))
    }

    /// An object, or a list, as JSON.
    pub(crate) async fn json(&self, words: &[&str]) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.ok(&[words, &["-o", "json"]].concat()).await?)?)
    }

    /// Writes a file into the installation's folder; its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> anyhow::Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content)?;
        Ok(path.display().to_string())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
