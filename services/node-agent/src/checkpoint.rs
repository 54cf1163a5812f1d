//! The local state on disk: one JSON file with a version and a checksum, replaced as a whole and durably.
//!
//! A file that cannot be used (damaged, or of a newer version) is moved aside, never overwritten, and the agent starts
//! blind: everything that was allocated before may be prepared. A lock file keeps a second agent out and remembers that
//! there was a first start, so that a deleted file is told apart from a new node.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use resource_api::Sequence;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::allocation::AllocationKey;
use crate::state::{Entry, State};

/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
const FILE: &str = "prepared.json";
const LOCK: &str = "agent.lock";

/// A state folder that belongs to this process.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    dir: PathBuf,
    _lock: Flock<File>,
}

/// The state to start from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) state: State,
    /// Why an earlier state is lost, if it is.
    pub(crate) lost: Option<Lost>,
}

/// An earlier state is lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// There is no file, but there was one.
    Missing,
    /// Unreadable, cut off or changed; kept at `kept`.
    Damaged { cause: String, kept: PathBuf },
    /// Written by a newer program; kept at `kept`.
    Newer { version: u32, kept: PathBuf },
}

/// The state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("another agent uses {}", .dir.display())]
    InUse { dir: PathBuf },
    #[error("cannot use {}", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    version: u32,
    /// SHA-256 of the text of `content`, in hexadecimal digits.
    checksum: String,
    content: Box<RawValue>,
}

/// A newer version may have changed everything else.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    epoch: String,
    position: Sequence,
    blind_until: Sequence,
    entries: Vec<(AllocationKey, Entry)>,
}

enum Unusable {
    Damaged(String),
    Newer(u32),
}

impl Checkpoint {
    /// Takes the folder, making it if need be. `InUse` while another process has it.
    pub(crate) fn open(dir: &Path) -> Result<Self, CheckpointError> {
        std::fs::create_dir_all(dir).map_err(at(dir))?;
        let path = dir.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(at(&path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            nix::errno::Errno::EWOULDBLOCK => CheckpointError::InUse { dir: dir.to_owned() },
            other => CheckpointError::Io {
                path,
                source: other.into(),
            },
        })?;
        Ok(Self {
            dir: dir.to_owned(),
            _lock: lock,
        })
    }

    /// Reads the state; an unusable file is moved aside to `<file>.corrupt-<unix_seconds>`. `epoch`: for a new life.
    pub(crate) fn load(&self, epoch: String, unix_seconds: u64) -> Result<Loaded, CheckpointError> {
        let path = self.dir.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(self.without_file(epoch)),
            Err(error) => return Err(at(&path)(error)),
        };
        let lost = match parse(&bytes) {
            Ok(state) => return Ok(Loaded { state, lost: None }),
            Err(Unusable::Damaged(cause)) => Lost::Damaged {
                cause,
                kept: self.move_aside(unix_seconds)?,
            },
            Err(Unusable::Newer(version)) => Lost::Newer {
                version,
                kept: self.move_aside(unix_seconds)?,
            },
        };
        Ok(Loaded {
            state: State::blind(epoch),
            lost: Some(lost),
        })
    }

    /// The lock file is filled by the first save: an empty one means that no state was ever written.
    fn without_file(&self, epoch: String) -> Loaded {
        let written = std::fs::metadata(self.dir.join(LOCK)).is_ok_and(|lock| lock.len() > 0);
        if written {
            Loaded {
                state: State::blind(epoch),
                lost: Some(Lost::Missing),
            }
        } else {
            Loaded {
                state: State::first(epoch),
                lost: None,
            }
        }
    }

    fn move_aside(&self, unix_seconds: u64) -> Result<PathBuf, CheckpointError> {
        let free = |path: &PathBuf| !path.exists();
        let named = |seconds: u64| self.dir.join(format!("{FILE}.corrupt-{seconds}"));
        // An earlier one is evidence, too; the next free second will do.
        let kept = (unix_seconds..).map(named).find(free).unwrap_or_else(|| named(unix_seconds));
        std::fs::rename(self.dir.join(FILE), &kept).map_err(at(&kept))?;
        Ok(kept)
    }

    /// Writes the state; it is on disk when this returns. On an error, the file is the old one or the new one.
    pub(crate) fn save(&self, state: &State) -> Result<(), CheckpointError> {
        let path = self.dir.join(FILE);
        let temporary = self.dir.join(format!("{FILE}.new"));
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(&print(state)?)?;
            file.sync_all()?;
            std::fs::rename(&temporary, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(at(&path))?;
        self.remember_first_save()
    }

    fn remember_first_save(&self) -> Result<(), CheckpointError> {
        let path = self.dir.join(LOCK);
        let mut lock: &File = &self._lock;
        let remember = || {
            if lock.metadata()?.len() == 0 {
                lock.write_all(b"a state was written here\n")?;
                lock.sync_all()?;
            }
            Ok(())
        };
        let mut remember = remember;
        remember().map_err(at(&path))
    }
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> CheckpointError {
    move |source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    }
}

fn print(state: &State) -> std::io::Result<Vec<u8>> {
    let content = Content {
        epoch: state.epoch.clone(),
        position: state.position,
        blind_until: state.blind_until,
        entries: state.entries.iter().map(|(key, entry)| (*key, entry.clone())).collect(),
    };
    let content = serde_json::value::to_raw_value(&content)?;
    let envelope = Envelope {
        version: VERSION,
        checksum: checksum(content.get()),
        content,
    };
    Ok(serde_json::to_vec(&envelope)?)
}

fn parse(bytes: &[u8]) -> Result<State, Unusable> {
    let damaged = |error: serde_json::Error| Unusable::Damaged(error.to_string());
    let VersionOnly { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version > VERSION {
        return Err(Unusable::Newer(version));
    }
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(damaged)?;
    if checksum(envelope.content.get()) != envelope.checksum {
        return Err(Unusable::Damaged("the checksum does not match".to_owned()));
    }
    let content: Content = serde_json::from_str(envelope.content.get()).map_err(damaged)?;
    let entries: BTreeMap<AllocationKey, Entry> = content.entries.into_iter().collect();
    Ok(State {
        epoch: content.epoch,
        position: content.position,
        blind_until: content.blind_until,
        entries,
    })
}

fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
