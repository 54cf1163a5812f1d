//! The note that a running `dray up` leaves in its data folder: addresses and processes, for client commands on the same
//! machine and for whoever wants to be cruel to a process by name.

use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The note's file name in the data folder.
const FILE: &str = "running.json";

/// What runs. Written when everything is ready, again after each restart of a part, and removed at the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Running {
    /// Process id of `dray up` itself.
    pub(crate) pid: i32,
    /// Address of ingest, as `--server` takes it.
    pub(crate) server: String,
    pub(crate) database_url: String,
    pub(crate) nats_url: String,
    pub(crate) processes: Vec<RunningProcess>,
}

/// One process of the stack.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunningProcess {
    /// `postgres`, `nats-server`, `ingest`, `allocator-1`, ...
    pub(crate) name: String,
    pub(crate) pid: Option<i32>,
    /// Where `/readyz` and `/metrics` are; servers that are not ours have none.
    pub(crate) health: Option<String>,
    pub(crate) log: PathBuf,
}

impl Running {
    /// Writes the note; readers see the old or the new one, never a part.
    pub(crate) fn write(&self, data_dir: &Path) -> anyhow::Result<()> {
        let (draft, file) = (data_dir.join(format!("{FILE}.new")), data_dir.join(FILE));
        let write = || std::fs::write(&draft, serde_json::to_vec_pretty(self)?).and_then(|()| std::fs::rename(&draft, &file));
        write().with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Removes the note.
pub(crate) fn remove(data_dir: &Path) {
    std::fs::remove_file(data_dir.join(FILE)).ok();
}

/// The stack that runs with this data folder, or with the default one. `None` if none runs or its note cannot be read.
pub(crate) fn find(data_dir: Option<&Path>) -> Option<Running> {
    let folder = data_dir.map(Path::to_owned).or_else(embedded::default_root)?;
    let running: Running = serde_json::from_slice(&std::fs::read(folder.join(FILE)).ok()?).ok()?;
    // The note of a stack that was killed stays behind.
    is_alive(running.pid).then_some(running)
}

fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_a_stack_that_is_gone_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let mut running = Running {
            pid: std::process::id().cast_signed(),
            server: "http://127.0.0.1:7070".into(),
            database_url: "postgres://dray@127.0.0.1:5432/dray".into(),
            nats_url: "nats://127.0.0.1:4222".into(),
            processes: Vec::new(),
        };
        assert!(find(Some(folder.path())).is_none());
        running.write(folder.path()).unwrap();
        assert_eq!(find(Some(folder.path())).unwrap().database_url, running.database_url);
        // Larger than any process id that Linux gives.
        running.pid = i32::MAX;
        running.write(folder.path()).unwrap();
        assert!(find(Some(folder.path())).is_none());
    }
}
