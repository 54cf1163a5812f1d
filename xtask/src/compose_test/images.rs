//! Images without a registry: one small Debian, made with debootstrap and kept between runs, imported under our own names
//! with the entry points of the official images.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::stack::docker;
use crate::shell;

const POSTGRES: &str = "dray-test/postgres:local";
const NATS: &str = "dray-test/nats:local";
const DRAY: &str = "dray-test/dray:local";

/// What tells docker-compose.yml to use them.
pub(super) const VARIABLES: &[(&str, &str)] = &[
    ("DRAY_POSTGRES_IMAGE", POSTGRES),
    ("DRAY_NATS_IMAGE", NATS),
    ("DRAY_IMAGE", DRAY),
];

/// busybox has the `wget` that NATS's image has.
const PACKAGES: &str = "postgresql,nats-server,busybox";
/// Not needed to run anything.
const LEFT_OUT: &[&str] = &[
    "./var/cache",
    "./var/lib/apt",
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
];
const SERVERS_ONLY: &[&str] = &[
    "./usr/lib/postgresql",
    "./usr/share/postgresql",
    "./usr/share/perl",
    "./usr/sbin/nats-server",
];

/// The account of the `dray` image; any number that is not root's.
const DRAY_ACCOUNT: u32 = 7070;
const DRAY_FOLDERS: &[&str] = &["var/lib/dray", "var/lib/dray/node-agent", "var/lib/kubelet/plugins_registry"];

/// What an image has beside Debian: files and folders that Debian does not have, since Docker takes no path twice.
struct Added<'a> {
    folder: &'a Path,
    paths: &'a [&'a str],
}

/// Removes what [`make`] made, also what a broken-off run left.
pub(super) fn remove() -> anyhow::Result<()> {
    for (_, name) in VARIABLES {
        if !shell::output(&mut docker(&["images", "--quiet", name]))?.is_empty() {
            shell::run(docker(&["image", "rm", "--force", name]).stdout(Stdio::null()))?;
        }
    }
    Ok(())
}

/// Makes the three images; `dray` is the program to put into its image.
pub(super) fn make(folder: &Path, dray: &Path) -> anyhow::Result<()> {
    let debian = debian(&folder.join("rootfs"))?;
    let change = |text: &str| vec!["--change".to_owned(), text.to_owned()];

    let postgres = fresh(&folder.join("postgres"))?;
    write_program(
        &postgres.join("usr/local/bin/entrypoint"),
        include_bytes!("postgres-entrypoint"),
    )?;
    let changes = [
        change(r#"ENTRYPOINT ["entrypoint"]"#),
        change("ENV LANG=C.UTF-8"),
        change("VOLUME /var/lib/postgresql/data"),
    ];
    let added = Added {
        folder: &postgres,
        paths: &["usr/local/bin/entrypoint"],
    };
    import(&debian, LEFT_OUT, &added, &changes.concat(), POSTGRES)?;

    let nats = fresh(&folder.join("nats"))?;
    std::fs::create_dir_all(nats.join("usr/local/bin"))?;
    std::os::unix::fs::symlink("/bin/busybox", nats.join("usr/local/bin/wget"))?;
    let changes = change(r#"ENTRYPOINT ["nats-server"]"#);
    let added = Added {
        folder: &nats,
        paths: &["usr/local/bin/wget"],
    };
    import(&debian, LEFT_OUT, &added, &changes, NATS)?;

    let service = fresh(&folder.join("dray"))?;
    let program = std::fs::read(dray).with_context(|| format!("cannot read {}", dray.display()))?;
    write_program(&service.join("usr/local/bin/dray"), &program)?;
    for name in DRAY_FOLDERS {
        std::fs::create_dir_all(service.join(name))?;
        std::os::unix::fs::chown(service.join(name), Some(DRAY_ACCOUNT), Some(DRAY_ACCOUNT))?;
    }
    let changes = [
        change(r#"ENTRYPOINT ["dray"]"#),
        change(&format!("USER {DRAY_ACCOUNT}:{DRAY_ACCOUNT}")),
    ];
    let left_out = [LEFT_OUT, SERVERS_ONLY].concat();
    let added = Added {
        folder: &service,
        paths: &["usr/local/bin/dray", "var/lib/dray", "var/lib/kubelet"],
    };
    import(&debian, &left_out, &added, &changes.concat(), DRAY)
}

/// A Debian of this machine's own release, so that a program built here runs there, from the mirror that apt uses here.
fn debian(rootfs: &Path) -> anyhow::Result<PathBuf> {
    let made_with = rootfs.with_extension("packages");
    if std::fs::read_to_string(&made_with).is_ok_and(|packages| packages == PACKAGES) {
        return Ok(rootfs.to_owned());
    }
    let (mirror, release) = mirror()?;
    let rootfs = fresh(rootfs)?;
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", &format!("--include={PACKAGES}"), &release]);
    shell::run(command.arg(&rootfs).arg(&mirror).stdin(Stdio::null()).stdout(Stdio::null()))?;
    // Written last: a broken-off run starts again.
    std::fs::write(&made_with, PACKAGES)?;
    Ok(rootfs)
}

/// The first archive that apt reads here which is the release itself and not its updates.
fn mirror() -> anyhow::Result<(String, String)> {
    let release = std::fs::read_to_string("/etc/os-release")?;
    let release = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let release = release
        .context("/etc/os-release names no release")?
        .trim_matches('"')
        .to_owned();
    let mut command = Command::new("apt-get");
    command.args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]);
    let archives = shell::output(&mut command)?;
    let wanted = format!(" {release} main");
    let mirror = archives.lines().find_map(|archive| archive.strip_suffix(&wanted));
    let mirror = mirror.with_context(|| format!("apt has no source of {release} main: run `apt-get update`"))?;
    Ok((mirror.to_owned(), release))
}

/// Packs Debian without some of its parts and what is added, and imports it as one image.
fn import(debian: &Path, left_out: &[&str], added: &Added<'_>, changes: &[String], name: &str) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--numeric-owner"]);
    tar.args(left_out.iter().map(|path| format!("--exclude={path}")));
    tar.arg("--directory").arg(debian).arg(".");
    tar.arg("--directory").arg(added.folder).args(added.paths);
    eprintln!("making {name}");
    let mut packing = tar.stdout(Stdio::piped()).spawn().context("cannot run tar")?;
    let packed = packing.stdout.take().context("tar has no output")?;
    let imported = shell::run(
        docker(&["import"])
            .args(changes)
            .args(["-", name])
            .stdin(packed)
            .stdout(Stdio::null()),
    );
    let packed = packing.wait()?;
    imported?;
    ensure!(packed.success(), "tar failed: {packed}");
    Ok(())
}

fn fresh(folder: &Path) -> anyhow::Result<PathBuf> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder)?;
    Ok(folder.to_owned())
}

fn write_program(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(file.parent().context("a file without a folder")?)?;
    std::fs::write(file, content)?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
