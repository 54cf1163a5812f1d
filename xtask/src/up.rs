//! `cargo xtask up`: builds Dray, starts it on this machine, imports a part of a real trace and shows what came of it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{needs, shell};

/// From start to ready, a new database included.
const READY_DEADLINE: Duration = Duration::from_secs(120);
/// An orderly stop of every part.
const STOP_DEADLINE: Duration = Duration::from_secs(90);

/// How to start.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stop after the import; the exit code says whether all went well. Uses a fresh data folder and free ports.
    #[arg(long)]
    once: bool,
    /// Build faster and run slower.
    #[arg(long)]
    dev: bool,
    /// Folder with the trace's nodes.csv and pods.csv. Default: the part of the openb trace in testdata/openb.
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
    /// Only the trace's first nodes.
    #[arg(long, value_name = "N")]
    max_nodes: Option<usize>,
    /// Only the trace's first pods.
    #[arg(long, value_name = "N")]
    max_pods: Option<usize>,
    /// Further arguments of `dray up`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// Runs the demonstration; afterwards stays until Ctrl-C, or with `--once` stops everything.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    needs::servers()?;
    let dray = build(args.dev)?;
    // The servers' account must be able to enter it, which rules out the build folder.
    let folder = args.once.then(fresh_folder).transpose()?;
    let data_dir = folder.as_ref().map(|folder| folder.path().to_owned());
    let mut up = Up::start(&dray, data_dir.as_deref(), &args.more)?;
    let shown = up
        .until_ready()
        .and_then(|server| demonstrate(args, &dray, &server, data_dir.as_deref()));
    if args.once || shown.is_err() {
        let stopped = up.stop();
        shown?;
        stopped?;
        eprintln!("up: ok");
        return Ok(());
    }
    eprintln!("\nDray goes on running; Ctrl-C stops it.");
    up.until_stopped()
}

/// Builds the binary and returns its file.
pub(crate) fn build(dev: bool) -> anyhow::Result<PathBuf> {
    let profile = if dev { "dev" } else { "release" };
    shell::run(shell::cargo().args(["build", "--package", "dray", "--profile", profile]))?;
    let folder = if dev { "debug" } else { "release" };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| shell::root().join("target"), PathBuf::from);
    Ok(shell::root().join(target).join(folder).join("dray"))
}

/// A new folder that the servers' account can enter.
pub(crate) fn fresh_folder() -> anyhow::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::Builder::new().prefix("dray-up-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// A running `dray up`. It is stopped, with all it started, when this is dropped.
pub(crate) struct Up {
    child: Child,
    note: PathBuf,
    asked_to_stop: Arc<AtomicBool>,
}

/// What we read of the note that `dray up` leaves when it is ready.
#[derive(Deserialize)]
struct Note {
    pid: u32,
    server: String,
}

impl Up {
    /// Starts `dray up`; with a data folder of its own it also gets free ports. From here on, Ctrl-C is for us to notice.
    pub(crate) fn start(dray: &Path, data_dir: Option<&Path>, more: &[String]) -> anyhow::Result<Self> {
        let asked_to_stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&asked_to_stop))?;
        }
        let mut command = shell::program(dray);
        command.args(["up", "--stop-with-stdin"]).args(more);
        if let Some(data_dir) = data_dir {
            command.arg("--data-dir").arg(data_dir).args(["--grpc-listen", "127.0.0.1:0"]);
        }
        eprintln!("$ {}", shell::show(&command));
        // A group of its own: Ctrl-C comes to us, and we pass it on once.
        let child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start dray up")?;
        let note = data_dir
            .map(Path::to_owned)
            .map_or_else(default_data_dir, Ok)?
            .join("running.json");
        Ok(Self {
            child,
            note,
            asked_to_stop,
        })
    }

    /// Waits for the note of this process; returns the server's address.
    pub(crate) fn until_ready(&mut self) -> anyhow::Result<String> {
        let end = Instant::now() + READY_DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("dray up ended while starting: {status}");
            }
            let note = File::open(&self.note)
                .ok()
                .and_then(|file| serde_json::from_reader::<_, Note>(file).ok());
            if let Some(note) = note.filter(|note| note.pid == self.child.id()) {
                return Ok(note.server);
            }
            ensure!(!self.asked_to_stop.load(Ordering::Relaxed), "stopped while starting");
            ensure!(Instant::now() < end, "dray up was not ready within {READY_DEADLINE:?}");
            pause();
        }
    }

    /// Stops everything in order.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.signal();
        let end = Instant::now() + STOP_DEADLINE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "dray up did not stop well: {status}");
                return Ok(());
            }
            pause();
        }
        bail!("dray up did not stop within {STOP_DEADLINE:?}");
    }

    /// Waits for Ctrl-C, then stops everything in order.
    fn until_stopped(&mut self) -> anyhow::Result<()> {
        while !self.asked_to_stop.load(Ordering::Relaxed) {
            if let Some(status) = self.child.try_wait()? {
                bail!("dray up ended: {status}");
            }
            pause();
        }
        self.stop()
    }

    fn signal(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).ok();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal();
            self.child.wait().ok();
        }
    }
}

