//! Random bodies, most of them nearly well-formed, through all that a server does with them: decode in any version, default,
//! prepare, validate a create, an update and a status update, write out in any version. Nothing panics, and what must hold of
//! every object holds. How to run it for longer is in `docs/fuzzing.md`.

mod mutate;

use std::path::Path;
use std::sync::LazyLock;

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use resource_api::field_path::{ERRORS_MAX, FieldError};
use resource_api::gates::{FeatureGates, Gate};
use resource_api::object::{AnyObject, Kind, decode, kind_of};
use resource_api::validation::{ExpressionChecker, ExpressionMode, ExpressionProblem, ExpressionProblemKind, ValidationContext};
use resource_api::version::{self, ApiVersion};
use resource_api::{Time, claim, defaults, prepare, slice, validation};
use serde_json::Value;

/// What the expressions of the seeds are.
struct ShortWords;

impl ExpressionChecker for ShortWords {
    fn check(&self, expression: &str, _: ExpressionMode) -> std::result::Result<(), ExpressionProblem> {
        self.check_derived(expression, ExpressionMode::New).map(|_| ())
    }
    fn check_derived(&self, expression: &str, _: ExpressionMode) -> std::result::Result<u64, ExpressionProblem> {
        let problem = |kind| ExpressionProblem {
            kind,
            detail: "not a short word".to_owned(),
        };
        match expression.len() {
            0 => Err(problem(ExpressionProblemKind::Invalid)),
            1..=100 => Ok(30_000),
            _ => Err(problem(ExpressionProblemKind::TooExpensive)),
        }
    }
}

fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/fuzz").join(folder);
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read(path).expect("the file is readable"))
        })
        .collect();
    files.sort();
    files
}

static SEEDS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let read = |(_, text): &(String, Vec<u8>)| serde_json::from_slice(text).expect("a seed is JSON");
    let mut seeds: Vec<Value> = files("seeds").iter().map(read).collect();
    // The same objects as other versions write them.
    for at in 0..seeds.len() {
        let body = seeds[at].to_string();
        let object = AnyObject::decode(body.as_bytes()).expect("a seed is an object");
        for version in ApiVersion::ALL {
            let written = version::encode(version, &object).ok();
            seeds.extend(written.map(|text| serde_json::from_str::<Value>(&text).expect("what is written is JSON")));
        }
    }
    seeds
});

fn now() -> Time {
    Time::new("2026-06-01T12:00:00Z".parse().expect("a time"))
}

fn gates(u: &mut Unstructured<'_>) -> Result<FeatureGates> {
    Ok(match u.int_in_range(0..=2)? {
        0 => FeatureGates::default(),
        1 => FeatureGates::all(),
        _ => {
            let mut gates = FeatureGates::none();
            for gate in Gate::ALL {
                gates = gates.with(*gate, u.arbitrary()?);
            }
            gates
        }
    })
}

fn target(u: &mut Unstructured<'_>) -> Result<()> {
    let new = mutate::value(u, &SEEDS)?;
    // What is stored is often what is written, before some other changes.
    let old = if u.arbitrary()? {
        mutate::value(u, std::slice::from_ref(&new))?
    } else {
        mutate::value(u, &SEEDS)?
    };
    let gates = gates(u)?;
    let body = mutate::body(u, &new)?;
    // Mostly what it says it is.
    let named = Kind::ALL.into_iter().find(|kind| new["kind"] == kind.name());
    let kind = match named {
        Some(kind) if u.ratio(9, 10)? => kind,
        _ => *u.choose(&Kind::ALL)?,
    };
    check_body(&body, old.to_string().as_bytes(), &[kind], &gates);
    Ok(())
}

/// Everything that must hold of a body, whatever it is, read as some kinds; `old` is what it might replace.
fn check_body(body: &[u8], old: &[u8], kinds: &[Kind], gates: &FeatureGates) {
    let _known_or_not = kind_of(body);
    let _read_or_refused = decode::<claim::ResourceClaim>(body);
    let _read_or_refused = decode::<slice::ResourceSlice>(body);
    if let Ok(object) = AnyObject::decode(body) {
        check_object(None, body, &object);
        check_writes(ApiVersion::V1, &object, AnyObject::decode_as(object.kind(), old).ok(), gates);
    }
    for version in ApiVersion::ALL {
        for kind in kinds.iter().copied() {
            if let Ok(object) = version::decode(version, kind, body) {
                assert!(version.serves(kind), "{kind} was read in {version:?}");
                check_object(Some(version), body, &object);
                check_writes(version, &object, version::decode(version, kind, old).ok(), gates);
            }
        }
    }
}

/// Writes an object out: in a version, or as it is kept.
fn written(version: Option<ApiVersion>, object: &AnyObject) -> String {
    match version {
        Some(version) => version::encode(version, object).expect("what was read in a version can be written in it"),
        None => serde_json::to_string(object).expect("an object can be written"),
    }
}

fn read(version: Option<ApiVersion>, kind: Kind, text: &str) -> AnyObject {
    match version {
        Some(version) => version::decode(version, kind, text.as_bytes()),
        None => AnyObject::decode(text.as_bytes()),
    }
    .unwrap_or_else(|error| panic!("what was written cannot be read: {error:?}\n{text}"))
}

/// What is read, written and read again stays the same, and takes no more than some times the room.
fn check_object(version: Option<ApiVersion>, body: &[u8], object: &AnyObject) {
    let once = written(version, object);
    let twice = written(version, &read(version, object.kind(), &once));
    assert_eq!(once, twice, "written differently the second time");
    // The worst is a condition, which prints every field that was not given.
    let room = 32 * body.len() + 4096;
    assert!(once.len() <= room, "{} bytes became {}", body.len(), once.len());
}

