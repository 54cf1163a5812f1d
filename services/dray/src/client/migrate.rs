//! `dray migrate`: brings the database's schema up to date, once the database answers. Run before the services start.

use std::time::{Duration, Instant};

use anyhow::Context;
use store::{Remedy, Store, StoreConfig, StoreError};

use super::table;

/// A server that starts at the same moment as we do is up within this time.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
/// Longest run of one attempt; a migration that is broken off leaves nothing behind.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(600);

/// Which database.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Postgres.
    #[arg(long, env = "DRAY_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: String,
}

/// Applies what is missing; repeating it is harmless, as is running it from many places at once.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    // A URL that cannot be read does not get better by waiting.
    Store::connect(&StoreConfig::new(&args.database_url, "dray-migrate")).context("cannot read the database's URL")?;
    let end = Instant::now() + PATIENCE;
    loop {
        let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, store::migrate(&args.database_url));
        match attempt.await.context("the migration does not end")? {
            Ok(()) => return table::print("the database is up to date"),
            Err(error) if is_passing(&error) && Instant::now() < end => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error).context("cannot bring the database up to date"),
        }
    }
}

/// Only a server that is not there yet is waited for.
fn is_passing(error: &StoreError) -> bool {
    error.remedy() == Remedy::Retry
}
