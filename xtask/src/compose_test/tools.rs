//! The programs that the test needs, from Debian's packages.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{bail, ensure};

use crate::shell;

/// A program and Debian's package that has it.
const TOOLS: &[(&str, &str)] = &[
    ("dockerd", "docker.io"),
    ("docker", "docker.io"),
    ("docker-compose", "docker-compose"),
    ("debootstrap", "debootstrap"),
];

/// Installs what is missing; an error names what cannot be had.
pub(super) fn install() -> anyhow::Result<()> {
    let wanted = missing();
    if wanted.is_empty() {
        return Ok(());
    }
    ensure!(
        shell::on_path("apt-get"),
        "missing: {}; install them, this system has no apt-get",
        wanted.join(", ")
    );
    apt_get(&["update", "--quiet"])?;
    let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
    apt_get(&[install.as_slice(), &wanted].concat())?;
    match missing() {
        still if still.is_empty() => Ok(()),
        still => bail!("installed {}, but the programs are still not found", still.join(", ")),
    }
}

/// Packages whose programs are not found, each once.
fn missing() -> Vec<&'static str> {
    let found = |program: &str| shell::on_path(program) || Path::new("/usr/sbin").join(program).is_file();
    let absent = TOOLS.iter().filter(|(program, _)| !found(program));
    let mut packages: Vec<&str> = absent.map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn apt_get(args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    shell::run(
        command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null()),
    )
}