/// This program has no runtime; it looks again after a moment.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime here whose threads could be blocked"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// As `dray up` chooses it: /var/lib/dray for root, else the XDG data folder.
fn default_data_dir() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("DRAY_DATA_DIR") {
        return Ok(PathBuf::from(named));
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/dray"));
    }
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data_home = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
    Ok(data_home.context("neither HOME nor XDG_DATA_HOME is set")?.join("dray"))
}

/// Imports the trace and shows claims; an error if anything is not as it should be.
fn demonstrate(args: &Args, dray: &Path, server: &str, data_dir: Option<&Path>) -> anyhow::Result<()> {
    let trace = args.trace.clone().unwrap_or_else(|| PathBuf::from("testdata/openb"));
    let client = |words: &[&str]| {
        let mut command = shell::program(dray);
        command.args(words).args(["--server", server]);
        command
    };
    let mut import = client(&["import", "openb"]);
    import
        .arg("--nodes")
        .arg(trace.join("nodes.csv"))
        .arg("--pods")
        .arg(trace.join("pods.csv"));
    let limits = [("--max-nodes", args.max_nodes), ("--max-pods", args.max_pods)];
    for (flag, value) in limits.into_iter().filter_map(|(flag, value)| Some((flag, value?))) {
        import.args([flag, &value.to_string()]);
    }
    shell::run(with_data_dir(&mut import, data_dir))?;
    let claims = shell::output(&mut client(&["get", "claims", "-n", "openb", "-o", "json"]))?;
    let claims: Value = serde_json::from_str(&claims)?;
    for is_allocated in [true, false] {
        let claim = largest(&claims, is_allocated).context("the import left no such claim")?;
        eprintln!();
        shell::run(&mut client(&["describe", "claim", &claim, "-n", "openb"]))?;
    }
    eprintln!();
    let mut audit = shell::program(dray);
    shell::run(with_data_dir(audit.arg("audit"), data_dir))
}

/// The name of the claim with the most devices among those that are, or are not, allocated.
fn largest(claims: &Value, is_allocated: bool) -> Option<String> {
    let wanted = |claim: &&Value| claim.pointer("/status/allocation").is_some() == is_allocated;
    let count = |claim: &&Value| {
        claim
            .pointer("/spec/devices/requests/0/exactly/count")
            .and_then(Value::as_i64)
    };
    let claim = claims["items"].as_array()?.iter().filter(wanted).max_by_key(count)?;
    claim["metadata"]["name"].as_str().map(str::to_owned)
}

fn with_data_dir<'c>(command: &'c mut Command, data_dir: Option<&Path>) -> &'c mut Command {
    if let Some(data_dir) = data_dir {
        command.arg("--data-dir").arg(data_dir);
    }
    command
}
