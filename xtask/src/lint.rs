//! `cargo xtask lint`: format, clippy, the architecture, licences and sources of dependencies.

use crate::{shell, tidy};

/// Runs every check and fails at the first that finds something.
pub(crate) fn run() -> anyhow::Result<()> {
    shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    tidy::run()?;
    shell::run(shell::cargo().args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    if shell::on_path("cargo-deny") {
        shell::run(shell::cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]))?;
    } else {
        eprintln!("cargo-deny is not installed: licences and sources were checked by tidy only");
    }
    eprintln!("lint: ok");
    Ok(())
}
