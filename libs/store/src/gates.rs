//! Feature gates of the installation: one object of its own kind in the log. The sequence of its last event is the position that commits
//! are checked against, so a mutation prepared under other gates than those in force is refused, whoever prepared it.

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::gates::{FeatureGates, Gate, GateError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::mutation::{Mutation, Op, Outcome, Write};
use crate::{Store, StoreError, Stored};

/// The kind of the one object that holds the gates.
pub const GATES_KIND: &str = "featuregates";
/// Its name.
const NAME: &str = "installation";

/// The gates in force, and the position of the log at which they were switched to that (0: never).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatesAt {
    pub gates: FeatureGates,
    pub position: u64,
}

/// One gate, as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateSetting {
    pub gate: Gate,
    pub is_on: bool,
    /// Since this position of the log; 0: from the start.
    pub since: u64,
}

/// What switching comes to.
#[derive(Clone, Debug)]
pub enum GateSwitch {
    /// They are like that already.
    Unchanged,
    /// Commit this; if it loses, read again.
    Commit(Box<Mutation>),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    kind: String,
    api_version: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Default, Serialize, Deserialize)]
struct Metadata {
    name: String,
    uid: Uuid,
}

#[derive(Default, Serialize, Deserialize)]
struct Spec {
    /// Gates that were ever switched.
    gates: BTreeMap<String, Switched>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Switched {
    on: bool,
    /// `None`: with this very event.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

impl GatesAt {
    /// From the object's body and the sequence it is at. Gates that this version does not know are left out.
    ///
    /// Error: not what we write.
    pub fn read(body: &str, sequence: u64) -> Result<Self, serde_json::Error> {
        let body: Body = serde_json::from_str(body)?;
        Ok(Self {
            gates: body.spec.gates(),
            position: sequence,
        })
    }
}

impl Spec {
    fn gates(&self) -> FeatureGates {
        let mut gates = FeatureGates::default();
        for gate in Gate::ALL {
            if let Some(switched) = self.gates.get(gate.name()) {
                gates = gates.with(*gate, switched.on);
            }
        }
        gates
    }
}

/// The gates after `changes` (`A=true,B=false`) to `current`.
///
/// Error: a gate that is unknown or locked, a malformed setting, or a gate left on without one that it needs.
fn changed(current: FeatureGates, changes: &str) -> Result<FeatureGates, GateError> {
    let free = Gate::ALL.iter().filter(|gate| !gate.is_locked());
    let now: Vec<String> = free.map(|gate| format!("{gate}={}", current.is_on(*gate))).collect();
    FeatureGates::parse(&format!("{},{changes}", now.join(",")))
}

/// The mutation that applies `changes`. `stored`: the object as it is.
fn switch(stored: Option<&Stored>, changes: &str, trace: Option<Arc<str>>) -> Result<Result<GateSwitch, GateError>, StoreError> {
    let mut body: Body = match stored {
        Some(stored) => serde_json::from_str(&stored.body).map_err(|error| StoreError::Corrupt(error.to_string()))?,
        None => Body {
            kind: "FeatureGates".to_owned(),
            api_version: "dray.v1".to_owned(),
            metadata: Metadata {
                name: NAME.to_owned(),
                uid: Uuid::now_v7(),
            },
            spec: Spec::default(),
        },
    };
    let before = body.spec.gates();
    let after = match changed(before, changes) {
        Ok(after) => after,
        Err(error) => return Ok(Err(error)),
    };
    if after == before {
        return Ok(Ok(GateSwitch::Unchanged));
    }
    for switched in body.spec.gates.values_mut() {
        switched.since = switched.since.or(stored.map(|stored| stored.sequence));
    }
    for gate in Gate::ALL {
        if after.is_on(*gate) != before.is_on(*gate) {
            let switched = Switched {
                on: after.is_on(*gate),
                since: None,
            };
            body.spec.gates.insert(gate.name().to_owned(), switched);
        }
    }
    let write = Write {
        kind: GATES_KIND.into(),
        namespace: "".into(),
        name: NAME.into(),
        uid: stored.map_or(body.metadata.uid, |stored| stored.uid),
        op: match stored {
            Some(stored) => Op::Update {
                expected: Some(stored.sequence),
            },
            None => Op::Create,
        },
        body: serde_json::to_string(&body)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?
            .into(),
        queue: None,
        part_of: None,
        cause: Some("switched".into()),
        trace,
    };
    Ok(Ok(GateSwitch::Commit(Box::new(Mutation {
        writes: vec![write],
        ..Mutation::default()
    }))))
}

impl Store {
    /// The gates in force.
    pub async fn gates(&self) -> Result<GatesAt, StoreError> {
        match self.object(GATES_KIND, "", NAME).await? {
            Some(stored) => GatesAt::read(&stored.body, stored.sequence).map_err(|error| StoreError::Corrupt(error.to_string())),
            None => Ok(GatesAt::default()),
        }
    }

    /// Every gate, and since when it is as it is.
    pub async fn gate_settings(&self) -> Result<Vec<GateSetting>, StoreError> {
        let stored = self.object(GATES_KIND, "", NAME).await?;
        let (spec, sequence) = match &stored {
            Some(stored) => {
                let body: Body = serde_json::from_str(&stored.body).map_err(|error| StoreError::Corrupt(error.to_string()))?;
                (body.spec, stored.sequence)
            }
            None => (Spec::default(), 0),
        };
        let gates = spec.gates();
        let setting = |gate: &Gate| GateSetting {
            gate: *gate,
            is_on: gates.is_on(*gate),
            since: spec
                .gates
                .get(gate.name())
                .map_or(0, |switched| switched.since.unwrap_or(sequence)),
        };
        Ok(Gate::ALL.iter().map(setting).collect())
    }

    /// What switching gates by `changes` (`A=true,B=false`) comes to now.
    ///
    /// The inner error: what is wrong with `changes`, and nothing is to be written then.
    pub async fn switch_gates(
        &self,
        changes: &str,
        trace: Option<Arc<str>>,
    ) -> Result<Result<GateSwitch, GateError>, StoreError> {
        let stored = self.object(GATES_KIND, "", NAME).await?;
        switch(stored.as_ref(), changes, trace)
    }

    /// Applies `changes` before anything runs that could announce them: followers find the event in the log. Returns the position since
    /// which the gates are as they are, and whether that is news.
    ///
    /// The inner error: what is wrong with `changes`; nothing is written then.
    pub async fn apply_gates(&self, changes: &str, writer: &str) -> Result<Result<(u64, bool), GateError>, StoreError> {
        loop {
            let mutation = match self.switch_gates(changes, None).await? {
                Ok(GateSwitch::Unchanged) => return Ok(Ok((self.gates().await?.position, false))),
                Ok(GateSwitch::Commit(mutation)) => mutation,
                Err(error) => return Ok(Err(error)),
            };
            let batch = Uuid::now_v7();
            let (outcomes, _) = self.commit(batch, writer, std::slice::from_ref(&*mutation)).await?;
            if let Some(Outcome::Won { sequences }) = outcomes.first() {
                return Ok(Ok((sequences.first().copied().unwrap_or(0), true)));
            }
            // Somebody else switched meanwhile.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn switched(stored: Option<&Stored>, changes: &str) -> Mutation {
        match switch(stored, changes, None) {
            Ok(Ok(GateSwitch::Commit(mutation))) => *mutation,
            other => panic!("{other:?}"),
        }
    }

    fn stored(mutation: &Mutation, sequence: u64) -> Stored {
        let write = &mutation.writes[0];
        Stored {
            kind: GATES_KIND.into(),
            namespace: "".into(),
            name: write.name.clone(),
            uid: write.uid,
            sequence,
            created_sequence: sequence,
            body: write.body.clone(),
        }
    }

    #[test]
    fn a_switch_adds_to_what_was_switched_before_and_remembers_when() {
        let first = stored(&switched(None, "DRADerivedAttributes=true"), 7);
        let second = stored(&switched(Some(&first), "DRAConsumableCapacity=false"), 12);
        assert_eq!(second.uid, first.uid, "one object");
        let at = GatesAt::read(&second.body, 12).expect("ours");
        assert_eq!(at.position, 12);
        assert!(at.gates.is_on(Gate::DRADerivedAttributes) && !at.gates.is_on(Gate::DRAConsumableCapacity));
        let body: Body = serde_json::from_str(&second.body).expect("ours");
        let since = |name: &str| body.spec.gates.get(name).map(|switched| switched.since);
        assert_eq!(since("DRADerivedAttributes"), Some(Some(7)));
        assert_eq!(since("DRAConsumableCapacity"), Some(None), "with this event");
        assert!(matches!(
            switch(Some(&second), "DRADerivedAttributes=true", None),
            Ok(Ok(GateSwitch::Unchanged))
        ));
    }

    #[test]
    fn unknown_locked_and_unsupported_gates_are_refused() {
        let refused = |changes: &str| match switch(None, changes, None) {
            Ok(Err(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("DRAMagic=true"), "no feature gate \"DRAMagic\"");
        assert_eq!(
            refused("DRAAdminAccess=false"),
            "feature gate DRAAdminAccess cannot be switched off"
        );
        assert_eq!(
            refused("DRAConsumableCapacity=false,DRAFractionalCapacityRange=true"),
            "feature gate DRAFractionalCapacityRange needs DRAConsumableCapacity, which is off"
        );
        assert!(refused("DRAConsumableCapacity").contains("is not of the form Name=true"));
    }
}
