//! Where the servers' binaries are: a named folder, `PATH`, then the places distributions use.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::EmbeddedError;

/// Debian keeps one folder per major version here and puts none of them on `PATH`.
const DEBIAN_POSTGRES: &str = "/usr/lib/postgresql";

/// The folder that holds `postgres` and `initdb`.
///
/// - `named`: when given, nothing else is tried.
/// - `version`: the major version of an existing data directory; only this version can open it, so it is preferred.
pub(crate) fn postgres_folder(named: Option<&Path>, version: Option<&str>) -> Result<PathBuf, EmbeddedError> {
    let folders = match named {
        Some(folder) => vec![folder.to_owned()],
        None => [debian_postgres(version), path_folders(), debian_postgres(None)].concat(),
    };
    let holds_both = |folder: &&PathBuf| folder.join("postgres").is_file() && folder.join("initdb").is_file();
    match folders.iter().find(holds_both) {
        Some(folder) => Ok(folder.clone()),
        None => Err(missing("postgres", folders, DEBIAN_POSTGRES, "apt-get install postgresql")),
    }
}

/// The `nats-server` binary; `named` is the file itself and, when given, nothing else is tried.
pub(crate) fn nats_server(named: Option<&Path>) -> Result<PathBuf, EmbeddedError> {
    let files = match named {
        Some(file) => vec![file.to_owned()],
        None => {
            let usual = ["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from).to_vec();
            let folders = [path_folders(), usual].concat();
            folders.iter().map(|folder| folder.join("nats-server")).collect()
        }
    };
    match files.iter().find(|file| file.is_file()) {
        Some(file) => Ok(file.clone()),
        None => Err(missing("nats-server", files, "/usr/sbin", "apt-get install nats-server")),
    }
}

/// Debian's version folders, newest first; only the given version when there is one.
fn debian_postgres(version: Option<&str>) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(DEBIAN_POSTGRES) else {
        return Vec::new();
    };
    let number = |name: &OsStr| name.to_str().and_then(|name| name.parse::<u32>().ok());
    let mut versions: Vec<u32> = entries.flatten().filter_map(|entry| number(&entry.file_name())).collect();
    versions.sort_by_key(|version| Reverse(*version));
    let wanted = |found: &u32| version.is_none_or(|version| version == found.to_string());
    versions
        .iter()
        .filter(|found| wanted(found))
        .map(|found| folder_of(*found))
        .collect()
}

fn folder_of(version: u32) -> PathBuf {
    Path::new(DEBIAN_POSTGRES).join(version.to_string()).join("bin")
}

fn path_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default()
}

fn missing(binary: &'static str, mut searched: Vec<PathBuf>, usual_place: &str, install: &'static str) -> EmbeddedError {
    if searched.is_empty() {
        searched.push(PathBuf::from(usual_place));
    }
    EmbeddedError::MissingBinary {
        binary,
        searched,
        install,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_folder_without_postgres_is_an_error_that_says_what_to_install() {
        let error = postgres_folder(Some(Path::new("/nonexistent")), None).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
        assert!(error.to_string().contains("apt-get install postgresql"), "{error}");
    }

    #[test]
    fn a_named_nats_server_is_not_replaced_by_another() {
        let error = nats_server(Some(Path::new("/nonexistent/nats-server"))).unwrap_err();
        assert!(matches!(error, EmbeddedError::MissingBinary { searched, .. } if searched.len() == 1));
    }
}
