use std::cell::Cell;

use resource_api::object::Kind;

use store::GatesAt;

use super::*;

fn template(class: &str) -> ClaimTemplate {
    let spec: ResourceClaimSpec = serde_json::from_value(serde_json::json!({
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": class}}]}
    }))
    .expect("a spec");
    ClaimTemplate {
        spec: Some(convert::claim_spec_message(&spec).expect("a message")),
        ..ClaimTemplate::default()
    }
}

fn request(claims: Vec<ClaimTemplate>) -> SubmitRequest {
    SubmitRequest {
        namespace: "team".into(),
        client_id: "job-1".into(),
        claims,
        priority: 3,
    }
}

fn prepared(request: &SubmitRequest) -> Result<Prepared, Vec<Violation>> {
    let next = Cell::new(1);
    let fresh = || {
        next.set(next.get() + 1);
        Uuid::from_u128(next.get())
    };
    let arrival = Arrival {
        now: Time::new(jiff::Timestamp::UNIX_EPOCH),
        trace: None,
    };
    prepare(&Admission::new(GatesAt::default()), request, fresh, &arrival)
}

fn digest_of(request: &SubmitRequest) -> Vec<u8> {
    prepared(request)
        .expect("valid")
        .mutation
        .submission
        .expect("a record")
        .digest
}

fn fields(result: Result<Prepared, Vec<Violation>>) -> Vec<String> {
    result.expect_err("it breaks rules").into_iter().map(|v| v.field).collect()
}

#[test]
fn claims_come_first_and_the_unit_names_them() {
    let prepared = prepared(&request(vec![template("a"), template("b")])).expect("valid");
    let kinds: Vec<_> = prepared.mutation.writes.iter().map(|w| w.kind.as_ref()).collect();
    assert_eq!(kinds, ["resourceclaims", "resourceclaims", Kind::Unit.plural()]);
    let unit: Unit = serde_json::from_str(&prepared.mutation.writes[2].body).expect("a unit");
    let names: Vec<_> = unit.spec.claims.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, prepared.answer.claim_names);
    assert_eq!(names[1], format!("{}-1", prepared.answer.unit_uid));
    let queue = prepared.mutation.writes[2].queue.expect("a unit waits");
    assert_eq!(
        (queue.home_shard, queue.priority, queue.pending),
        (home_shard(prepared.answer.unit_uid), 3, true)
    );
    assert_eq!(prepared.mutation.writes[0].queue, None);
    assert!(
        prepared.mutation.writes[0]
            .body
            .contains(&format!("\"{UNIT_ANNOTATION}\":\"{}\"", prepared.answer.unit_uid))
    );
}

#[test]
fn every_violation_is_told_with_its_place_in_the_request() {
    let bad_class = template("Not A Class");
    let no_spec = ClaimTemplate {
        name: "UPPER".into(),
        ..ClaimTemplate::default()
    };
    let twice = ClaimTemplate {
        name: "same".into(),
        ..template("ok")
    };
    let bad_label = ClaimTemplate {
        labels: [("".to_owned(), "x".to_owned())].into(),
        ..template("ok")
    };
    let mut request = request(vec![bad_class, no_spec, twice.clone(), twice, bad_label]);
    request.client_id = "c".repeat(300);
    let fields = fields(prepared(&request));
    for wanted in [
        "claims[0].spec.devices.requests[0].exactly.deviceClassName",
        "claims[1].spec",
        "claims[1].name",
        "claims[3].name",
        "client_id",
    ] {
        assert!(
            fields.iter().any(|field| field == wanted),
            "{wanted} is missing in {fields:?}"
        );
    }
    assert!(fields.iter().any(|field| field.starts_with("claims[4].labels")), "{fields:?}");
}

#[test]
fn one_bad_namespace_is_one_violation() {
    let mut request = request(vec![template("a"), template("b")]);
    request.namespace.clear();
    assert_eq!(fields(prepared(&request)), ["namespace"]);
}

#[test]
fn claims_are_one_to_thirty_two() {
    assert_eq!(fields(prepared(&request(Vec::new()))), ["claims"]);
    assert_eq!(fields(prepared(&request(vec![template("a"); 33]))), ["claims"]);
    assert!(prepared(&request(vec![template("a"); 32])).is_ok());
}

#[test]
fn the_digest_tells_bodies_apart_and_nothing_else() {
    let base = request(vec![template("a")]);
    let mut labelled = base.clone();
    labelled.claims[0].labels = [("x".to_owned(), "1".to_owned()), ("y".to_owned(), "2".to_owned())].into();
    let mut same = base.clone();
    same.claims[0].labels = [("y".to_owned(), "2".to_owned()), ("x".to_owned(), "1".to_owned())].into();
    let mut urgent = base.clone();
    urgent.priority = 4;
    let mut named = base.clone();
    named.claims[0].name = "n".into();
    let mut other_id = base.clone();
    other_id.client_id = "job-2".into();

    assert_eq!(digest_of(&labelled), digest_of(&same));
    assert_eq!(digest_of(&base), digest_of(&other_id));
    let bodies = [
        &base,
        &labelled,
        &urgent,
        &named,
        &request(vec![template("b")]),
        &request(vec![template("a"); 2]),
    ];
    let digests: std::collections::BTreeSet<_> = bodies.into_iter().map(digest_of).collect();
    assert_eq!(digests.len(), bodies.len());
}

#[test]
fn without_a_client_id_there_is_no_record() {
    let mut request = request(vec![template("a")]);
    request.client_id.clear();
    let prepared = prepared(&request).expect("valid");
    assert!(prepared.mutation.submission.is_none());
}

#[test]
fn a_record_gives_the_answer_back() {
    let prepared = prepared(&request(vec![template("a")])).expect("valid");
    let recorded = prepared.mutation.submission.expect("a record").answer;
    assert_eq!(Answer::from_record(&recorded).expect("readable"), prepared.answer);
}
