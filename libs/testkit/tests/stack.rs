//! The kit itself: databases are separate, the shared server is one, and owned servers restart.

use std::time::Duration;

use store::{Store, StoreConfig};
use testkit::eventually;

#[tokio::test]
async fn a_fresh_database_is_migrated_and_not_shared() -> anyhow::Result<()> {
    let (first, second) = tokio::try_join!(testkit::fresh_database(), testkit::fresh_database())?;
    assert_ne!(first, second);
    for url in [first, second] {
        let store = Store::connect(&StoreConfig::new(url, "testkit"))?;
        store.head().await?;
        store.close().await;
    }
    Ok(())
}

#[tokio::test]
async fn an_owned_postgres_comes_back_after_a_kill() -> anyhow::Result<()> {
    let (mut postgres, url) = testkit::own_postgres().await?;
    let store = Store::connect(&StoreConfig::new(url, "testkit"))?;
    store.ping().await?;
    postgres.kill9().await;
    assert!(store.ping().await.is_err());
    postgres.restart().await?;
    eventually(Duration::from_secs(10), || store.ping()).await;
    Ok(())
}

#[tokio::test]
async fn each_test_has_its_own_nats() -> anyhow::Result<()> {
    let (first, second) = tokio::try_join!(testkit::stack(), testkit::stack())?;
    assert_ne!(first.nats.url(), second.nats.url());
    assert_ne!(first.database_url, second.database_url);
    Ok(())
}
