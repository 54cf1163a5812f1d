//! Bodies that are as large as a server reads, made to cost as much as they can: they are refused before they are decoded, or
//! decoded and checked with bounded room and a bounded number of errors.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use resource_api::extent::{CONTAINERS_MAX, DEPTH_MAX, ExtentError};
use resource_api::field_path::{ERRORS_MAX, ErrorKind, FieldError};
use resource_api::gates::FeatureGates;
use resource_api::object::{AnyObject, DecodeError, Kind};
use resource_api::validation::{self, ExpressionChecker, ExpressionMode, ExpressionProblem, ValidationContext};
use resource_api::version::{self, ApiVersion};
use resource_api::{Time, defaults, prepare};

/// Bytes that an API server reads of one body.
const BODY_MAX: usize = 3 << 20;

/// An eighth of what threads usually get.
const STACK_BYTES: usize = 256 << 10;

struct AnyExpression;

impl ExpressionChecker for AnyExpression {
    fn check(&self, _: &str, _: ExpressionMode) -> Result<(), ExpressionProblem> {
        Ok(())
    }
    fn check_derived(&self, _: &str, _: ExpressionMode) -> Result<u64, ExpressionProblem> {
        Ok(0)
    }
}

/// `item` as often as fits into a body, within `open` and `close`.
fn filled(open: &str, item: &str, close: &str) -> String {
    let n = (BODY_MAX - open.len() - close.len()) / (item.len() + 1);
    format!("{open}{}{close}", vec![item; n].join(","))
}

fn head(kind: Kind) -> String {
    let namespace = if kind.is_namespaced() { r#","namespace":"n""# } else { "" };
    let uid = "01890000-0000-7000-8000-000000000001";
    format!(
        r#"{{"apiVersion":"{}","kind":"{kind}","metadata":{{"name":"a","uid":"{uid}"{namespace}"#,
        kind.api_version()
    )
}

/// Decodes in every version in a thread with little stack; a panic or overflow fails the test.
fn read(kind: Kind, body: String) -> Result<AnyObject, DecodeError> {
    let work = move || {
        for version in ApiVersion::ALL {
            let _read_or_refused = version::decode(version, kind, body.as_bytes()).map(drop);
        }
        AnyObject::decode(body.as_bytes())
    };
    on_small_stack(work)
}

fn on_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap();
    thread.join().unwrap()
}

/// Errors of a create, and of an update of the object with itself.
fn errors(kind: Kind, body: String) -> Vec<FieldError> {
    let mut object = read(kind, body).unwrap();
    let gates = FeatureGates::all();
    let now = Time::new("2026-01-01T00:00:00Z".parse().unwrap());
    let ctx = ValidationContext {
        expressions: &AnyExpression,
        gates: &gates,
    };
    let mut old = object.clone();
    old.metadata_mut().deletion_timestamp = Some(now);
    old.metadata_mut().finalizers.truncate(1);
    defaults::apply(&mut object, now);
    let mut new = object.clone();
    prepare::for_update(&mut new, &old, &gates, now).unwrap();
    let of_update = validation::check_update(&new, &old, &ctx).unwrap();
    assert!(of_update.len() <= ERRORS_MAX);
    prepare::for_create(&mut object, &gates);
    let errors = validation::check_create(&object, &ctx);
    assert!(errors.len() <= ERRORS_MAX);
    let shown: usize = errors.iter().map(|error| error.to_string().len()).sum();
    assert!(shown <= 8 * BODY_MAX, "{shown} bytes of errors");
    errors
}

#[track_caller]
fn check_refused(kind: Kind, body: String, wanted: ExtentError) {
    let refused = read(kind, body);
    assert!(
        matches!(&refused, Err(DecodeError::Extent(found)) if *found == wanted),
        "{:?}",
        refused.map(|_| ())
    );
}

#[test]
fn deep_bodies_are_refused() {
    let levels = BODY_MAX / 2 - 200;
    let n = levels / 12;
    let typed = format!(
        "{}}},\"spec\":{}1{}}}",
        head(Kind::ResourceClaim),
        r#"{"devices":"#.repeat(n),
        "}".repeat(n)
    );
    check_refused(Kind::ResourceClaim, typed, ExtentError::TooDeep);
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let n = levels / open.len();
        let unknown = format!("{}}},\"x\":{}1{}}}", head(Kind::Node), open.repeat(n), close.repeat(n));
        check_refused(Kind::Node, unknown, ExtentError::TooDeep);
        let raw = r#"},"spec":{"config":[{"opaque":{"driver":"d","parameters":{"a":"#;
        let raw = format!(
            "{}{raw}{}1{}}}}}}}]}}}}",
            head(Kind::DeviceClass),
            open.repeat(n),
            close.repeat(n)
        );
        check_refused(Kind::DeviceClass, raw, ExtentError::TooDeep);
    }
}

