//! Giving a unit back: what its deletion writes. Pure.

use std::sync::Arc;

use resource_api::claim::ResourceClaim;
use resource_api::unit::{Unit, UnitPhase};
use resource_api::wire::Time;
use store::{Mutation, Op, Release, ReleaseMode, Stored, UnitQueue, Write};

/// A unit as read, with the claims of it that exist.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) stored: Stored,
    pub(crate) unit: Unit,
    pub(crate) claims: Vec<Stored>,
}

/// Everything of the unit goes and its devices are free; loses if an agent answers for its node.
pub(crate) fn at_once(found: &Found, trace: Option<&Arc<str>>) -> Mutation {
    let objects = found.claims.iter().chain([&found.stored]);
    let write = |object: &Stored| Write {
        op: Op::Delete {
            expected: Some(object.sequence),
        },
        cause: Some("deleted".into()),
        ..unchanged(object, trace)
    };
    Mutation {
        writes: objects.map(write).collect(),
        releases: releases(found, ReleaseMode::Free),
        without_agent: found.unit.status.node.iter().map(|node| node.as_str().into()).collect(),
        ..Mutation::default()
    }
}

/// The unit and its claims are marked; devices stay held until the node has let go. Error: a claim that cannot be read.
pub(crate) fn once_unprepared(found: &Found, now: Time, trace: Option<&Arc<str>>) -> Result<Mutation, serde_json::Error> {
    let mut writes = Vec::with_capacity(found.claims.len() + 1);
    for stored in &found.claims {
        let mut claim: ResourceClaim = serde_json::from_str(&stored.body)?;
        claim.metadata.deletion_timestamp.get_or_insert(now);
        writes.push(marked(stored, serde_json::to_string(&claim)?, trace));
    }
    let mut unit = found.unit.clone();
    unit.metadata.deletion_timestamp.get_or_insert(now);
    unit.status.phase = UnitPhase::Releasing;
    let queue = UnitQueue {
        home_shard: unit.spec.home_shard,
        priority: unit.spec.priority,
        pending: false,
    };
    writes.push(Write {
        queue: Some(queue),
        ..marked(&found.stored, serde_json::to_string(&unit)?, trace)
    });
    Ok(Mutation {
        writes,
        releases: releases(found, ReleaseMode::Drain),
        ..Mutation::default()
    })
}

fn releases(found: &Found, mode: ReleaseMode) -> Vec<Release> {
    found.claims.iter().map(|claim| Release { claim: claim.uid, mode }).collect()
}

fn marked(object: &Stored, body: String, trace: Option<&Arc<str>>) -> Write {
    Write {
        op: Op::Update {
            expected: Some(object.sequence),
        },
        body: body.into(),
        cause: Some("deleted; the node has to let go".into()),
        ..unchanged(object, trace)
    }
}

fn unchanged(object: &Stored, trace: Option<&Arc<str>>) -> Write {
    Write {
        kind: object.kind.to_string().into(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: object.uid,
        op: Op::Update {
            expected: Some(object.sequence),
        },
        body: object.body.clone(),
        queue: None,
        part_of: None,
        cause: None,
        trace: trace.cloned(),
    }
}
