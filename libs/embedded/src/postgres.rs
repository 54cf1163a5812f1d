//! A Postgres server of our own: `initdb` when its folder is empty, then `postgres` on the loopback address.
//!
//! Connections from this machine are trusted, so the server is for one user's machine, tests and benchmarks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::account::{self, Account};
use crate::child::{Child, Program, step_down};
use crate::error::EmbeddedError;
use crate::{binaries, log_file, place, port, postmaster_pid};

/// Includes crash recovery after `kill9`, which replays up to `max_wal_size` of log.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// A fast shutdown writes a checkpoint: up to `shared_buffers` of dirty pages.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// A path to a Unix socket must fit into `sockaddr_un.sun_path`: 108 bytes on Linux, 104 elsewhere, with the final NUL.
const SOCKET_PATH_MAX_BYTES: usize = 103;

/// `fsync` and `synchronous_commit` stay on: this database is the only point of durability.
const SETTINGS: [(&str, &str); 5] = [
    ("listen_addresses", "127.0.0.1"),
    ("fsync", "on"),
    ("shared_buffers", "512MB"),
    ("max_wal_size", "4GB"),
    ("max_connections", "200"),
];

/// How to run an embedded Postgres.
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    /// The server's folder; made and initialised when it is missing or empty.
    pub data_dir: PathBuf,
    /// TCP port on 127.0.0.1; `None` or 0 takes a free one.
    pub port: Option<u16>,
    /// The folder of `postgres` and `initdb`; `None` looks on `PATH` and in `/usr/lib/postgresql`.
    pub bin_dir: Option<PathBuf>,
    /// Server settings that override ours, e.g. `("fsync", "off")` in tests.
    pub settings: Vec<(String, String)>,
    /// The superuser of a new data directory, and the user in [`Postgres::url`].
    pub user: String,
}

impl PostgresConfig {
    /// A server in `data_dir` on a free port, with the default settings and the superuser `dray`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            port: None,
            bin_dir: None,
            settings: Vec::new(),
            user: "dray".into(),
        }
    }

    /// The same with one more setting.
    #[must_use]
    pub fn with_setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}

/// A running Postgres; killed (immediate shutdown, safe for the data) when dropped without [`Postgres::stop`].
#[derive(Debug)]
pub struct Postgres {
    config: PostgresConfig,
    home: Home,
    port: u16,
    child: Option<Child>,
}

/// The prepared ground of a server.
#[derive(Clone, Debug)]
struct Home {
    bin_dir: PathBuf,
    data_dir: PathBuf,
    account: Option<Account>,
    /// Empty when the path would be too long: then there is TCP only.
    socket_dir: Option<PathBuf>,
    log: PathBuf,
}

impl Postgres {
    /// Finds the binaries, prepares the folder, starts the server and returns once it accepts connections.
    ///
    /// `MissingBinary`, `NoAccount`, `Unreachable`, `NotADataDirectory`, `InUse`: something on this machine must change.
    /// `Failed`, `Deadline`: the text holds the end of the program's output.
    pub async fn start(config: PostgresConfig) -> Result<Self, EmbeddedError> {
        let for_home = config.clone();
        let home = tokio::task::spawn_blocking(move || prepare(&for_home)).await;
        let home = home.map_err(|error| EmbeddedError::io("prepare Postgres")(error.into()))??;
        let mut postgres = Self {
            config,
            home,
            port: 0,
            child: None,
        };
        postgres.launch().await?;
        Ok(postgres)
    }

    /// The URL of the maintenance database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of a database on this server, which need not exist yet.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{}@127.0.0.1:{}/{database}", self.config.user, self.port)
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

    /// Creates a database, optionally as a copy of `template`, which nobody may be connected to.
    ///
    /// `Ok` if it exists already.
    pub async fn create_database(&self, name: &str, template: Option<&str>) -> Result<(), EmbeddedError> {
        let mut command = Command::new(self.home.bin_dir.join("createdb"));
        command.args([
            "--host",
            "127.0.0.1",
            "--port",
            &self.port.to_string(),
            "--username",
            &self.config.user,
        ]);
        command
            .args(template.map(|template| format!("--template={template}")))
            .args(["--", name]);
        command.current_dir("/");
        step_down(&mut command, None);
        match run_blocking("createdb", command).await {
            Err(EmbeddedError::Failed { output, .. }) if output.contains("already exists") => Ok(()),
            other => other,
        }
    }

