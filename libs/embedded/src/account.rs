//! The unprivileged account that servers run under when this process is root (Postgres refuses to run as root).

use std::process::Command;

use nix::unistd::{User, geteuid};

use crate::error::EmbeddedError;

/// An operating system account; exists only when this process is root and must step down.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The account to step down to: `None` when we are not root and servers simply run as ourselves.
///
/// Takes `postgres` (made by the distribution's package), else `dray`, which is created when missing.
pub(crate) fn unprivileged() -> Result<Option<Account>, EmbeddedError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "dray"] {
        if let Some(account) = look_up(name)? {
            return Ok(Some(account));
        }
    }
    create("dray")?;
    look_up("dray")?.map(Some).ok_or_else(|| EmbeddedError::NoAccount {
        reason: "useradd made none".into(),
    })
}

fn look_up(name: &str) -> Result<Option<Account>, EmbeddedError> {
    let user = User::from_name(name).map_err(|errno| EmbeddedError::NoAccount {
        reason: errno.to_string(),
    })?;
    Ok(user.map(|user| Account {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    }))
}

fn create(name: &str) -> Result<(), EmbeddedError> {
    let output = Command::new("useradd")
        .args([
            "--system",
            "--user-group",
            "--no-create-home",
            "--shell",
            "/usr/sbin/nologin",
            name,
        ])
        .output()
        .map_err(|error| EmbeddedError::NoAccount {
            reason: format!("useradd: {error}"),
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(EmbeddedError::NoAccount {
        reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
