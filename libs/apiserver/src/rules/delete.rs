//! What a deletion does: at once, in steps, or nothing more.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN, seconds};
use crate::list;
use crate::object;
use crate::request::{DeleteOptions, Propagation};
use crate::resources::{DeleteAnswer, Deletion, ResourceType};
use crate::status::Status;

/// What is to be done with the stored object.
#[derive(Clone, Debug, PartialEq)]
pub enum DeleteStep {
    /// Remove it. `last`: its last state, for the event and the answer.
    Remove { last: Value },
    /// Store this instead: the object is being deleted, but something keeps it.
    Mark { marked: Value },
    /// Nothing: it is being deleted already.
    Wait,
}

/// Decides what a deletion does to `stored`.
///
/// 409 if the object is not the one that the options want, by uid or version.
pub fn decide_delete(
    resource: &ResourceType,
    stored: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<DeleteStep, Status> {
    check_preconditions(resource, stored, options)?;
    if resource.deletion == Deletion::Namespace {
        if object::deletion_timestamp(stored).is_none() {
            return Ok(begin_namespace(stored, options, now));
        }
        let finalizers = object::at(stored, &["spec", "finalizers"]).and_then(Value::as_array);
        if finalizers.is_some_and(|finalizers| !finalizers.is_empty()) {
            return Ok(DeleteStep::Wait);
        }
    }
    let mut next = stored.clone();
    let mut time_left = 0;
    if resource.deletion == Deletion::Graceful {
        match decide_grace(stored, options, now) {
            Grace::None => {}
            Grace::Running => return Ok(DeleteStep::Wait),
            Grace::Given { until, period, is_new } => {
                object::set_meta(&mut next, "deletionTimestamp", Some(seconds(until)));
                object::set_meta(&mut next, "deletionGracePeriodSeconds", Some(json!(period)));
                if is_new {
                    count_generation(&mut next);
                }
                time_left = period;
            }
        }
    }
    let collects = resource.deletion != Deletion::Uncollected;
    if let Some(finalizers) = collects.then(|| collector_finalizers(stored, options)).flatten() {
        object::set_finalizers(&mut next, &finalizers);
    }
    let is_kept = !object::finalizers(&next).is_empty();
    // A graceful deletion has set its marks already.
    if is_kept && resource.deletion != Deletion::Graceful {
        mark(&mut next, stored, now);
    }
    Ok(match (is_kept || time_left > 0, next == *stored) {
        (true, true) => DeleteStep::Wait,
        (true, false) => DeleteStep::Mark { marked: next },
        (false, _) => DeleteStep::Remove { last: next },
    })
}

/// The answer to a deletion. `object`: with [`DeleteStep::Remove`] the last state, with the version of the deletion; otherwise
/// what is stored now.
pub fn delete_answer(resource: &ResourceType, step: &DeleteStep, object: &Value) -> Value {
    match (step, resource.delete_answer) {
        (DeleteStep::Remove { .. }, DeleteAnswer::Status) => {
            Status::success(resource.group_resource(), object::name(object), object::uid(object)).to_value()
        }
        (DeleteStep::Remove { .. } | DeleteStep::Mark { .. } | DeleteStep::Wait, _) => object.clone(),
    }
}

/// The answer to the deletion of a collection: the deleted objects as a list, or a `Status` for kinds that answer so.
/// `metadata`: that of the list by which they were selected.
pub fn collection_answer(resource: &ResourceType, objects: Vec<Value>, metadata: Value) -> Value {
    match resource.delete_answer {
        DeleteAnswer::Object => list::body(resource, objects, metadata),
        DeleteAnswer::Status => {
            let mut status = Status::success(resource.group_resource(), "", "");
            status.details = None;
            status.to_value()
        }
    }
}

fn check_preconditions(resource: &ResourceType, stored: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let (kind, name) = (resource.group_kind(), object::name(stored));
    let conflict = |what: &str, wanted: &str, found: &str, so: &str| {
        let why = format!("the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). {so}");
        Err(Status::conflict(kind, name, &why))
    };
    let (uid, version) = (object::uid(stored), object::resource_version(stored));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let so = "The object might have been deleted and then recreated";
        return conflict("UID", wanted, uid, so);
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        return conflict("ResourceVersion", wanted, version, "The object might have been modified");
    }
    Ok(())
}

