//! A submission: from the request to the one mutation that writes claims, unit and the record that answers repeats. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::Uid;
use resource_api::claim::{ResourceClaim, ResourceClaimSpec};
use resource_api::meta::ObjectMeta;
use resource_api::shard::home_shard;
use resource_api::unit::{UNIT_ANNOTATION, UNIT_CLAIMS_MAX, Unit, UnitClaim, UnitPhase, UnitSpec, UnitStatus};
use resource_api::wire::Time;
use rpc::convert;
use rpc::dray::v1::{ClaimTemplate, SubmitRequest, SubmitResponse};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{Mutation, Op, Submission, UnitQueue, Write};
use uuid::Uuid;

use crate::admission::{Admission, Admitted};
use crate::violation::{Violation, add};

/// What a repeat is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    unit_uid: Uuid,
    claim_uids: Vec<Uuid>,
    claim_names: Vec<String>,
}

/// A submission that may be written.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) mutation: Mutation,
    pub(crate) answer: Answer,
}

impl Answer {
    /// The answer that was recorded when a submission was first accepted.
    pub(crate) fn from_record(recorded: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(recorded)
    }

    /// For the caller. `sequence`: where the unit exists in the log.
    pub(crate) fn into_response(self, sequence: u64, repeated: bool) -> SubmitResponse {
        SubmitResponse {
            unit_uid: self.unit_uid.to_string(),
            claim_uids: self.claim_uids.iter().map(Uuid::to_string).collect(),
            claim_names: self.claim_names,
            sequence,
            repeated,
        }
    }
}

/// What is known when a submission arrives.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Time,
    /// W3C traceparent of the call.
    pub(crate) trace: Option<Arc<str>>,
}

/// Checks the request and makes its mutation.
///
/// - `fresh`: gives a new uid at each call.
/// - Error: every violation; nothing must be written then.
pub(crate) fn prepare(
    admission: &Admission,
    request: &SubmitRequest,
    fresh: impl Fn() -> Uuid,
    arrival: &Arrival,
) -> Result<Prepared, Vec<Violation>> {
    if request.claims.is_empty() {
        return Err(vec![Violation::required("claims")]);
    }
    if request.claims.len() > UNIT_CLAIMS_MAX {
        let description = format!("must have at most {UNIT_CLAIMS_MAX} items, has {}", request.claims.len());
        return Err(vec![Violation::invalid("claims", description)]);
    }
    let mut violations = Vec::new();
    let mut mutation = Mutation {
        gates: Some(admission.position()),
        ..Mutation::default()
    };
    let mut answer = Answer {
        unit_uid: fresh(),
        claim_uids: Vec::new(),
        claim_names: Vec::new(),
    };
    let mut digest = RequestDigest::new(request.priority);
    for (index, template) in request.claims.iter().enumerate() {
        let uid = fresh();
        let name = if template.name.is_empty() {
            format!("{}-{index}", answer.unit_uid)
        } else {
            template.name.clone()
        };
        match claim_of(request, template, &name, answer.unit_uid) {
            Ok(claim) => {
                digest.add(template, &claim.spec);
                match admission.create(claim.into(), uid, arrival.now) {
                    Ok(admitted) => mutation.writes.push(creation(&admitted, uid, None, arrival)),
                    Err(errors) => {
                        errors
                            .iter()
                            .for_each(|e| add(&mut violations, Violation::new(claim_field(index, &e.path), e)));
                    }
                }
            }
            Err(violation) => add(&mut violations, at(index, violation)),
        }
        answer.claim_uids.push(uid);
        answer.claim_names.push(name);
    }
    let queue = UnitQueue {
        home_shard: home_shard(answer.unit_uid),
        priority: request.priority,
        pending: true,
    };
    match admission.create(unit_of(request, &answer).into(), answer.unit_uid, arrival.now) {
        Ok(admitted) => mutation
            .writes
            .push(creation(&admitted, answer.unit_uid, Some(queue), arrival)),
        Err(errors) => errors
            .iter()
            .for_each(|e| add(&mut violations, Violation::new(unit_field(&e.path), e))),
    }
    if !violations.is_empty() {
        return Err(violations);
    }
    if !request.client_id.is_empty() {
        mutation.submission = Some(Submission {
            namespace: request.namespace.as_str().into(),
            client_id: request.client_id.as_str().into(),
            digest: digest.finish(),
            answer: serde_json::to_string(&answer).unwrap_or_default().into(),
            unit: answer.unit_uid,
        });
    }
    Ok(Prepared { mutation, answer })
}

