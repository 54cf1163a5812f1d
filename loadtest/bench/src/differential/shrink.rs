//! Making a difference small: leaves out one thing after the other as long as both sides still answer as differently as before.

use serde_json::Value;

use super::known;
use super::verdict::{self, Judged};
use crate::peer::Conversation;

/// Attempts per difference; each costs a few milliseconds.
const ATTEMPTS_MAX: usize = 4_000;

/// Fields that an object can do without. Elements of lists and of maps below [`MAPS`] can always be left out.
const OPTIONAL: &[&str] = &[
    "adminAccess",
    "allowMultipleAllocations",
    "attributes",
    "bindingConditions",
    "bindingFailureConditions",
    "bindsToNode",
    "capacity",
    "compatibilityGroups",
    "config",
    "constraints",
    "consumesCounters",
    "derivedAttributes",
    "interrupt",
    "labels",
    "matchExpressions",
    "matchFields",
    "max",
    "requestPolicy",
    "requests",
    "selectors",
    "skipNodeOperations",
    "status",
    "step",
    "taints",
    "tolerations",
    "validRange",
    "validValues",
];

/// Objects whose keys are names of things.
const MAPS: &[&str] = &["attributes", "capacity", "consumed", "counters", "labels", "requests"];

/// The smallest input found that shows the same difference.
pub(super) fn shrink(conversation: &mut Conversation, judged: Judged) -> anyhow::Result<Judged> {
    let Some(signature) = judged.signature() else {
        return Ok(judged);
    };
    let mut best = judged;
    let mut attempts = 0;
    loop {
        let before = size(&best.case);
        let mut at = 0;
        // Paths are made anew after each success, since it moves what follows; those before `at` were tried.
        while let Some(path) = droppable(&best.case).into_iter().nth(at) {
            attempts += 1;
            if attempts > ATTEMPTS_MAX {
                return Ok(best);
            }
            match retry(conversation, &best, &path, &signature)? {
                Some(smaller) => best = smaller,
                None => at += 1,
            }
        }
        if size(&best.case) == before {
            return Ok(best);
        }
    }
}

fn size(case: &Value) -> usize {
    case.to_string().len()
}

/// Judges the case without what is at `path`; `None` if the difference is gone or another one.
fn retry(conversation: &mut Conversation, best: &Judged, path: &[Step], signature: &str) -> anyhow::Result<Option<Judged>> {
    let mut case = best.case.clone();
    remove(&mut case, path);
    conversation.ask(&case)?;
    let answers = verdict::judge(case, conversation.answer()?)?;
    let is_same = |judged: &Judged| {
        judged.gates == best.gates && judged.signature().as_deref() == Some(signature) && known::choice(judged).is_none()
    };
    Ok(answers.into_iter().find(is_same))
}

/// One step into a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Everything that may be left out, large things first: a claim before its requests.
fn droppable(case: &Value) -> Vec<Vec<Step>> {
    let mut level: Vec<(Vec<Step>, &Value)> = Vec::new();
    for part in [
        "claims",
        "resourceSlices",
        "deviceClasses",
        "allocated",
        "features",
        "interrupt",
        "node",
    ] {
        if let Some(value) = case.get(part) {
            level.push((vec![Step::Key(part.to_owned())], value));
        }
    }
    let mut found = Vec::new();
    if case.get("interrupt").is_some() {
        found.push(vec![Step::Key("interrupt".to_owned())]);
    }
    while !level.is_empty() {
        let mut next = Vec::new();
        for (path, value) in level {
            // A list inside an object goes as a whole or keeps an element: many may be absent but not empty.
            let is_last_one = path.len() > 1 && value.as_array().is_some_and(|items| items.len() == 1);
            for (step, child) in children(value) {
                let mut inner = path.clone();
                inner.push(step);
                if may_go(&inner) && !is_last_one {
                    found.push(inner.clone());
                }
                next.push((inner, child));
            }
        }
        level = next;
    }
    found
}

fn children(value: &Value) -> Vec<(Step, &Value)> {
    match value {
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (Step::Index(at), item)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, field)| (Step::Key(key.clone()), field)).collect(),
        _ => Vec::new(),
    }
}

fn may_go(path: &[Step]) -> bool {
    match path {
        [.., Step::Index(_)] => true,
        [.., Step::Key(map), Step::Key(_)] if MAPS.contains(&map.as_str()) => true,
        [.., Step::Key(key)] => OPTIONAL.contains(&key.as_str()),
        [] => false,
    }
}

/// Removes what is at `path`. A pool that loses a slice declares one less, or it would become incomplete.
fn remove(case: &mut Value, path: &[Step]) {
    if let [Step::Key(part), Step::Index(at)] = path
        && part == "resourceSlices"
    {
        let pool = case[part][*at]["spec"]["pool"].clone();
        let driver = case[part][*at]["spec"]["driver"].clone();
        for slice in case[part].as_array_mut().into_iter().flatten() {
            let spec = &mut slice["spec"];
            if spec["pool"] == pool && spec["driver"] == driver {
                let declared = spec["pool"]["resourceSliceCount"].as_i64().unwrap_or(1);
                spec["pool"]["resourceSliceCount"] = (declared - 1).max(1).into();
            }
        }
    }
    let Some((last, parents)) = path.split_last() else { return };
    let mut value = case;
    for step in parents {
        value = match step {
            Step::Key(key) => &mut value[key],
            Step::Index(at) => &mut value[*at],
        };
    }
    match (last, value) {
        (Step::Key(key), Value::Object(fields)) => {
            fields.remove(key);
        }
        (Step::Index(at), Value::Array(items)) if *at < items.len() => {
            items.remove(*at);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn large_things_are_dropped_before_their_parts() {
        let case = json!({"id": "x", "claims": [{"spec": {"devices": {"requests": [{"name": "r0"}, {"name": "r1"}]}}}], "features": ["A"]});
        let paths = droppable(&case);
        let key = |name: &str| Step::Key(name.to_owned());
        assert_eq!(paths[0], vec![key("claims"), Step::Index(0)]);
        let request = vec![
            key("claims"),
            Step::Index(0),
            key("spec"),
            key("devices"),
            key("requests"),
            Step::Index(0),
        ];
        assert!(paths.contains(&request));
        assert!(!paths.contains(&vec![key("claims")]), "the list itself stays");
        let case = json!({"claims": [{"spec": {"devices": {"requests": [{"name": "r0"}]}}}]});
        assert!(!droppable(&case).contains(&request), "the last one stays");
    }

    #[test]
    fn a_pool_that_loses_a_slice_declares_one_less() {
        let slice = |name: &str| json!({"metadata": {"name": name}, "spec": {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 2}}});
        let mut case = json!({"resourceSlices": [slice("a"), slice("b")]});
        remove(&mut case, &[Step::Key("resourceSlices".to_owned()), Step::Index(0)]);
        assert_eq!(
            case["resourceSlices"],
            json!([{"metadata": {"name": "b"}, "spec": {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}}}])
        );
    }
}
