//! What the machine must have: Postgres and nats-server. Installs Debian's packages when it can, else says what to do.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::bail;
use nix::unistd::geteuid;

use crate::shell;

/// Makes sure that both servers are installed.
///
/// As root on a Debian-like system, missing ones are installed (Debian also starts a cluster of its own, which Dray does
/// not use). Otherwise an error says what to install.
pub(crate) fn servers() -> anyhow::Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    if !(geteuid().is_root() && shell::on_path("apt-get")) {
        bail!(
            "missing: {}; install them, e.g. `sudo apt-get install {}`",
            missing.join(", "),
            missing.join(" ")
        );
    }
    apt_get(&["update", "--quiet"])?;
    apt_get(
        &[
            &["install", "--yes", "--quiet", "--no-install-recommends"],
            missing.as_slice(),
        ]
        .concat(),
    )?;
    match missing_packages() {
        still if still.is_empty() => Ok(()),
        still => bail!("installed {}, but the programs are still not found", still.join(", ")),
    }
}

/// Debian's names of the packages whose programs are nowhere to be found.
fn missing_packages() -> Vec<&'static str> {
    let found = [("postgresql", has_postgres()), ("nats-server", has_nats())];
    found
        .iter()
        .filter(|(_, found)| !found)
        .map(|(package, _)| *package)
        .collect()
}

/// Debian keeps each major version in a folder of its own that is not on `PATH`.
fn has_postgres() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    debian
        .chain(path_folders())
        .any(|bin| bin.join("postgres").is_file() && bin.join("initdb").is_file())
}

fn has_nats() -> bool {
    let usual = ["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    path_folders().chain(usual).any(|folder| folder.join("nats-server").is_file())
}

fn path_folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

fn apt_get(args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(Path::new("apt-get"));
    shell::run(
        command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null()),
    )
}
