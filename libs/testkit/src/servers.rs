//! Postgres and NATS for tests.
//!
//! Postgres is shared by the tests of one binary, each with a database of its own cloned from a migrated template. NATS
//! subjects are global to a server, so each test that talks gets a server of its own (some tens of milliseconds).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use embedded::{Nats, NatsConfig, Postgres, PostgresConfig};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::folders::{open_tempdir, sweep};

/// The database that holds the migrated schema and nothing else; every test's database is a copy.
const TEMPLATE: &str = "migrated";

/// A server that belongs to one test: it may stop, kill and restart it. Server and folder go when this is dropped.
#[derive(Debug)]
pub struct Owned<S> {
    server: S,
    // Dropped after the server, in declaration order.
    _dir: TempDir,
}

impl<S> Deref for Owned<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.server
    }
}

impl<S> DerefMut for Owned<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.server
    }
}

/// What most tests of a service need: a migrated database on the shared server, and a NATS server.
#[derive(Debug)]
pub struct Stack {
    /// URL of a database that only this test uses.
    pub database_url: String,
    /// A server that only this test uses.
    pub nats: Owned<Nats>,
}

/// A fresh database and a fresh NATS server.
pub async fn stack() -> anyhow::Result<Stack> {
    let (database_url, nats) = tokio::try_join!(fresh_database(), nats())?;
    Ok(Stack { database_url, nats })
}

/// The URL of a new database with all migrations applied.
pub async fn fresh_database() -> anyhow::Result<String> {
    static MIGRATED: OnceCell<()> = OnceCell::const_new();
    let postgres = shared_postgres().await?;
    MIGRATED.get_or_try_init(|| make_template(postgres)).await?;
    new_database(postgres, Some(TEMPLATE)).await
}

/// The URL of a new database without any table, for tests of the migrations themselves.
pub async fn empty_database() -> anyhow::Result<String> {
    new_database(shared_postgres().await?, None).await
}

/// The Postgres server that all tests of this binary share. Never stop it; use [`own_postgres`] to be cruel.
pub async fn shared_postgres() -> anyhow::Result<&'static Postgres> {
    static SHARED: OnceCell<Owned<Postgres>> = OnceCell::const_new();
    let server = SHARED
        .get_or_try_init(|| async {
            tokio::task::spawn_blocking(sweep).await?;
            start_postgres("off").await
        })
        .await?;
    Ok(server)
}

/// A Postgres server for one test, and the URL of a migrated database on it. `fsync` is on, as tests kill it.
pub async fn own_postgres() -> anyhow::Result<(Owned<Postgres>, String)> {
    let postgres = start_postgres("on").await?;
    make_template(&postgres).await?;
    let url = new_database(&postgres, Some(TEMPLATE)).await?;
    Ok((postgres, url))
}

/// A NATS server with JetStream for one test.
pub async fn nats() -> anyhow::Result<Owned<Nats>> {
    let dir = open_tempdir()?;
    let server = Nats::start(NatsConfig::new(dir.path().join("nats"))).await?;
    Ok(Owned { server, _dir: dir })
}

async fn start_postgres(fsync: &str) -> anyhow::Result<Owned<Postgres>> {
    let dir = open_tempdir()?;
    let config = PostgresConfig::new(dir.path().join("postgres"))
        .with_setting("fsync", fsync)
        .with_setting("shared_buffers", "64MB")
        .with_setting("min_wal_size", "32MB");
    let server = Postgres::start(config).await?;
    Ok(Owned { server, _dir: dir })
}

async fn make_template(postgres: &Postgres) -> anyhow::Result<()> {
    postgres.create_database(TEMPLATE, None).await?;
    store::migrate(&postgres.url_of(TEMPLATE)).await?;
    Ok(())
}

async fn new_database(postgres: &Postgres, template: Option<&str>) -> anyhow::Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    postgres.create_database(&name, template).await?;
    Ok(postgres.url_of(&name))
}
