//! A NATS server of our own, with JetStream, on the loopback address.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::account::{self, Account};
use crate::child::{Child, Program};
use crate::error::EmbeddedError;
use crate::{binaries, log_file, place, port};

/// Includes the recovery of stored streams.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// The server closes its stores on a shutdown; it has no long work to finish.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

/// How to run an embedded NATS server.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// JetStream's folder; made when missing.
    pub store_dir: PathBuf,
    /// TCP port on 127.0.0.1; `None` or 0 takes a free one.
    pub port: Option<u16>,
    /// The `nats-server` file; `None` looks on `PATH`, in `/usr/sbin` and in `/usr/bin`.
    pub bin: Option<PathBuf>,
}

impl NatsConfig {
    /// A server with its store in `store_dir`, on a free port.
    pub fn new(store_dir: impl Into<PathBuf>) -> Self {
        Self {
            store_dir: store_dir.into(),
            port: None,
            bin: None,
        }
    }
}

/// A running NATS server; killed when dropped without [`Nats::stop`].
#[derive(Debug)]
pub struct Nats {
    config: NatsConfig,
    home: Home,
    port: u16,
    child: Option<Child>,
}

#[derive(Clone, Debug)]
struct Home {
    bin: PathBuf,
    store_dir: PathBuf,
    account: Option<Account>,
    log: PathBuf,
}

impl Nats {
    /// Finds the binary, prepares the folder, starts the server and returns once it greets clients.
    ///
    /// `MissingBinary`, `NoAccount`, `Unreachable`: something on this machine must change. `Failed`, `Deadline`: the
    /// text holds the end of the server's log.
    pub async fn start(config: NatsConfig) -> Result<Self, EmbeddedError> {
        let for_home = config.clone();
        let home = tokio::task::spawn_blocking(move || prepare(&for_home)).await;
        let home = home.map_err(|error| EmbeddedError::io("prepare NATS")(error.into()))??;
        let mut nats = Self {
            config,
            home,
            port: 0,
            child: None,
        };
        nats.launch().await?;
        Ok(nats)
    }

    /// The URL for clients on this machine.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The TCP port; it survives restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's log file.
    pub fn log(&self) -> &Path {
        &self.home.log
    }

    /// The server's process id; `None` when it is stopped.
    pub fn pid(&self) -> Option<i32> {
        self.child.as_ref().filter(|child| !child.has_ended()).map(Child::pid)
    }

    /// Stops the server. `Deadline` after 15 s; then it is killed.
    pub async fn stop(&mut self) -> Result<(), EmbeddedError> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.signal(Signal::SIGTERM);
        if child.wait_for_end(STOP_DEADLINE).await {
            return Ok(());
        }
        let output = log_file::tail(&self.home.log, 0);
        Err(EmbeddedError::Deadline {
            program: "nats-server",
            awaited: "stopped",
            after: STOP_DEADLINE,
            output,
        })
    }

    /// Stops the server if it runs, and starts it again on the same port with the same store.
    pub async fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.stop().await?;
        self.launch().await
    }

    /// Kills the server as a crash would.
    pub async fn kill9(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        child.signal(Signal::SIGKILL);
        child.wait_for_end(STOP_DEADLINE).await;
    }

    /// Kills the server, deletes its store and starts it again: streams and all messages in flight are gone.
    pub async fn wipe(&mut self) -> Result<(), EmbeddedError> {
        self.kill9().await;
        let store = self.home.store_dir.join("jetstream");
        match tokio::fs::remove_dir_all(&store).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(EmbeddedError::io(format!("delete {}", store.display()))(error));
            }
            Ok(()) | Err(_) => {}
        }
        self.launch().await
    }

    async fn launch(&mut self) -> Result<(), EmbeddedError> {
        log_file::set_aside_if_large(&self.home.log).map_err(EmbeddedError::io("set the old log aside"))?;
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            let chosen = if self.port == 0 {
                port::choose(self.config.port)?
            } else {
                self.port
            };
            match self.try_launch(chosen, deadline).await {
                Ok(child) => {
                    (self.port, self.child) = (chosen, Some(child));
                    return Ok(());
                }
                Err(error) if self.passes(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn try_launch(&self, port: u16, deadline: Instant) -> Result<Child, EmbeddedError> {
        let log_start = log_file::end(&self.home.log);
        let mut child = Child::spawn(self.program(port)).await?;
        loop {
            if child.wait_for_end(Duration::from_millis(5)).await {
                let output = log_file::tail(&self.home.log, log_start);
                return Err(EmbeddedError::Failed {
                    program: "nats-server",
                    output,
                });
            }
            if greets(port).await && !child.has_ended() {
                return Ok(child);
            }
            if Instant::now() > deadline {
                let output = log_file::tail(&self.home.log, log_start);
                let after = START_DEADLINE;
                return Err(EmbeddedError::Deadline {
                    program: "nats-server",
                    awaited: "ready",
                    after,
                    output,
                });
            }
        }
    }

    /// Whether a failed start may succeed shortly: a free port may have been taken by somebody else. A port that the
    /// caller insists on is not waited for.
    fn passes(&self, error: &EmbeddedError) -> bool {
        let EmbeddedError::Failed { output, .. } = error else {
            return false;
        };
        output.contains("address already in use") && port::fixed(self.config.port).is_none()
    }

    fn program(&self, port: u16) -> Program {
        let store = self.home.store_dir.to_string_lossy().into_owned();
        let args = ["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd", &store]
            .map(str::to_owned)
            .to_vec();
        Program {
            name: "nats-server",
            file: self.home.bin.clone(),
            args,
            account: self.home.account.clone(),
            log: self.home.log.clone(),
            last_signal: Signal::SIGKILL,
        }
    }
}

fn prepare(config: &NatsConfig) -> Result<Home, EmbeddedError> {
    let bin = binaries::nats_server(config.bin.as_deref())?;
    let account = account::unprivileged()?;
    let store_dir = place::make_parents(&config.store_dir)?;
    place::check_reachable(&store_dir, account.as_ref())?;
    place::make_owned(&store_dir, account.as_ref())?;
    let log = store_dir.join("server.log");
    Ok(Home {
        bin,
        store_dir,
        account,
        log,
    })
}

/// Whether a server on `port` sends the protocol's first line, `INFO {…}`.
async fn greets(port: u16) -> bool {
    let greeting = async {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.ok()?;
        Some(line.starts_with("INFO "))
    };
    matches!(timeout(Duration::from_secs(1), greeting).await, Ok(Some(true)))
}
