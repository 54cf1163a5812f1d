//! Servers of a bench's own, and what else the machine is doing.

use std::path::PathBuf;

use embedded::{Postgres, PostgresConfig};

/// A Postgres as durable as in production, in a folder that goes with it.
pub(crate) struct Database {
    pub(crate) postgres: Postgres,
    _dir: tempfile::TempDir,
}

impl Database {
    /// Starts a server with fsync on.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let dir = open_dir()?;
        let postgres = Postgres::start(PostgresConfig::new(dir.path().join("postgres"))).await?;
        Ok(Self { postgres, _dir: dir })
    }

    /// A new database with all migrations.
    pub(crate) async fn fresh(&self, name: &str) -> anyhow::Result<String> {
        self.postgres.create_database(name, None).await?;
        let url = self.postgres.url_of(name);
        store::migrate(&url).await?;
        Ok(url)
    }
}

/// A folder that the server's unprivileged user can reach.
pub(crate) fn open_dir() -> anyhow::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new().prefix("dray-bench-").tempdir()?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// The machine's load average over the last minute.
pub(crate) fn load() -> f64 {
    std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(f64::NAN)
}

/// Where figures go.
pub(crate) fn figures_dir() -> PathBuf {
    PathBuf::from("target/bench")
}

/// Clock ticks of /proc; 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time of a process and of the children it has waited for, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return 0.0;
    };
    // The command's name may hold spaces; it ends with the last parenthesis.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: f64 = (11..=14).filter_map(|i| fields.get(i)?.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}

/// The same for a process and everything below it.
pub(crate) fn cpu_seconds_of_group(pid: u32) -> f64 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    cpu_seconds(pid)
        + children
            .split(' ')
            .filter_map(|child| child.trim().parse().ok())
            .map(cpu_seconds_of_group)
            .sum::<f64>()
}

/// The body of a plain HTTP/1.0 answer.
pub(crate) async fn http_get(address: std::net::SocketAddr, path: &str) -> anyhow::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default())
}

/// Waits in a destructor, where nothing can be awaited.
#[expect(clippy::disallowed_methods, reason = "a destructor cannot await")]
pub(crate) fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}
