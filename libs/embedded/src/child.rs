//! One server process: started, watched, signalled, and never left behind.
//!
//! Each child has a thread that starts it and waits for its end. The kernel ties a child to the *thread* that started
//! it (`PR_SET_PDEATHSIG`), so that thread must live as long as the child; runtime threads need not.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::sync::{oneshot, watch};

use crate::account::Account;
use crate::error::EmbeddedError;

/// What to run and how to treat it.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) account: Option<Account>,
    pub(crate) log: PathBuf,
    /// Sent when the handle is dropped and, where possible, when this process dies.
    pub(crate) last_signal: Signal,
}

/// A started process. Dropping the handle sends the program's last signal.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    last_signal: Signal,
    /// Guards against signalling a process id that the kernel has given to somebody else.
    reaped: Arc<Mutex<bool>>,
    ended: watch::Receiver<bool>,
}

impl Child {
    /// Starts `program`; its output is appended to its log.
    pub(crate) async fn spawn(program: Program) -> Result<Self, EmbeddedError> {
        let last_signal = program.last_signal;
        let name = program.name;
        let reaped = Arc::new(Mutex::new(false));
        let (started_tx, started_rx) = oneshot::channel();
        let (ended_tx, ended) = watch::channel(false);
        let thread = std::thread::Builder::new().name(format!("{name}-child"));
        let reaped_by_thread = Arc::clone(&reaped);
        // Ends by itself right after the child; nobody has to join it.
        thread
            .spawn(move || start_and_wait(&program, started_tx, &reaped_by_thread, &ended_tx))
            .map_err(EmbeddedError::io(format!("start a thread for {name}")))?;
        let pid = started_rx
            .await
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread ended early")));
        let pid = pid.map_err(EmbeddedError::io(format!("run {name}")))?;
        Ok(Self {
            pid,
            last_signal,
            reaped,
            ended,
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Sends a signal; nothing happens when the process has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped && let Err(errno) = kill(self.pid, signal) {
            tracing::debug!(pid = self.pid.as_raw(), %errno, "signal not delivered");
        }
    }

    /// Waits for the end; `false` if it did not come within `deadline`.
    pub(crate) async fn wait_for_end(&mut self, deadline: Duration) -> bool {
        matches!(
            tokio::time::timeout(deadline, self.ended.wait_for(|ended| *ended)).await,
            Ok(Ok(_))
        )
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(self.last_signal);
    }
}

fn start_and_wait(
    program: &Program,
    started: oneshot::Sender<std::io::Result<Pid>>,
    reaped: &Mutex<bool>,
    ended: &watch::Sender<bool>,
) {
    let mut child = match command(program).and_then(|mut command| command.spawn()) {
        Ok(child) => child,
        Err(error) => {
            ended.send_replace(true);
            drop(started.send(Err(error)));
            return;
        }
    };
    let pid = Pid::from_raw(child.id().cast_signed());
    let abandoned = started.send(Ok(pid)).is_err();
    if abandoned {
        kill(pid, program.last_signal).ok();
    }
    // First wait without reaping: until the lock below is held, the id stays ours and may be signalled.
    while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::errno::Errno::EINTR) {}
    let mut reaped = reaped.lock().unwrap_or_else(PoisonError::into_inner);
    match child.wait() {
        Ok(status) => tracing::debug!(program = program.name, %status, "server process ended"),
        Err(error) => {
            tracing::warn!(program = program.name, %error, "cannot wait for server process")
        }
    }
    *reaped = true;
    ended.send_replace(true);
}

fn command(program: &Program) -> std::io::Result<Command> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&program.log)?;
    let mut command = match dies_with_parent() {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            let signal = program.last_signal.as_str().trim_start_matches("SIG");
            command.args(["--pdeathsig", signal, "--"]).arg(&program.file);
            command
        }
        None => Command::new(&program.file),
    };
    // A group of its own keeps the terminal's Ctrl-C from stopping the database before the services have drained.
    command.args(&program.args).process_group(0).current_dir("/");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    step_down(&mut command, program.account.as_ref());
    Ok(command)
}

/// Makes `command` run under `account`, with messages in English (we look for a few of them in logs).
pub(crate) fn step_down(command: &mut Command, account: Option<&Account>) {
    command.env("LC_ALL", "C");
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
}

/// `setpriv` of util-linux, if it can set a parent death signal (BusyBox's cannot).
fn dies_with_parent() -> Option<&'static str> {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let works = || {
        let mut probe = Command::new("setpriv");
        probe
            .args(["--pdeathsig", "keep", "--", "true"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    SETPRIV.get_or_init(works).then_some("setpriv")
}
