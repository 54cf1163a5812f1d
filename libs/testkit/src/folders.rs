//! Temporary folders that the servers' account may enter, and the removal of those that killed tests left behind.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tempfile::TempDir;

/// Folder names are this and the process id of the test binary that uses them.
const PREFIX: &str = "dray-test-";

/// A temporary folder, deleted when dropped, that any account may enter.
pub fn open_tempdir() -> anyhow::Result<TempDir> {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir()?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// Removes folders of test binaries that are gone. What lives in a `static` is never dropped, so every run leaves some.
pub(crate) fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if owner(&path).is_some_and(is_gone) {
            // Another test binary may be sweeping too, or the folder is not ours to delete.
            std::fs::remove_dir_all(&path).ok();
        }
    }
}

fn owner(path: &Path) -> Option<Pid> {
    let name = PathBuf::from(path.file_name()?).to_str()?.strip_prefix(PREFIX)?.to_owned();
    name.split('-').next()?.parse().ok().map(Pid::from_raw)
}

fn is_gone(pid: Pid) -> bool {
    kill(pid, None) == Err(Errno::ESRCH)
}
