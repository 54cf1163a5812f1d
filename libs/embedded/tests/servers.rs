//! Starts real servers: data survives stops and crashes, and nothing outlives its handle.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use embedded::{EmbeddedError, Nats, NatsConfig, Postgres, PostgresConfig};

/// A folder that the servers' account may enter.
fn open_tempdir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn small(data_dir: impl AsRef<Path>) -> PostgresConfig {
    let config = PostgresConfig::new(data_dir.as_ref()).with_setting("fsync", "off");
    config
        .with_setting("shared_buffers", "16MB")
        .with_setting("max_connections", "20")
}

fn sql(url: &str, statement: &str) -> String {
    let output = Command::new("psql")
        .args(["-v", "ON_ERROR_STOP=1", "-tAc", statement, url])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn is_alive(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    status.is_ok_and(|stat| !stat.contains(") Z "))
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), poll).await.unwrap();
}

#[tokio::test]
async fn postgres_keeps_data_over_stop_crash_and_a_second_start() {
    let dir = open_tempdir();
    let config = small(dir.path().join("pg"));
    let mut postgres = Postgres::start(config.clone()).await.unwrap();
    assert_eq!(sql(&postgres.url(), "SHOW server_encoding"), "UTF8");
    assert_eq!(sql(&postgres.url(), "SHOW lc_collate"), "C");
    postgres.create_database("truth", None).await.unwrap();
    postgres.create_database("truth", None).await.unwrap();
    let url = postgres.url_of("truth");
    sql(&url, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");

    postgres.restart().await.unwrap();
    assert_eq!(postgres.url_of("truth"), url, "the port survives a restart");
    sql(&url, "INSERT INTO t VALUES (2)");

    postgres.kill9().await;
    assert_eq!(postgres.pid(), None);
    postgres.restart().await.unwrap();
    assert_eq!(sql(&url, "SELECT sum(n) FROM t"), "3");

    postgres.create_database("copy", Some("truth")).await.unwrap();
    assert_eq!(sql(&postgres.url_of("copy"), "SELECT sum(n) FROM t"), "3");
    postgres.stop().await.unwrap();
    drop(postgres);

    let again = Postgres::start(config).await.unwrap();
    assert_eq!(sql(&again.url_of("truth"), "SELECT sum(n) FROM t"), "3");
}

#[tokio::test]
async fn defaults_are_durable() {
    let dir = open_tempdir();
    let postgres = Postgres::start(PostgresConfig::new(dir.path().join("pg"))).await.unwrap();
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("shared_buffers", "512MB"),
        ("max_connections", "200"),
    ] {
        assert_eq!(sql(&postgres.url(), &format!("SHOW {setting}")), value);
    }
}

#[tokio::test]
async fn a_data_directory_in_use_is_refused_and_a_dropped_server_is_gone() {
    let dir = open_tempdir();
    let config = small(dir.path().join("pg"));
    let postgres = Postgres::start(config.clone()).await.unwrap();
    let pid = postgres.pid().unwrap();
    match Postgres::start(config.clone()).await {
        Err(EmbeddedError::InUse { pid: found, .. }) => assert_eq!(found, pid),
        other => panic!("expected InUse, got {other:?}"),
    }
    drop(postgres);
    eventually(|| !is_alive(pid)).await;
    Postgres::start(config).await.unwrap();
}

#[tokio::test]
async fn a_foreign_folder_is_left_alone() {
    let dir = open_tempdir();
    let foreign = dir.path().join("pg");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("thesis.txt"), "three years of work").unwrap();
    let error = Postgres::start(small(&foreign)).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::NotADataDirectory { .. }), "{error}");
    assert!(foreign.join("thesis.txt").exists());
}

#[tokio::test]
async fn a_wrong_setting_shows_what_postgres_said() {
    let dir = open_tempdir();
    let config = small(dir.path().join("pg")).with_setting("shared_buffers", "lots");
    let error = Postgres::start(config).await.unwrap_err();
    assert!(error.to_string().contains("invalid value for parameter"), "{error}");
}

#[tokio::test]
async fn a_long_path_leaves_tcp_only() {
    let dir = open_tempdir();
    let postgres = Postgres::start(small(dir.path().join("x".repeat(90)).join("pg")))
        .await
        .unwrap();
    assert_eq!(sql(&postgres.url(), "SHOW unix_socket_directories"), "");
}

#[tokio::test]
async fn nats_has_jetstream_and_keeps_its_port() {
    let dir = open_tempdir();
    let mut nats = Nats::start(NatsConfig::new(dir.path().join("nats"))).await.unwrap();
    let url = nats.url();
    assert!(std::fs::read_to_string(nats.log()).unwrap().contains("Starting JetStream"));
    nats.restart().await.unwrap();
    nats.kill9().await;
    assert_eq!(nats.pid(), None);
    nats.restart().await.unwrap();
    nats.wipe().await.unwrap();
    assert_eq!(nats.url(), url);
    let pid = nats.pid().unwrap();
    nats.stop().await.unwrap();
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_private_folder_above_the_data_directory_is_named() {
    if !nix::unistd::geteuid().is_root() {
        return; // only root steps down to an account that may be kept out
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = Postgres::start(small(dir.path().join("pg"))).await.unwrap_err();
    assert!(
        matches!(&error, EmbeddedError::Unreachable { ancestor, .. } if ancestor == dir.path()),
        "{error}"
    );
}

#[tokio::test]
async fn a_wished_port_that_is_taken_is_an_error_at_once() {
    let dir = open_tempdir();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = Some(taken.local_addr().unwrap().port());
    let config = PostgresConfig {
        port,
        ..small(dir.path().join("pg"))
    };
    let error = Postgres::start(config).await.unwrap_err();
    assert!(error.to_string().contains("Address already in use"), "{error}");
    let config = NatsConfig {
        port,
        ..NatsConfig::new(dir.path().join("nats"))
    };
    let error = Nats::start(config).await.unwrap_err();
    assert!(error.to_string().contains("address already in use"), "{error}");
}

/// Not a test by itself: the parent process that the next test kills.
#[tokio::test]
#[ignore = "run by servers_end_when_their_parent_is_killed, which kills it"]
async fn parent_to_be_killed() {
    let dir = std::path::PathBuf::from(std::env::var_os("SERVERS_DIR").unwrap());
    let postgres = Postgres::start(small(dir.join("pg"))).await.unwrap();
    let nats = Nats::start(NatsConfig::new(dir.join("nats"))).await.unwrap();
    let pids = format!("{} {}", postgres.pid().unwrap(), nats.pid().unwrap());
    std::fs::write(dir.join("pids.new"), pids).unwrap();
    std::fs::rename(dir.join("pids.new"), dir.join("pids")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn servers_end_when_their_parent_is_killed() {
    let dir = open_tempdir();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "parent_to_be_killed"])
        .env("SERVERS_DIR", dir.path())
        .spawn()
        .unwrap();
    eventually(|| dir.path().join("pids").exists()).await;
    parent.kill().unwrap();
    parent.wait().unwrap();
    let pids = std::fs::read_to_string(dir.path().join("pids")).unwrap();
    for pid in pids.split(' ') {
        let pid = pid.parse().unwrap();
        eventually(|| !is_alive(pid)).await;
    }
    Postgres::start(small(dir.path().join("pg"))).await.unwrap();
}
