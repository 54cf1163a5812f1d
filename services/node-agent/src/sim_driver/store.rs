//! What the simulated driver has prepared: in memory, and in a file if it is to survive the driver.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A device that was prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prepared {
    pub(super) request: String,
    pub(super) pool: String,
    pub(super) device: String,
}

/// Prepared devices by claim uid.
#[derive(Debug)]
pub(super) struct Store {
    claims: BTreeMap<String, Vec<Prepared>>,
    file: Option<PathBuf>,
}

impl Store {
    /// Reads `file`, if there is one.
    pub(super) fn open(file: Option<&Path>) -> std::io::Result<Self> {
        let read = match file.map(std::fs::read) {
            None => None,
            Some(Ok(bytes)) => Some(serde_json::from_slice(&bytes)?),
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => None,
            Some(Err(error)) => return Err(error),
        };
        Ok(Self {
            claims: read.unwrap_or_default(),
            file: file.map(Path::to_owned),
        })
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Vec<Prepared>> {
        self.claims.get(uid)
    }

    pub(super) fn uids(&self) -> Vec<String> {
        self.claims.keys().cloned().collect()
    }

    pub(super) fn insert(&mut self, uid: &str, devices: Vec<Prepared>) -> std::io::Result<()> {
        self.claims.insert(uid.to_owned(), devices);
        self.save()
    }

    pub(super) fn remove(&mut self, uid: &str) -> std::io::Result<()> {
        if self.claims.remove(uid).is_some() {
            self.save()
        } else {
            Ok(())
        }
    }

    fn save(&self) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let temporary = file.with_extension("new");
        let mut new = std::fs::File::create(&temporary)?;
        new.write_all(&serde_json::to_vec(&self.claims)?)?;
        new.sync_all()?;
        std::fs::rename(temporary, file)
    }
}