fn check_writes(version: ApiVersion, object: &AnyObject, old: Option<AnyObject>, gates: &FeatureGates) {
    let mut new = defaulted(version, object);
    prepare::for_create(&mut new, gates);
    let mut again = new.clone();
    prepare::for_create(&mut again, gates);
    assert_eq!(new, again, "prepared differently the second time");
    let errors = checked(version, new.kind(), |ctx| Some(validation::check_create(&new, ctx)), gates);
    if errors.is_some_and(|errors| errors.is_empty()) {
        check_valid(version, &new, gates);
    }
    if let Some(old) = old {
        check_update(version, object, &defaulted(version, &old), gates);
    }
}

fn defaulted(version: ApiVersion, object: &AnyObject) -> AnyObject {
    let mut new = object.clone();
    defaults::apply_in(version, &mut new, now());
    let mut again = new.clone();
    defaults::apply_in(version, &mut again, now());
    assert_eq!(new, again, "defaulted differently the second time");
    new
}

/// Checks twice, as the answer must not depend on chance.
fn checked(
    version: ApiVersion,
    kind: Kind,
    check: impl Fn(&ValidationContext<'_>) -> Option<Vec<FieldError>>,
    gates: &FeatureGates,
) -> Option<Vec<FieldError>> {
    let ctx = ValidationContext {
        expressions: &ShortWords,
        gates,
    };
    let errors = check(&ctx);
    assert_eq!(errors, check(&ctx), "checked differently the second time");
    let errors = version::located(version, kind, errors?);
    assert!(errors.len() <= ERRORS_MAX, "{} errors", errors.len());
    for error in &errors {
        assert!(!error.path.is_empty() && !error.to_string().is_empty(), "{error:?}");
    }
    Some(errors)
}

/// A valid object survives the way through every version, and writing it again changes nothing and breaks no rule.
fn check_valid(version: ApiVersion, object: &AnyObject, gates: &FeatureGates) {
    let kind = object.kind();
    let kept = written(None, object);
    for through in ApiVersion::ALL.into_iter().filter(|version| version.serves(kind)) {
        let back = read(Some(through), kind, &written(Some(through), object));
        assert_eq!(written(None, &back), kept, "lost on the way through {through:?}");
    }
    let mut old = object.clone();
    old.metadata_mut().resource_version = Some(7.into());
    let mut new = old.clone();
    prepare::for_update(&mut new, &old, gates, now()).expect("the two are of one kind");
    assert_eq!(new, old, "an update without change changes something");
    let errors = checked(
        version,
        kind,
        |ctx| validation::check_update_in(version, &new, &old, ctx),
        gates,
    );
    assert_eq!(errors, Some(Vec::new()), "an update without change is refused");
}

fn check_update(version: ApiVersion, object: &AnyObject, old: &AnyObject, gates: &FeatureGates) {
    let kind = old.kind();
    let mut new = defaulted(version, object);
    if prepare::for_update(&mut new, old, gates, now()).is_ok() {
        let errors = checked(
            version,
            kind,
            |ctx| validation::check_update_in(version, &new, old, ctx),
            gates,
        );
        assert!(errors.is_some(), "two objects of one kind are no update");
    }
    let mut new = defaulted(version, object);
    if prepare::for_status_update(&mut new, old, gates).is_ok() {
        let errors = checked(
            version,
            kind,
            |_| validation::check_status_update_in(version, &new, old),
            gates,
        );
        if errors.is_some_and(|errors| errors.is_empty()) {
            let mut again = new.clone();
            prepare::for_status_update(&mut again, &new, gates).expect("the two are of one kind");
            let errors = checked(
                version,
                kind,
                |_| validation::check_status_update_in(version, &again, &new),
                gates,
            );
            assert_eq!(errors, Some(Vec::new()), "a status that was accepted is refused");
        }
    }
    if let (AnyObject::ResourceClaim(new), AnyObject::ResourceClaim(old)) = (&new, old) {
        let drivers = validation::status::changed_drivers(&new.status, &old.status);
        assert!(drivers.len() <= new.status.devices.len() + old.status.devices.len());
        let _changes_or_not = validation::status::changes_binding(&new.status, &old.status);
    }
}

#[test]
fn random_bodies() {
    arbtest(target).size_min(256).size_max(4096).budget_ms(4000).run();
}

/// Runs for `ARBTEST_BUDGET_MS`, a tenth of a second if that is not set.
#[test]
#[ignore = "runs as long as it is told to"]
fn random_bodies_for_longer() {
    arbtest(target).size_min(256).size_max(4096).run();
}

/// Each file once broke something, as what is written or as what is stored; its name says what.
#[test]
fn bodies_that_were_found() {
    for (_, body) in files("found") {
        for gates in [FeatureGates::default(), FeatureGates::all(), FeatureGates::none()] {
            for seed in &*SEEDS {
                let seed = seed.to_string();
                check_body(&body, seed.as_bytes(), &Kind::ALL, &gates);
                check_body(seed.as_bytes(), &body, &Kind::ALL, &gates);
            }
        }
    }
}

#[test]
fn seeds_are_valid_objects() {
    for (name, body) in files("seeds") {
        let mut object = AnyObject::decode(&body).expect("a seed is an object");
        defaults::apply(&mut object, now());
        prepare::for_create(&mut object, &FeatureGates::all());
        let ctx = ValidationContext {
            expressions: &ShortWords,
            gates: &FeatureGates::all(),
        };
        assert_eq!(validation::check_create(&object, &ctx), Vec::new(), "{name}");
    }
}