#[test]
fn depth_that_raw_parameters_may_have_survives_reading_and_writing() {
    let levels = DEPTH_MAX - 10;
    let raw = r#"},"spec":{"config":[{"opaque":{"driver":"d","parameters":{"a":"#;
    let body = format!(
        "{}{raw}{}1{}}}}}}}]}}}}",
        head(Kind::DeviceClass),
        "[".repeat(levels),
        "]".repeat(levels)
    );
    let object = read(Kind::DeviceClass, body.clone()).unwrap();
    let written = serde_json::to_string(&object).unwrap();
    assert!(written.contains(&"[".repeat(levels)));
    assert_eq!(errors(Kind::DeviceClass, body), Vec::new());
}

#[test]
fn bodies_of_a_million_objects_are_refused() {
    let devices = filled(
        &format!("{}}},\"spec\":{{\"devices\":[", head(Kind::ResourceSlice)),
        "{}",
        "]}}",
    );
    check_refused(Kind::ResourceSlice, devices, ExtentError::TooMany);
    let requests = filled(
        &format!("{}}},\"spec\":{{\"devices\":{{\"requests\":[", head(Kind::ResourceClaim)),
        "{}",
        "]}}}",
    );
    check_refused(Kind::ResourceClaim, requests, ExtentError::TooMany);
}

#[test]
fn lists_over_their_limits_give_one_error() {
    let n = CONTAINERS_MAX - 10;
    let devices = format!(
        "{}}},\"spec\":{{\"driver\":\"d\",\"allNodes\":true,",
        head(Kind::ResourceSlice)
    );
    let body = format!(
        r#"{devices}"pool":{{"name":"p","resourceSliceCount":1}},"devices":[{}]}}}}"#,
        vec!["{}"; n].join(",")
    );
    let errors = errors(Kind::ResourceSlice, body);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].kind, ErrorKind::TooMany);
}

#[test]
fn errors_are_bounded_in_number_and_in_what_they_repeat() {
    let finalizers = vec![r#""_""#; 100_000].join(",");
    let finalizers = format!("{},\"finalizers\":[{finalizers}]}}}}", head(Kind::ResourceClaim));
    assert_eq!(errors(Kind::ResourceClaim, finalizers).len(), ERRORS_MAX);
    let owner = r#"{"controller":true}"#;
    let owners = vec![owner; CONTAINERS_MAX / 5].join(",");
    let owners = format!("{},\"ownerReferences\":[{owners}]}}}}", head(Kind::Node));
    assert_eq!(errors(Kind::Node, owners).len(), ERRORS_MAX);
    let labels: Vec<String> = (0..50_000).map(|n| format!("\"_{n}\":\"\"")).collect();
    let labels = format!("{},\"labels\":{{{}}}}}}}", head(Kind::Node), labels.join(","));
    assert_eq!(errors(Kind::Node, labels).len(), ERRORS_MAX);
}

#[test]
fn huge_texts_are_errors_once() {
    let huge = "x".repeat(BODY_MAX - 1000);
    let slashes = "/".repeat(BODY_MAX - 1000);
    for text in [&huge, &slashes] {
        let spec = r#"},"spec":{"driver":"d","allNodes":true,"pool":{"resourceSliceCount":1,"name":""#;
        let pool = format!("{}{spec}{text}\"}}}}}}", head(Kind::ResourceSlice));
        assert!(!errors(Kind::ResourceSlice, pool).is_empty());
        let annotation = format!("{},\"annotations\":{{\"{text}\":\"\"}}}}}}", head(Kind::Node));
        assert!(!errors(Kind::Node, annotation).is_empty());
        let spec = r#"},"spec":{"devices":{"requests":[{"name":""#;
        let request = format!("{}{spec}{text}\"}}]}}}}}}", head(Kind::ResourceClaim));
        assert!(!errors(Kind::ResourceClaim, request).is_empty());
    }
}

#[test]
fn huge_amounts_take_bounded_room() {
    let amounts: Vec<String> = (0..10_000).map(|n| format!("\"{n:x}\":\"1e1024\"")).collect();
    let spec = r#"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","capacity":{"requests":{"#;
    let body = format!("{}{spec}{}}}}}}}}}]}}}}}}", head(Kind::ResourceClaim), amounts.join(","));
    let object = read(Kind::ResourceClaim, body.clone()).unwrap();
    assert!(serde_json::to_string(&object).unwrap().len() < 2 * body.len());
    let digits = "9".repeat(BODY_MAX - 1000);
    let body = format!("{}{spec}\"a\":{digits}}}}}}}}}]}}}}}}", head(Kind::ResourceClaim));
    assert!(matches!(read(Kind::ResourceClaim, body), Err(DecodeError::BadShape { .. })));
}
