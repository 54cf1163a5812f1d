//! What can go wrong with an embedded server, by what its user can do about it.

use std::path::PathBuf;
use std::time::Duration;

/// A server could not be found, prepared, started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// Nothing to run: the text says where we looked and what to install.
    #[error("{binary} not found (looked in {}); install it with `{install}` or name its folder", list(.searched))]
    MissingBinary {
        binary: &'static str,
        searched: Vec<PathBuf>,
        install: &'static str,
    },
    /// We are root, servers refuse to run as root, and there is no other account to run them under.
    #[error("no unprivileged account to run servers under; create one with `useradd --system dray`: {reason}")]
    NoAccount { reason: String },
    /// The account the server runs under may not enter a folder above its data directory.
    #[error("account {account} may not enter {}, which is above the data directory {}", .ancestor.display(), .dir.display())]
    Unreachable {
        account: String,
        dir: PathBuf,
        ancestor: PathBuf,
    },
    /// Another living server owns the data directory.
    #[error("{} is in use by the running server with process id {pid}", .dir.display())]
    InUse { dir: PathBuf, pid: i32 },
    /// The folder holds something that is not ours; we do not delete it.
    #[error("{} is not empty and not a Postgres data directory; name another folder", .dir.display())]
    NotADataDirectory { dir: PathBuf },
    /// A program ran and failed; `output` is the end of what it wrote.
    #[error("{program} failed: {output}")]
    Failed { program: &'static str, output: String },
    /// The server did not become ready, or did not end, in time; `output` is the end of its log.
    #[error("{program} was not {awaited} after {after:?}: {output}")]
    Deadline {
        program: &'static str,
        awaited: &'static str,
        after: Duration,
        output: String,
    },
    /// A file or process operation failed.
    #[error("cannot {what}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

impl EmbeddedError {
    /// Returns a function that wraps an I/O error with what was being done, for `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            what: what.into(),
            source,
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(", ")
}
