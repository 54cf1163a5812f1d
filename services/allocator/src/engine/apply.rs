//! Events of the log into the engine's state. Applying one twice, or one that is older than what was loaded, changes nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use resource_api::claim::DeviceRequestAllocationResult;
use resource_api::class::DeviceClass;
use resource_api::ids::{DeviceId, PoolId};
use resource_api::node::Node;
use resource_api::shard::pool_shard;
use resource_api::slice::ResourceSlice;
use resource_api::taint::DeviceTaintRule;
use resource_api::unit::{Unit, UnitPhase};
use serde::Deserialize;
use store::{EventRow, Operation, Stored};
use uuid::Uuid;

use super::gates::HeldDevice;
use super::queue::Place;
use super::{Engine, PoolFacts, State, Waiting, WaitingClaim};

/// What happened since the last wake that could help someone.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) freed: Vec<DeviceId>,
    pub(super) pools: BTreeSet<PoolId>,
    /// Pools with counters in which something became free: any of their devices may fit now.
    pub(super) relieved: BTreeSet<PoolId>,
    pub(super) classes: BTreeSet<Arc<str>>,
    /// Feature gates were switched.
    pub(super) gates: bool,
    /// Nodes came, went or changed: anything may fit now.
    pub(super) everything: bool,
}

/// The part of a claim that says what it holds.
#[derive(Deserialize)]
struct ClaimHolds {
    status: Option<StatusHolds>,
}
#[derive(Deserialize)]
struct StatusHolds {
    allocation: Option<AllocationHolds>,
}
#[derive(Deserialize)]
struct AllocationHolds {
    devices: Option<DevicesHold>,
}
#[derive(Deserialize)]
struct DevicesHold {
    #[serde(default)]
    results: Vec<DeviceRequestAllocationResult>,
}

impl Engine {
    pub(super) fn on_loaded(&mut self, object: Stored) {
        self.loaded.insert(object.uid, object.sequence);
        self.apply(&Change {
            sequence: object.sequence,
            created: object.created_sequence,
            kind: &object.kind,
            name: &object.name,
            uid: object.uid,
            deleted: false,
            body: &object.body,
            trace: None,
        });
    }

    pub(super) fn on_event(&mut self, event: &EventRow) {
        if self.loaded.get(&event.uid).is_some_and(|loaded| *loaded >= event.sequence) {
            return;
        }
        self.apply(&Change {
            sequence: event.sequence,
            created: event.sequence,
            kind: &event.kind,
            name: &event.name,
            uid: event.uid,
            deleted: event.operation == Operation::Deleted,
            body: &event.body,
            trace: event.trace.clone(),
        });
    }

    fn apply(&mut self, change: &Change<'_>) {
        self.position = self.position.max(change.sequence);
        let applied = match change.kind {
            "resourceclaims" => self.on_claim(change),
            "units" => self.on_unit(change),
            "resourceslices" => self.on_slice(change),
            "deviceclasses" => self.on_class(change),
            "nodes" => self.on_node(change),
            "devicetaintrules" => self.on_taint_rule(change),
            store::GATES_KIND => self.on_gates(change),
            _ => Ok(()),
        };
        if let Err(error) = applied {
            // Admission keeps such objects out; one that is there all the same must not stop the others.
            tracing::error!(kind = change.kind, name = %change.name, sequence = change.sequence, %error, "an object cannot be read");
        }
    }

    fn on_claim(&mut self, change: &Change<'_>) -> Result<(), serde_json::Error> {
        let results = if change.deleted || !change.body.contains("\"allocation\":") {
            None
        } else {
            let holds: ClaimHolds = serde_json::from_str(change.body)?;
            holds
                .status
                .and_then(|s| s.allocation)
                .map(|a| a.devices.map(|d| d.results).unwrap_or_default())
        };
        match results {
            Some(results) => {
                self.claims.remove(&change.uid);
                let is_new = self.held.insert(change.uid, HeldDevice::of(&results)).is_none();
                self.cluster.take(change.uid.into(), &results);
                if is_new {
                    // Whoever waits for a share learns that what is left may do for it as well.
                    let shares = results.iter().filter(|result| result.share_id.is_some());
                    self.changes
                        .freed
                        .extend(shares.map(DeviceRequestAllocationResult::device_id));
                }
            }
            None => {
                // A claim with a commit under way keeps what was taken for it until that is settled, unless it is gone.
                if self.held.remove(&change.uid).is_some() || change.deleted {
                    self.let_go(change.uid);
                }
                if change.deleted {
                    self.claims.remove(&change.uid);
                } else if self
                    .claims
                    .get(&change.uid)
                    .is_none_or(|known| known.sequence < change.sequence)
                {
                    self.claims.insert(
                        change.uid,
                        WaitingClaim {
                            sequence: change.sequence,
                            body: change.body.clone(),
                        },
                    );
                }
            }
        }
        Ok(())
    }

    /// What the claim had is free.
    pub(super) fn let_go(&mut self, claim: Uuid) {
        let freed = self.cluster.release(claim.into());
        for device in &freed {
            let pool = device.pool_id();
            if self.pools.get(&pool).is_some_and(|facts| facts.counted) {
                self.changes.relieved.insert(pool);
            }
        }
        self.changes.freed.extend(freed);
    }

    /// Units that were seen before all of their claims: kinds arrive side by side.
    pub(super) fn complete_units(&mut self) {
        let units: Vec<Uuid> = self.incomplete.iter().copied().collect();
        for unit in units {
            self.enter(unit);
        }
    }

