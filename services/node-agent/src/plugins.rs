//! The drivers that are registered now, each with its instances in the order of their registration.
//!
//! A driver has two instances during an upgrade; calls go to the newest that answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use resource_api::DriverName;
use tokio::sync::watch;

use crate::allocation::{Allocation, AllocationKey, PreparedDevice};
use crate::plugin::{CallError, Plugin};

type Table = BTreeMap<DriverName, Vec<Plugin>>;

/// The table of drivers; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Plugins {
    table: watch::Sender<Table>,
}

/// The same endpoint is registered for this driver already.
#[derive(Debug, thiserror::Error)]
#[error("endpoint {endpoint} is already registered for DRA driver {driver}")]
pub(crate) struct AlreadyRegistered {
    driver: DriverName,
    endpoint: String,
}

impl Plugins {
    pub(crate) fn new() -> Self {
        Self {
            table: watch::Sender::new(Table::new()),
        }
    }

    /// Tells when the table changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Table> {
        self.table.subscribe()
    }

    /// The names of all registered drivers.
    pub(crate) fn drivers(&self) -> BTreeSet<DriverName> {
        self.table.borrow().keys().cloned().collect()
    }

    /// Adds an instance as the newest of its driver.
    pub(crate) fn add(&self, plugin: Plugin) -> Result<(), AlreadyRegistered> {
        let taken = AlreadyRegistered {
            driver: plugin.driver.clone(),
            endpoint: plugin.endpoint.display().to_string(),
        };
        let added = self.table.send_if_modified(|table| {
            let instances = table.entry(plugin.driver.clone()).or_default();
            let is_new = instances.iter().all(|instance| instance.endpoint != plugin.endpoint);
            if is_new {
                instances.push(plugin);
            }
            is_new
        });
        if added { Ok(()) } else { Err(taken) }
    }

    /// Removes an instance, and the driver with its last one.
    pub(crate) fn remove(&self, driver: &DriverName, endpoint: &Path) {
        self.table.send_modify(|table| {
            if let Some(instances) = table.get_mut(driver) {
                instances.retain(|instance| instance.endpoint != endpoint);
                if instances.is_empty() {
                    table.remove(driver);
                }
            }
        });
    }

    /// Prepares at the newest instance that can be reached.
    pub(crate) async fn prepare(
        &self,
        driver: &DriverName,
        key: AllocationKey,
        allocation: &Allocation,
    ) -> Result<Vec<PreparedDevice>, CallError> {
        let mut outcome = Err(CallError::NotRegistered(driver.clone()));
        for plugin in self.newest_first(driver) {
            outcome = plugin.prepare(key, allocation).await;
            if !outcome.as_ref().is_err_and(CallError::is_unreachable) {
                break;
            }
        }
        outcome
    }

    /// Unprepares at the newest instance that can be reached: instances share their state on disk.
    pub(crate) async fn unprepare(
        &self,
        driver: &DriverName,
        key: AllocationKey,
        allocation: &Allocation,
    ) -> Result<(), CallError> {
        let mut outcome = Err(CallError::NotRegistered(driver.clone()));
        for plugin in self.newest_first(driver) {
            outcome = plugin.unprepare(key, allocation).await;
            if !outcome.as_ref().is_err_and(CallError::is_unreachable) {
                break;
            }
        }
        outcome
    }

    fn newest_first(&self, driver: &DriverName) -> Vec<Plugin> {
        let table = self.table.borrow();
        table.get(driver).into_iter().flatten().rev().cloned().collect()
    }
}