fn begin_namespace(stored: &Value, options: &DeleteOptions, now: Timestamp) -> DeleteStep {
    let mut marked = stored.clone();
    object::set_meta(&mut marked, "deletionTimestamp", Some(seconds(now)));
    let mut status = marked
        .get("status")
        .filter(|status| status.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}));
    object::set_field(&mut status, "phase", Some(json!("Terminating")));
    object::set_field(&mut marked, "status", Some(status));
    if let Some(finalizers) = collector_finalizers(stored, options) {
        object::set_finalizers(&mut marked, &finalizers);
    }
    DeleteStep::Mark { marked }
}

/// Time to stop.
enum Grace {
    /// None, or none left.
    None,
    /// It runs already, and not for longer than asked for now.
    Running,
    Given {
        until: Timestamp,
        period: i64,
        /// The deletion begins with this.
        is_new: bool,
    },
}

fn decide_grace(stored: &Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    let wanted = options.grace_period_seconds.map(at_least_one_if_negative);
    let Some(deletion) = object::deletion_timestamp(stored) else {
        let own = object::at(stored, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
        let phase = object::text_at(stored, &["status", "phase"]);
        let runs = !object::text_at(stored, &["spec", "nodeName"]).is_empty() && !matches!(phase, "Failed" | "Succeeded");
        let period = if runs {
            wanted.or(own).map_or(0, at_least_one_if_negative)
        } else {
            0
        };
        return Grace::Given {
            until: later(now, period),
            period,
            is_new: true,
        };
    };
    let running = match object::deletion_grace(stored).map(at_least_one_if_negative) {
        None | Some(0) => return Grace::None,
        Some(running) => running,
    };
    match wanted {
        Some(period) if period < running => {
            // The end moves as if the shorter time had been asked for at first, but not into the past.
            let end = deletion.parse::<Timestamp>().unwrap_or(now);
            let until = later(end, period.saturating_sub(running));
            let (until, period) = match until < now {
                true => (now, period.min(1)),
                false => (until, period),
            };
            Grace::Given {
                until,
                period,
                is_new: false,
            }
        }
        Some(_) | None => Grace::Running,
    }
}

fn at_least_one_if_negative(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// An instant some seconds later; at the end of time, the instant itself.
fn later(instant: Timestamp, seconds: i64) -> Timestamp {
    instant.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(instant)
}

/// The finalizers with those of the garbage collector, as the policy wants them. `None` if they are so already.
fn collector_finalizers(stored: &Value, options: &DeleteOptions) -> Option<Vec<String>> {
    let given = object::finalizers(stored);
    let of_collector = |finalizer: &&str| matches!(*finalizer, FINALIZER_ORPHAN | FINALIZER_FOREGROUND);
    // Without a policy, what was asked for earlier stays.
    let wanted = match options.propagation {
        Some(Propagation::Orphan) => Some(FINALIZER_ORPHAN),
        Some(Propagation::Foreground) => Some(FINALIZER_FOREGROUND),
        Some(Propagation::Background) => None,
        None => given.iter().copied().find(of_collector),
    };
    let mut next: Vec<&str> = given.iter().copied().filter(|finalizer| !of_collector(finalizer)).collect();
    next.extend(wanted);
    let (mut before, mut after) = (given, next.clone());
    before.sort_unstable();
    after.sort_unstable();
    (before != after).then(|| next.into_iter().map(str::to_owned).collect())
}

/// Finalizers keep the object, without time.
fn mark(next: &mut Value, stored: &Value, now: Timestamp) {
    let begun = object::deletion_timestamp(stored).and_then(|text| text.parse::<Timestamp>().ok());
    if begun.is_none_or(|begun| begun > now) {
        object::set_meta(next, "deletionTimestamp", Some(seconds(now)));
    }
    if begun.is_none() {
        count_generation(next);
    }
    object::set_meta(next, "deletionGracePeriodSeconds", Some(json!(0)));
}

/// Deletion is a change of what is wanted, for the kinds that count such.
fn count_generation(next: &mut Value) {
    let generation = object::generation(next);
    if generation > 0 {
        object::set_meta(next, "generation", Some(json!(generation.saturating_add(1))));
    }
}