    fn on_unit(&mut self, change: &Change<'_>) -> Result<(), serde_json::Error> {
        if change.deleted {
            self.forget(change.uid);
            return Ok(());
        }
        let unit: Unit = serde_json::from_str(change.body)?;
        if unit.status.phase != UnitPhase::Pending {
            self.forget(change.uid);
            return Ok(());
        }
        if let Some(known) = self.units.get_mut(&change.uid) {
            if change.sequence <= known.sequence {
                return Ok(());
            }
            known.sequence = change.sequence;
            known.unit = unit;
            let foreign = known.state == State::Foreign;
            if foreign {
                self.enter(change.uid);
            }
            return Ok(());
        }
        let place = Place {
            priority: Reverse(unit.spec.priority),
            created: change.created,
            unit: change.uid,
        };
        self.units.insert(
            change.uid,
            Waiting {
                place,
                sequence: change.sequence,
                unit,
                trace: change.trace.clone(),
                compiled: None,
                state: State::Incomplete,
                reason_written_ms: None,
                losses: 0,
            },
        );
        self.enter(change.uid);
        Ok(())
    }

    /// The unit no longer waits.
    pub(super) fn forget(&mut self, uid: Uuid) {
        let Some(waiting) = self.units.remove(&uid) else { return };
        self.incomplete.remove(&uid);
        self.queue
            .remove(waiting.place, waiting.compiled.as_ref().map(|c| c.signature().clone()));
        for claim in &waiting.unit.spec.claims {
            self.claims.remove(&Uuid::from(claim.uid));
        }
    }

    fn on_slice(&mut self, change: &Change<'_>) -> Result<(), serde_json::Error> {
        if change.deleted {
            let Some(pool) = self.slice_pools.remove(change.name) else {
                return Ok(());
            };
            self.cluster.remove_slice(change.name);
            if let Some(facts) = self.pools.get_mut(&pool) {
                facts.slices.remove(change.name);
                facts.inventory = change.sequence;
                facts.counted = has_counters(facts);
                if facts.slices.is_empty() {
                    self.pools.remove(&pool);
                }
            }
            self.changes.pools.insert(pool);
            return Ok(());
        }
        let slice: Arc<ResourceSlice> = Arc::new(serde_json::from_str(change.body)?);
        let pool = slice.pool_id();
        let facts = self.pools.entry(pool.clone()).or_insert_with(|| PoolFacts {
            shard: pool_shard(slice.spec.node_name.as_deref(), &pool.driver, &pool.pool),
            inventory: 0,
            slices: BTreeMap::new(),
            counted: false,
        });
        facts.inventory = facts.inventory.max(change.sequence);
        facts.slices.insert(change.name.clone(), slice.clone());
        facts.counted = has_counters(facts);
        self.slice_pools.insert(change.name.clone(), pool.clone());
        self.cluster.put_slice(slice);
        self.changes.pools.insert(pool);
        Ok(())
    }

    fn on_class(&mut self, change: &Change<'_>) -> Result<(), serde_json::Error> {
        if change.deleted {
            self.cluster.remove_class(change.name);
            self.classes.remove(change.name);
        } else {
            let class: Arc<DeviceClass> = Arc::new(serde_json::from_str(change.body)?);
            self.classes.insert(change.name.clone(), class.clone());
            self.cluster.put_class(class);
        }
        // Compiled units carry their classes' selectors.
        for waiting in self.units.values_mut() {
            waiting.compiled = None;
        }
        self.changes.classes.insert(change.name.clone());
        Ok(())
    }

    fn on_node(&mut self, change: &Change<'_>) -> Result<(), serde_json::Error> {
        if change.deleted {
            self.cluster.remove_node(change.name);
            self.nodes.remove(change.name);
        } else {
            let node: Node = serde_json::from_str(change.body)?;
            let facts = structured::NodeFacts::of(&node);
            self.nodes.insert(change.name.clone(), facts.clone());
            self.cluster.put_node(facts);
        }
        self.changes.everything = true;
        Ok(())
    }

    /// Devices that lose a taint, or get another one, may serve who waits.
    fn on_taint_rule(&mut self, change: &Change<'_>) -> Result<(), serde_json::Error> {
        let before = if change.deleted {
            self.cluster.remove_taint_rule(change.name);
            self.taint_rules.remove(change.name)
        } else {
            let rule: Arc<DeviceTaintRule> = Arc::new(serde_json::from_str(change.body)?);
            self.cluster.put_taint_rule(rule.clone());
            self.taint_rules.insert(change.name.clone(), rule)
        };
        if let Some(before) = before {
            let concerned = self.pools.keys().filter(|pool| concerns(&before, pool));
            self.changes.pools.extend(concerned.cloned());
        }
        Ok(())
    }
}

fn has_counters(facts: &PoolFacts) -> bool {
    facts.slices.values().any(|slice| !slice.spec.shared_counters().is_empty())
}

/// The rule may put its taint on a device of the pool.
fn concerns(rule: &DeviceTaintRule, pool: &PoolId) -> bool {
    rule.spec.device_selector.as_ref().is_some_and(|selector| {
        selector.driver.as_ref().is_none_or(|driver| *driver == pool.driver)
            && selector.pool.as_ref().is_none_or(|name| *name == pool.pool)
    })
}

/// A new state of an object.
pub(super) struct Change<'a> {
    pub(super) sequence: u64,
    /// When the object was created; only exact for objects that were created before they were loaded.
    pub(super) created: u64,
    pub(super) kind: &'a str,
    pub(super) name: &'a Arc<str>,
    pub(super) uid: Uuid,
    pub(super) deleted: bool,
    pub(super) body: &'a Arc<str>,
    pub(super) trace: Option<Arc<str>>,
}
