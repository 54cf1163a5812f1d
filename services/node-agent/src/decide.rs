//! What to do next for each claim: wanted × local state × drivers → at most one step per claim. Pure.
//!
//! Drivers know a claim by its uid alone, so all calls for one uid take turns, and an older allocation ends before a
//! newer one begins. An allocation that began to end is never prepared again: a late prepare cannot win.

use std::collections::BTreeSet;

use resource_api::{DriverName, Uid};

use crate::allocation::AllocationKey;
use crate::desired::{Desired, Wish};
use crate::state::{Entry, Phase, State};

/// A call to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operation {
    Prepare,
    Unprepare,
}

/// What is known of the drivers and the calls to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drivers {
    pub(crate) registered: BTreeSet<DriverName>,
    /// Claims with a call on its way.
    pub(crate) open: BTreeSet<Uid>,
    /// Calls that failed and must not be repeated yet.
    pub(crate) resting: BTreeSet<(AllocationKey, DriverName, Operation)>,
}

/// One thing to do. Calls are made after the state that they lead to is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Call {
        key: AllocationKey,
        driver: DriverName,
        operation: Operation,
    },
    /// An earlier life, now forgotten, may have prepared it: its drivers are asked.
    Adopt { key: AllocationKey },
    /// From now on it is unprepared.
    End { key: AllocationKey },
    /// No driver holds anything: it is over.
    Conclude { key: AllocationKey },
    /// Nothing can be done until this driver registers.
    Wait { key: AllocationKey, driver: DriverName },
}

/// The next step of every claim that can take one.
///
/// - `desired`: `None` until the server's list has come; then only what began to end goes on.
/// - Applying the steps and deciding again ends: each claim moves forward or waits for a driver.
pub(crate) fn decide(desired: Option<&Desired>, state: &State, drivers: &Drivers) -> Vec<Step> {
    let wished = desired.into_iter().flat_map(|desired| desired.wishes.keys());
    let claims: BTreeSet<Uid> = state.entries.keys().chain(wished).map(|key| key.claim).collect();
    let free = claims.into_iter().filter(|claim| !drivers.open.contains(claim));
    free.filter_map(|claim| decide_claim(claim, desired, state, drivers))
        .collect()
}

fn decide_claim(claim: Uid, desired: Option<&Desired>, state: &State, drivers: &Drivers) -> Option<Step> {
    for (key, entry) in state.of(claim) {
        match entry.phase {
            Phase::Ended => {}
            Phase::Ending => return unprepare(key, entry, drivers),
            Phase::Wanted if desired.is_some_and(|desired| !wants(desired, key)) => return Some(Step::End { key }),
            Phase::Wanted => {}
        }
    }
    let desired = desired?;
    let in_use = state.of(claim).any(|(_, entry)| entry.phase == Phase::Wanted);
    for (key, wish) in desired.of(claim).filter(|(key, _)| !state.entries.contains_key(key)) {
        // What is in use under this uid cannot be told apart by its driver from what an earlier life prepared.
        if key.sequence <= state.blind_until && !in_use && !wish.allocation.devices.is_empty() {
            return Some(Step::Adopt { key });
        }
        if !wants(desired, key) {
            return Some(Step::Conclude { key });
        }
    }
    let (key, wish) = desired.wanted(claim)?;
    prepare(key, wish, state.entries.get(&key), drivers)
}

fn wants(desired: &Desired, key: AllocationKey) -> bool {
    desired.wanted(key.claim).is_some_and(|(wanted, _)| wanted == key)
}

/// Nothing is begun before all drivers are there: a claim that was never given to a driver has nothing to undo.
fn prepare(key: AllocationKey, wish: &Wish, entry: Option<&Entry>, drivers: &Drivers) -> Option<Step> {
    if entry.is_some_and(|entry| entry.phase != Phase::Wanted) {
        return None;
    }
    let has_prepared = |driver: &DriverName| entry.is_some_and(|entry| entry.has_prepared(driver));
    let todo: Vec<&DriverName> = wish
        .allocation
        .drivers()
        .into_iter()
        .filter(|driver| !has_prepared(driver))
        .collect();
    if let Some(missing) = todo.iter().find(|driver| !drivers.registered.contains(**driver)) {
        return Some(Step::Wait {
            key,
            driver: (*missing).clone(),
        });
    }
    call(key, todo.first()?, Operation::Prepare, drivers)
}

/// Drivers that are there are asked first, so that one that is missing holds up only its own devices.
fn unprepare(key: AllocationKey, entry: &Entry, drivers: &Drivers) -> Option<Step> {
    if entry.drivers.is_empty() {
        return Some(Step::Conclude { key });
    }
    let (here, missing): (Vec<_>, Vec<_>) = entry.drivers.keys().partition(|driver| drivers.registered.contains(*driver));
    let next = here
        .into_iter()
        .find_map(|driver| call(key, driver, Operation::Unprepare, drivers));
    next.or_else(|| {
        missing.first().map(|driver| Step::Wait {
            key,
            driver: (*driver).clone(),
        })
    })
}

fn call(key: AllocationKey, driver: &DriverName, operation: Operation, drivers: &Drivers) -> Option<Step> {
    let resting = drivers.resting.contains(&(key, driver.clone(), operation));
    (!resting).then(|| Step::Call {
        key,
        driver: driver.clone(),
        operation,
    })
}

#[cfg(test)]
mod tests;
