//! What a list shows of each kind: headings, and one row of texts per object.

use serde_json::Value;

use super::kind::Kind;
use super::table::age;
use super::yaml::text;

/// Headings of a kind's list, without the namespace.
pub(crate) fn headings(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Units => &["name", "client id", "phase", "claims", "node", "reason", "age"],
        Kind::ResourceClaims => &["name", "state", "node", "devices", "age"],
        Kind::ResourceClaimTemplates => &["name", "requests", "age"],
        Kind::ResourceSlices => &[
            "name",
            "driver",
            "pool",
            "generation",
            "reach",
            "devices",
            "counters",
            "taints",
            "age",
        ],
        Kind::DeviceTaintRules => &["name", "devices", "taint", "age"],
        Kind::DeviceClasses => &["name", "selectors", "age"],
        Kind::Nodes => &["name", "schedulable", "labels", "age"],
    }
}

/// One object's row, in the order of [`headings`].
pub(crate) fn row(kind: Kind, object: &Value, now: jiff::Timestamp) -> Vec<String> {
    let mut cells = vec![text(object, "/metadata/name").to_owned()];
    cells.extend(match kind {
        Kind::Units => unit(object),
        Kind::ResourceClaims => claim(object),
        Kind::ResourceClaimTemplates => vec![names(object, "/spec/spec/devices/requests", "/name").join(",")],
        Kind::ResourceSlices => slice(object),
        Kind::DeviceTaintRules => taint_rule(object),
        Kind::DeviceClasses => class(object),
        Kind::Nodes => node(object),
    });
    cells.push(age(text(object, "/metadata/creationTimestamp"), now));
    cells
}

fn unit(object: &Value) -> Vec<String> {
    let claims = items(object, "/spec/claims").count().to_string();
    let texts = ["/spec/clientId", "/status/phase"].map(|pointer| text(object, pointer).to_owned());
    let placed = ["/status/node", "/status/reason"].map(|pointer| text(object, pointer).to_owned());
    [texts.as_slice(), &[claims], &placed].concat()
}

fn claim(object: &Value) -> Vec<String> {
    vec![
        state(object).to_owned(),
        node_of(object).unwrap_or_default(),
        devices(object).join(","),
    ]
}

/// Where a claim is in its life: `deleting`, `reserved` (allocated and in use), `allocated` or `pending`.
pub(crate) fn state(claim: &Value) -> &'static str {
    if claim.pointer("/metadata/deletionTimestamp").is_some() {
        return "deleting";
    }
    let is_reserved = items(claim, "/status/reservedFor").next().is_some();
    match claim.pointer("/status/allocation") {
        None => "pending",
        Some(_) if is_reserved => "reserved",
        Some(_) => "allocated",
    }
}

/// The node an allocation is bound to, where it is bound to one by name.
pub(crate) fn node_of(claim: &Value) -> Option<String> {
    let term = claim.pointer("/status/allocation/nodeSelector/nodeSelectorTerms/0")?;
    let mut fields = items(term, "/matchFields");
    let field = fields.find(|field| text(field, "/key") == "metadata.name")?;
    Some(text(field, "/values/0").to_owned())
}

/// `pool/device` of every device of a claim, and how it is used if not whole. The driver is left out: it is long and nearly always the same.
pub(crate) fn devices(claim: &Value) -> Vec<String> {
    let results = items(claim, "/status/allocation/devices/results");
    results
        .map(|result| format!("{}/{}{}", text(result, "/pool"), text(result, "/device"), how_used(result)))
        .collect()
}

/// ` (admin)`, ` (share: bandwidth 4G)`, or nothing for a device that is held whole.
pub(crate) fn how_used(result: &Value) -> String {
    let is_admin = result.pointer("/adminAccess") == Some(&Value::Bool(true));
    let is_share = !text(result, "/shareID").is_empty();
    let consumed = result.pointer("/consumedCapacity").and_then(Value::as_object);
    let consumed = consumed.into_iter().flatten();
    let consumed: Vec<String> = consumed
        .map(|(name, amount)| format!("{name} {}", amount.as_str().unwrap_or_default()))
        .collect();
    let mut words = Vec::new();
    if is_admin {
        words.push("admin".to_owned());
    }
    if is_share {
        words.push(match consumed.as_slice() {
            [] => "share".to_owned(),
            consumed => format!("share: {}", consumed.join(", ")),
        });
    }
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({})", words.join(", "))
    }
}

/// `key=value:Effect`.
pub(crate) fn taint(taint: &Value) -> String {
    let value = match text(taint, "/value") {
        "" => String::new(),
        value => format!("={value}"),
    };
    format!("{}{value}:{}", text(taint, "/key"), text(taint, "/effect"))
}

