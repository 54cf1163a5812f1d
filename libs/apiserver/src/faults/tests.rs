use super::*;
use crate::resources::Catalog;
use crate::schema::GroupVersionKind;

fn claims() -> ResourceType {
    let catalog = Catalog::standard(|_| true);
    (**catalog.find("resource.k8s.io", "v1", "resourceclaims").expect("is served")).clone()
}

fn bogus() -> Vec<Finding> {
    vec![
        Finding::UnknownField {
            path: "spec.devices.requests[0].exactly.bogus".to_owned(),
        },
        Finding::DuplicateField {
            path: "metadata.name".to_owned(),
        },
    ]
}

#[test]
fn strict_bodies_are_refused_as_kubectl_shows_it() {
    let status = judge_findings(&bogus(), FieldValidation::Strict, &claims(), Source::Body).expect_err("is strict");
    let text = "ResourceClaim in version \"v1\" cannot be handled as a ResourceClaim: strict decoding error: unknown field \
                \"spec.devices.requests[0].exactly.bogus\", duplicate field \"metadata.name\"";
    assert_eq!((status.code, status.message.as_str()), (400, text));
    let patch = Source::Patch { name: "c1" };
    let status = judge_findings(&bogus(), FieldValidation::Strict, &claims(), patch).expect_err("is strict");
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    assert_eq!((status.code, causes[0].field.as_str()), (422, "patch"));
    assert!(
        status
            .message
            .starts_with("ResourceClaim.resource.k8s.io \"c1\" is invalid: patch: Invalid value: strict decoding error")
    );
    assert_eq!(
        judge_findings(&[], FieldValidation::Strict, &claims(), Source::Body),
        Ok(Vec::new())
    );
    assert_eq!(
        judge_findings(&bogus(), FieldValidation::Ignore, &claims(), Source::Body),
        Ok(Vec::new())
    );
}

#[test]
fn warnings_are_quoted_once_each() {
    let found = judge_findings(&bogus()[..1], FieldValidation::Warn, &claims(), Source::Body);
    let wanted = r#"299 - "unknown field \"spec.devices.requests[0].exactly.bogus\"""#;
    assert_eq!(found, Ok(vec![wanted.to_owned()]));
    let texts = ["a\nb", "a\nb", r"c\d"].map(str::to_owned);
    assert_eq!(warnings(texts), ["299 - \"a b\"", "299 - \"c\\\\d\""]);
}

#[test]
fn many_findings_stay_small() {
    let findings: Vec<Finding> = (0..10_000)
        .map(|at| Finding::UnknownField {
            path: format!("{at}{}", "é".repeat(500)),
        })
        .collect();
    let headers = judge_findings(&findings, FieldValidation::Warn, &claims(), Source::Body).expect("only warns");
    assert_eq!(headers.len(), 16);
    let status = judge_findings(&findings, FieldValidation::Strict, &claims(), Source::Body).expect_err("is strict");
    assert!(status.message.len() < 70_000);
}

#[test]
fn bodies_and_patches_that_cannot_be_used() {
    assert_eq!(body_status(&BodyError::TooLarge).code, 413);
    let other = BodyError::OtherKind {
        found: GroupVersionKind::new("v1", "Pod").into(),
        wanted: "ResourceClaim".to_owned(),
    };
    assert_eq!(body_status(&other).code, 400);
    let check = |error: &PatchError| {
        let status = patch_status(error, &claims(), "c1");
        (status.code, status.message)
    };
    assert_eq!(check(&PatchError::TooLarge).0, 413);
    let (code, message) = check(&PatchError::TooManyOperations { found: 10_001 });
    assert_eq!(code, 413);
    assert!(message.starts_with("Request entity too large: The allowed maximum operations"));
    let why = "json: no".to_owned();
    assert_eq!(check(&PatchError::Malformed { why: why.clone() }), (400, why.clone()));
    let text = "the server rejected our request due to an error in our request";
    assert_eq!(check(&PatchError::DoesNotApply { why }), (422, text.to_owned()));
    assert_eq!(check(&PatchError::NotSupported).0, 415);
    assert_eq!(check(&PatchError::BadResult(other)).0, 422);
}

#[test]
fn objects_that_cannot_be_applied() {
    let check = |error: &ApplyError| {
        let status = apply_status(error, &claims(), "c1");
        (status.code, status.reason.text(), status.message)
    };
    let nil = "metadata.managedFields must be nil".to_owned();
    assert_eq!(check(&ApplyError::ManagedFieldsGiven), (400, "BadRequest", nil));
    assert_eq!(check(&ApplyError::TooLarge).0, 413);
    let faults = vec![".spec.zz: field not declared in schema".to_owned()];
    let object = "demo/c1; resource.k8s.io/v1, Kind=ResourceClaim".to_owned();
    let (code, _, message) = check(&ApplyError::Faults { object, faults });
    assert_eq!(code, 400);
    assert!(message.ends_with("(demo/c1; resource.k8s.io/v1, Kind=ResourceClaim): .spec.zz: field not declared in schema"));
}

#[test]
fn conflicts_of_managers_are_told_one_by_one() {
    use crate::apply::{FieldSet, OneVersion, Write, apply};
    use serde_json::json;

    let claim = |devices: serde_json::Value| {
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c1"},
                           "spec": {"devices": {"requests": devices}}});
        claim.as_object().cloned().unwrap_or_default()
    };
    let kind = GroupVersionKind::new("resource.k8s.io/v1", "ResourceClaim");
    let nothing = FieldSet::default();
    let write = |manager| Write {
        schema: crate::schema::Schema::builtin(),
        kind: &kind,
        manager,
        subresource: "",
        now: resource_api::Time::new(jiff::Timestamp::UNIX_EPOCH),
        reset: &nothing,
        versions: &OneVersion,
    };
    let stored = apply(&write("first"), None, &claim(json!([{"name": "a"}])), false).expect("is new");
    let conflict = apply(&write("second"), Some(&stored), &claim(json!([{"name": "b"}])), false).expect_err("is owned");
    let status = apply_status(&conflict, &claims(), "c1");
    assert_eq!((status.code, status.reason.text()), (409, "Conflict"));
    let cause = Cause {
        reason: "FieldManagerConflict".to_owned(),
        message: "conflict with \"first\"".to_owned(),
        field: ".spec.devices.requests".to_owned(),
    };
    assert_eq!(status.details.map(|details| details.causes), Some(vec![cause]));
}
