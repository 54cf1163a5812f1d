//! What follows from an agent's word, as pure functions over what was read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use resource_api::unit::{Unit, UnitPhase};
use store::{Mutation, Op, Release, ReleaseMode, Stored, UnitQueue, Write};
use uuid::Uuid;

/// A claim whose devices drain and whose node has let go.
#[derive(Clone, Debug)]
pub(crate) struct Drained {
    pub(crate) claim: Stored,
    /// The unit that made it, if it still exists.
    pub(crate) unit: Option<Uuid>,
}

/// A releasing unit with the claims of it that still exist.
#[derive(Clone, Debug)]
pub(crate) struct ReleasingUnit {
    pub(crate) stored: Stored,
    pub(crate) living: BTreeSet<Uuid>,
}

/// One mutation per unit (or lone claim): its drained claims go, their devices are free, and the unit goes with its last claim.
pub(crate) fn decide_completion(drained: &[Drained], units: &BTreeMap<Uuid, ReleasingUnit>) -> Vec<Mutation> {
    let mut by_unit: BTreeMap<Uuid, Vec<&Drained>> = BTreeMap::new();
    for claim in drained {
        by_unit.entry(claim.unit.unwrap_or(claim.claim.uid)).or_default().push(claim);
    }
    by_unit
        .into_iter()
        .map(|(uid, claims)| {
            let mut mutation = Mutation::default();
            for drained in &claims {
                mutation.writes.push(deletion(&drained.claim, "the node has let go"));
                mutation.releases.push(Release {
                    claim: drained.claim.uid,
                    mode: ReleaseMode::Free,
                });
            }
            if let Some(unit) = units.get(&uid)
                && is_releasing(&unit.stored)
                && unit
                    .living
                    .iter()
                    .all(|living| claims.iter().any(|drained| drained.claim.uid == *living))
            {
                mutation.writes.push(deletion(&unit.stored, "its last claim is gone"));
            }
            mutation
        })
        .collect()
}

fn is_releasing(unit: &Stored) -> bool {
    serde_json::from_str::<Unit>(&unit.body).is_ok_and(|u| u.status.phase == UnitPhase::Releasing)
}

fn deletion(object: &Stored, cause: &str) -> Write {
    Write {
        kind: object.kind.to_string().into(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: object.uid,
        op: Op::Delete {
            expected: Some(object.sequence),
        },
        body: Arc::clone(&object.body),
        queue: None::<UnitQueue>,
        part_of: None,
        cause: Some(cause.into()),
        trace: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(kind: &str, uid: Uuid, body: &str) -> Stored {
        Stored {
            kind: kind.into(),
            namespace: "team".into(),
            name: uid.to_string().into(),
            uid,
            sequence: 7,
            created_sequence: 1,
            body: body.into(),
        }
    }

    fn releasing(uid: Uuid, phase: &str, living: &[Uuid]) -> ReleasingUnit {
        let body = format!("{{\"kind\":\"Unit\",\"apiVersion\":\"dray.v1\",\"status\":{{\"phase\":\"{phase}\"}}}}");
        ReleasingUnit {
            stored: stored("units", uid, &body),
            living: living.iter().copied().collect(),
        }
    }

    #[test]
    fn the_unit_goes_with_its_last_claim_and_not_before() {
        let (unit, a, b) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let drained = |uid| Drained {
            claim: stored("resourceclaims", uid, "{}"),
            unit: Some(unit),
        };
        let units = BTreeMap::from([(unit, releasing(unit, "Releasing", &[a, b]))]);

        let first = decide_completion(&[drained(a)], &units);
        assert_eq!(first.len(), 1);
        assert_eq!((first[0].writes.len(), first[0].releases.len()), (1, 1));

        let both = decide_completion(&[drained(a), drained(b)], &units);
        assert_eq!(both.len(), 1, "one commit for the unit");
        let kinds: Vec<_> = both[0].writes.iter().map(|w| w.kind.as_ref()).collect();
        assert_eq!(kinds, ["resourceclaims", "resourceclaims", "units"]);
        assert!(both[0].writes.iter().all(|w| w.op == Op::Delete { expected: Some(7) }));
    }

    #[test]
    fn a_unit_that_is_not_being_released_stays() {
        let (unit, a) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let units = BTreeMap::from([(unit, releasing(unit, "Allocated", &[a]))]);
        let drained = Drained {
            claim: stored("resourceclaims", a, "{}"),
            unit: Some(unit),
        };
        let done = decide_completion(&[drained], &units);
        assert_eq!(done[0].writes.len(), 1);
    }
}