fn taint_rule(object: &Value) -> Vec<String> {
    let selected = match object.pointer("/spec/deviceSelector") {
        None => "none".to_owned(),
        Some(selector) => {
            let parts = ["/driver", "/pool", "/device"].map(|part| match text(selector, part) {
                "" => "*".to_owned(),
                named => named.to_owned(),
            });
            parts.join("/")
        }
    };
    vec![selected, object.pointer("/spec/taint").map(taint).unwrap_or_default()]
}

/// `set: counter 7, …` of every counter set of a slice.
pub(crate) fn counter_sets(slice: &Value) -> Vec<String> {
    let set = |set: &Value| {
        let counters = set.pointer("/counters").and_then(Value::as_object).into_iter().flatten();
        let counters: Vec<String> = counters.map(|(name, of)| format!("{name} {}", text(of, "/value"))).collect();
        format!("{}: {}", text(set, "/name"), counters.join(", "))
    };
    items(slice, "/spec/sharedCounters").map(set).collect()
}

fn slice(object: &Value) -> Vec<String> {
    let number = |pointer| object.pointer(pointer).map(Value::to_string).unwrap_or_default();
    vec![
        text(object, "/spec/driver").to_owned(),
        text(object, "/spec/pool/name").to_owned(),
        number("/spec/pool/generation"),
        reach(object),
        items(object, "/spec/devices").count().to_string(),
        counter_sets(object).join("; "),
        match items(object, "/spec/devices")
            .map(|device| items(device, "/taints").count())
            .sum::<usize>()
        {
            0 => String::new(),
            n_taints => n_taints.to_string(),
        },
    ]
}

/// From where a slice's devices can be used.
fn reach(slice: &Value) -> String {
    if slice.pointer("/spec/allNodes") == Some(&Value::Bool(true)) {
        return "all nodes".to_owned();
    }
    match text(slice, "/spec/nodeName") {
        "" if slice.pointer("/spec/nodeSelector").is_some() => "node selector".to_owned(),
        "" => "per device".to_owned(),
        node => node.to_owned(),
    }
}

fn class(object: &Value) -> Vec<String> {
    vec![names(object, "/spec/selectors", "/cel/expression").join(" && ")]
}

fn node(object: &Value) -> Vec<String> {
    let is_closed = object.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    vec![if is_closed { "no" } else { "yes" }.to_owned(), labels.join(",")]
}

/// The items of a list below `value`; none if there is no list.
pub(crate) fn items<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// One text of each item of a list.
pub(crate) fn names(value: &Value, list: &str, pointer: &str) -> Vec<String> {
    items(value, list).map(|item| text(item, pointer).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claims_row_follows_its_life() {
        let mut claim = json!({"metadata": {"name": "train", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(row(Kind::ResourceClaims, &claim, now), ["train", "pending", "", "", "60s"]);
        claim["status"] = json!({
            "allocation": {
                "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n-1", "device": "gpu-0"}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-1"]}]}]},
            },
            "reservedFor": [{"resource": "units", "name": "u"}],
        });
        assert_eq!(
            row(Kind::ResourceClaims, &claim, now),
            ["train", "reserved", "n-1", "n-1/gpu-0", "60s"]
        );
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
        assert_eq!(state(&claim), "deleting");
    }

    #[test]
    fn devices_that_are_not_held_whole_say_how_they_are_used() {
        let results = json!([
            {"pool": "n", "device": "gpu-0"},
            {"pool": "n", "device": "gpu-1", "adminAccess": true},
            {"pool": "n", "device": "nic-0", "shareID": "id", "consumedCapacity": {"bandwidth": "4G", "queues": "2"}},
        ]);
        let claim = json!({"status": {"allocation": {"devices": {"results": results}}}});
        assert_eq!(
            devices(&claim),
            ["n/gpu-0", "n/gpu-1 (admin)", "n/nic-0 (share: bandwidth 4G, queues 2)"]
        );
        let rule =
            json!({"spec": {"deviceSelector": {"pool": "n"}, "taint": {"key": "drain", "value": "now", "effect": "NoExecute"}}});
        assert_eq!(taint_rule(&rule), ["*/n/*", "drain=now:NoExecute"]);
        let slice = json!({"spec": {"sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}, "slots": {"value": "7"}}}]}});
        assert_eq!(counter_sets(&slice), ["gpu-0: memory 40Gi, slots 7"]);
    }

    #[test]
    fn every_kind_fills_its_columns() {
        let now = jiff::Timestamp::UNIX_EPOCH;
        for kind in [
            Kind::Units,
            Kind::ResourceClaims,
            Kind::ResourceClaimTemplates,
            Kind::ResourceSlices,
            Kind::DeviceTaintRules,
            Kind::DeviceClasses,
            Kind::Nodes,
        ] {
            assert_eq!(row(kind, &json!({}), now).len(), headings(kind).len(), "{kind:?}");
        }
    }
}