    /// Stops with a fast shutdown: open transactions roll back, all data is on disk. `Deadline` after a minute; then the
    /// server is killed, and the next start recovers.
    pub async fn stop(&mut self) -> Result<(), EmbeddedError> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.signal(Signal::SIGINT);
        if child.wait_for_end(STOP_DEADLINE).await {
            return Ok(());
        }
        let output = log_file::tail(&self.home.log, 0);
        Err(EmbeddedError::Deadline {
            program: "postgres",
            awaited: "stopped",
            after: STOP_DEADLINE,
            output,
        })
    }

    /// Stops the server if it runs, and starts it again on the same port.
    pub async fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.stop().await?;
        self.launch().await
    }

    /// Kills the server as a crash would: no shutdown, no checkpoint. [`Postgres::restart`] then recovers.
    pub async fn kill9(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        child.signal(Signal::SIGKILL);
        child.wait_for_end(STOP_DEADLINE).await;
    }

    async fn launch(&mut self) -> Result<(), EmbeddedError> {
        postmaster_pid::clear_stale(&self.home.data_dir).await?;
        log_file::set_aside_if_large(&self.home.log).map_err(EmbeddedError::io("set the old log aside"))?;
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            // A restarted server keeps its port, or clients would not find it.
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
            if postmaster_pid::says_ready(&self.home.data_dir, child.pid()) {
                return Ok(child);
            }
            if Instant::now() > deadline {
                let output = log_file::tail(&self.home.log, log_start);
                let after = START_DEADLINE;
                return Err(EmbeddedError::Deadline {
                    program: "postgres",
                    awaited: "ready",
                    after,
                    output,
                });
            }
            if child.wait_for_end(Duration::from_millis(10)).await {
                let output = log_file::tail(&self.home.log, log_start);
                return Err(EmbeddedError::Failed {
                    program: "postgres",
                    output,
                });
            }
        }
    }

    /// Whether a failed start may succeed shortly: the backends of a killed server still hold its memory for a moment,
    /// and a free port may have been taken by somebody else. A port that the caller insists on is not waited for.
    fn passes(&self, error: &EmbeddedError) -> bool {
        let EmbeddedError::Failed { output, .. } = error else {
            return false;
        };
        let port_taken = output.contains("Address already in use") && port::fixed(self.config.port).is_none();
        port_taken || output.contains("pre-existing shared memory block")
    }

    fn program(&self, port: u16) -> Program {
        let mut settings: Vec<String> = SETTINGS.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let sockets = self.home.socket_dir.as_deref().map(Path::to_string_lossy).unwrap_or_default();
        settings.push(format!("unix_socket_directories={sockets}"));
        settings.push(format!("port={port}"));
        settings.extend(self.config.settings.iter().map(|(name, value)| format!("{name}={value}")));
        let mut args = vec!["-D".to_owned(), self.home.data_dir.to_string_lossy().into_owned()];
        args.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
        Program {
            name: "postgres",
            file: self.home.bin_dir.join("postgres"),
            args,
            account: self.home.account.clone(),
            log: self.home.log.clone(),
            last_signal: Signal::SIGQUIT,
        }
    }
}

fn prepare(config: &PostgresConfig) -> Result<Home, EmbeddedError> {
    let account = account::unprivileged()?;
    let data_dir = place::make_parents(&config.data_dir)?;
    place::check_reachable(&data_dir, account.as_ref())?;
    let version = std::fs::read_to_string(data_dir.join("PG_VERSION")).ok();
    let bin_dir = binaries::postgres_folder(config.bin_dir.as_deref(), version.as_deref().map(str::trim))?;
    if version.is_none() {
        initialise(config, &bin_dir, &data_dir, account.as_ref())?;
    }
    let socket_dir = data_dir
        .parent()
        .map(|parent| parent.join("socket"))
        .filter(|dir| socket_fits(dir));
    if let Some(dir) = &socket_dir {
        place::make_owned(dir, account.as_ref())?;
    }
    let log = data_dir.join("server.log");
    Ok(Home {
        bin_dir,
        data_dir,
        account,
        socket_dir,
        log,
    })
}

fn socket_fits(dir: &Path) -> bool {
    dir.as_os_str().len() + "/.s.PGSQL.65535".len() < SOCKET_PATH_MAX_BYTES
}

/// Makes a new data directory beside its place and moves it there, so that a killed `initdb` leaves no half of one.
fn initialise(config: &PostgresConfig, bin_dir: &Path, data_dir: &Path, account: Option<&Account>) -> Result<(), EmbeddedError> {
    if std::fs::read_dir(data_dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(EmbeddedError::NotADataDirectory {
            dir: data_dir.to_owned(),
        });
    }
    let unfinished = data_dir.with_extension("initdb");
    if unfinished.exists() {
        let failed = format!("remove {}", unfinished.display());
        std::fs::remove_dir_all(&unfinished).map_err(EmbeddedError::io(failed))?;
    }
    place::make_owned(&unfinished, account)?;
    run("initdb", initdb(config, bin_dir, &unfinished, account))?;
    std::fs::rename(&unfinished, data_dir).map_err(EmbeddedError::io(format!("move to {}", data_dir.display())))
}

fn initdb(config: &PostgresConfig, bin_dir: &Path, dir: &Path, account: Option<&Account>) -> Command {
    let mut command = Command::new(bin_dir.join("initdb"));
    command
        .args([
            "--encoding=UTF8",
            "--locale=C",
            "--auth=trust",
            "--username",
            &config.user,
            "-D",
        ])
        .arg(dir);
    // Who turns fsync off for the server does not want to wait for it here either.
    if config.settings.iter().any(|(name, value)| name == "fsync" && value == "off") {
        command.arg("--no-sync");
    }
    command.current_dir("/");
    step_down(&mut command, account);
    command
}

fn run(program: &'static str, mut command: Command) -> Result<(), EmbeddedError> {
    let output = command.output().map_err(EmbeddedError::io(format!("run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(EmbeddedError::Failed {
        program,
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

async fn run_blocking(program: &'static str, command: Command) -> Result<(), EmbeddedError> {
    let ran = tokio::task::spawn_blocking(move || run(program, command)).await;
    ran.map_err(|error| EmbeddedError::io(format!("run {program}"))(error.into()))?
}
