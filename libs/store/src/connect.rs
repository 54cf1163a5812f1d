//! The connection pool, its time limits, and bringing the schema up to date.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::StoreError;

/// How to reach Postgres.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `postgres://user@host:port/database`.
    pub url: String,
    /// Connections of this process, at most; reads queue for one when all are busy.
    pub connections_max: u32,
    /// Shown in `pg_stat_activity`.
    pub application: String,
}

impl StoreConfig {
    /// Eight connections to `url`.
    pub fn new(url: impl Into<String>, application: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            connections_max: 8,
            application: application.into(),
        }
    }
}

/// A handle on the database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) pool: PgPool,
}

/// Longest run of one statement. A stuck writer is ended by the server after this time, so that readers behind it go on.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the writers' lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

impl Store {
    /// Opens the pool. Does not wait for the database: the first statement does, within its own deadline.
    ///
    /// Errors: `Unavailable` if the URL cannot be read.
    pub fn connect(config: &StoreConfig) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(&config.url)
            .map_err(StoreError::Unavailable)?
            .application_name(&config.application)
            .statement_cache_capacity(64)
            .options([
                ("statement_timeout", STATEMENT_TIMEOUT.as_millis().to_string()),
                ("lock_timeout", LOCK_TIMEOUT.as_millis().to_string()),
                (
                    "idle_in_transaction_session_timeout",
                    STATEMENT_TIMEOUT.as_millis().to_string(),
                ),
                ("synchronous_commit", "on".to_owned()),
                ("jit", "off".to_owned()),
            ]);
        let pool = PgPoolOptions::new()
            .max_connections(config.connections_max)
            .acquire_timeout(Duration::from_secs(10))
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Answers when the database answers.
    ///
    /// Errors: `Unavailable`.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Closes all connections; waits for statements in flight.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Applies the migrations that are missing. Safe to call from many processes at once.
///
/// Errors: `Unavailable`; `Corrupt` if an applied migration differs from ours.
pub async fn migrate(url: &str) -> Result<(), StoreError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(StoreError::Unavailable)?
        .application_name("dray-migrate");
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await?;
    let done = sqlx::migrate!("../../migrations").run(&pool).await;
    pool.close().await;
    done.map_err(|error| match error {
        sqlx::migrate::MigrateError::Execute(cause) => StoreError::from(cause),
        other => StoreError::Corrupt(other.to_string()),
    })
}