/// Error: a violation within the template.
fn claim_of(request: &SubmitRequest, template: &ClaimTemplate, name: &str, unit: Uuid) -> Result<ResourceClaim, Violation> {
    let spec = template.spec.as_ref().ok_or_else(|| Violation::required("spec"))?;
    let spec = convert::claim_spec(spec).map_err(|e| Violation::invalid("spec", e.to_string()))?;
    let mut annotations: BTreeMap<_, _> = template.annotations.clone().into_iter().collect();
    annotations.insert(UNIT_ANNOTATION.to_owned(), unit.to_string());
    let labels = template.labels.clone().into_iter().collect();
    let metadata = ObjectMeta {
        labels,
        annotations,
        ..ObjectMeta::named(&request.namespace, name)
    };
    Ok(ResourceClaim {
        metadata,
        spec,
        ..ResourceClaim::default()
    })
}

fn unit_of(request: &SubmitRequest, answer: &Answer) -> Unit {
    let claims = answer.claim_names.iter().zip(&answer.claim_uids);
    // A unit whose caller has no id for it goes by its own.
    let client_id = if request.client_id.is_empty() {
        answer.unit_uid.to_string()
    } else {
        request.client_id.clone()
    };
    Unit {
        metadata: ObjectMeta::named(&request.namespace, answer.unit_uid.to_string()),
        spec: UnitSpec {
            client_id,
            priority: request.priority,
            home_shard: home_shard(answer.unit_uid),
            claims: claims
                .map(|(name, uid)| UnitClaim {
                    name: name.clone(),
                    uid: Uid(*uid),
                })
                .collect(),
        },
        status: UnitStatus {
            phase: UnitPhase::Pending,
            ..UnitStatus::default()
        },
        ..Unit::default()
    }
}

fn creation(admitted: &Admitted, uid: Uuid, queue: Option<UnitQueue>, arrival: &Arrival) -> Write {
    let object = admitted.object();
    Write {
        kind: object.kind().plural().into(),
        namespace: object.metadata().namespace.as_str().into(),
        name: object.metadata().name.as_str().into(),
        uid,
        op: Op::Create,
        body: admitted.body(),
        queue,
        part_of: None,
        cause: Some("submitted".into()),
        trace: arrival.trace.clone(),
    }
}

fn at(index: usize, violation: Violation) -> Violation {
    Violation {
        field: format!("claims[{index}].{}", violation.field),
        ..violation
    }
}

/// Where a claim's field is in the request.
fn claim_field(index: usize, path: &str) -> String {
    match path.strip_prefix("metadata.") {
        Some("namespace") => "namespace".to_owned(),
        Some(path) => format!("claims[{index}].{path}"),
        None => format!("claims[{index}].{path}"),
    }
}

/// Where a unit's field is in the request.
fn unit_field(path: &str) -> String {
    match path {
        "metadata.namespace" => "namespace".to_owned(),
        "spec.clientId" => "client_id".to_owned(),
        // Two claims of one name.
        path if path.starts_with("spec.claims[") && path.ends_with(']') => format!("{}.name", &path["spec.".len()..]),
        path => path.strip_prefix("spec.").unwrap_or(path).to_owned(),
    }
}

/// Of everything in a request that matters: two with equal digests ask for the same.
struct RequestDigest(Sha256);

impl RequestDigest {
    fn new(priority: i32) -> Self {
        let mut digest = Self(Sha256::new());
        digest.part(&priority.to_be_bytes());
        digest
    }

    /// Maps are sorted, since their order on the wire is anybody's.
    fn add(&mut self, template: &ClaimTemplate, spec: &ResourceClaimSpec) {
        self.part(template.name.as_bytes());
        self.part(&serde_json::to_vec(spec).unwrap_or_default());
        for map in [&template.labels, &template.annotations] {
            let sorted: BTreeMap<_, _> = map.iter().collect();
            self.part(&serde_json::to_vec(&sorted).unwrap_or_default());
        }
    }

    /// Length first, so that no two lists of parts read the same.
    fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

#[cfg(test)]
mod tests;
