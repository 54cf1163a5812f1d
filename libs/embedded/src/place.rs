//! Folders: the default place, making them, giving them to an account, and checking that the account can get there.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, chown, geteuid};

use crate::account::Account;
use crate::error::EmbeddedError;

/// Where servers keep their data unless told otherwise: `/var/lib/dray` for root, else `dray` in the user's XDG data
/// folder. `None` when not root and neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn default_root() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/dray"));
    }
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data_home = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
    data_home.map(|home| home.join("dray"))
}

/// Makes `path` absolute and creates the folders above it, enterable by everyone.
pub(crate) fn make_parents(path: &Path) -> Result<PathBuf, EmbeddedError> {
    let failed = || format!("create the folders above {}", path.display());
    let path = std::path::absolute(path).map_err(EmbeddedError::io(failed()))?;
    if let Some(parent) = path.parent() {
        make(parent, 0o755)?;
    }
    Ok(path)
}

/// Makes a folder (and those above it) with `mode`; one that exists is left as it is.
pub(crate) fn make(path: &Path, mode: u32) -> Result<(), EmbeddedError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(mode);
    builder
        .create(path)
        .map_err(EmbeddedError::io(format!("create {}", path.display())))
}

/// Makes a private folder that belongs to `account` (or to us).
pub(crate) fn make_owned(path: &Path, account: Option<&Account>) -> Result<(), EmbeddedError> {
    make(path, 0o700)?;
    let Some(account) = account else {
        return Ok(());
    };
    chown(path, Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)))
        .map_err(|errno| EmbeddedError::io(format!("give {} to {}", path.display(), account.name))(errno.into()))
}

/// Checks that `account` may enter every folder above `dir`.
///
/// Looks at owner and mode only; access control lists may still say no, and then the server's own message does.
pub(crate) fn check_reachable(dir: &Path, account: Option<&Account>) -> Result<(), EmbeddedError> {
    let Some(account) = account else {
        return Ok(());
    };
    for ancestor in dir.ancestors().skip(1) {
        let meta = std::fs::metadata(ancestor).map_err(EmbeddedError::io(format!("look at {}", ancestor.display())))?;
        let execute_bit = if meta.uid() == account.uid {
            0o100
        } else if meta.gid() == account.gid {
            0o010
        } else {
            0o001
        };
        if meta.mode() & execute_bit == 0 {
            let (dir, ancestor) = (dir.to_owned(), ancestor.to_owned());
            return Err(EmbeddedError::Unreachable {
                account: account.name.clone(),
                dir,
                ancestor,
            });
        }
    }
    Ok(())
}
