//! `postmaster.pid`, the file by which a Postgres server marks its data directory as in use and says how it is.
//!
//! Lines (Postgres sources, `miscadmin.h`): 1 process id, 2 data directory, 4 port, 8 status. The status line exists
//! since Postgres 10 and is what `pg_ctl -w` waits for.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::EmbeddedError;

/// A server whose parent was killed gets this long to notice and end.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(5);

/// Whether the server with process id `pid` says that it accepts connections.
pub(crate) fn says_ready(data_dir: &Path, pid: i32) -> bool {
    let Ok(text) = std::fs::read_to_string(data_dir.join("postmaster.pid")) else {
        return false;
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first().and_then(|line| line.parse().ok()) == Some(pid) && lines.get(7) == Some(&"ready")
}

/// Removes a `postmaster.pid` whose server is gone; waits for one that is just stopping.
///
/// Postgres does this itself unless the recorded id now belongs to another process of the same account, which is
/// common in containers, where ids are small. `InUse` if the directory's server is alive and stays so.
pub(crate) async fn clear_stale(data_dir: &Path) -> Result<(), EmbeddedError> {
    if !Path::new("/proc/self").exists() {
        return Ok(()); // we could not tell; Postgres can, but for the reused id
    }
    let file = data_dir.join("postmaster.pid");
    let deadline = Instant::now() + ORPHAN_PATIENCE;
    while let Some(pid) = recorded_pid(&file) {
        if !is_server_of(pid, data_dir) {
            tracing::info!(pid, "removing the postmaster.pid of a server that is gone");
            return std::fs::remove_file(&file).map_err(EmbeddedError::io(format!("remove {}", file.display())));
        }
        if Instant::now() > deadline {
            return Err(EmbeddedError::InUse {
                dir: data_dir.to_owned(),
                pid,
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn recorded_pid(file: &Path) -> Option<i32> {
    std::fs::read_to_string(file).ok()?.lines().next()?.trim().parse().ok()
}

/// A Postgres server's working directory is its data directory.
fn is_server_of(pid: i32, data_dir: &Path) -> bool {
    let cwd = std::fs::read_link(Path::new("/proc").join(pid.to_string()).join("cwd"));
    match (cwd, data_dir.canonicalize()) {
        (Ok(cwd), Ok(data_dir)) => cwd == data_dir,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_of_a_process_that_is_no_server_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("postmaster.pid");
        std::fs::write(&file, format!("{}\n{}\n", std::process::id(), dir.path().display())).unwrap();
        clear_stale(dir.path()).await.unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn only_our_own_ready_server_counts_as_ready() {
        let dir = tempfile::tempdir().unwrap();
        let write = |status: &str| {
            std::fs::write(
                dir.path().join("postmaster.pid"),
                format!("7\n/d\n1\n5432\n/s\n\n\n{status}\n"),
            )
            .unwrap();
        };
        write("starting");
        assert!(!says_ready(dir.path(), 7));
        write("ready   ");
        assert!(says_ready(dir.path(), 7));
        assert!(!says_ready(dir.path(), 8));
    }
}
