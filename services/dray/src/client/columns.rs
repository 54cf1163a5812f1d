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
        Kind::ResourceSlices => &["name", "driver", "pool", "generation", "reach", "devices", "age"],
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
        Kind::ResourceSlices => slice(object),
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

/// `pool/device` of every device of a claim. The driver is left out: it is long and nearly always the same.
pub(crate) fn devices(claim: &Value) -> Vec<String> {
    let results = items(claim, "/status/allocation/devices/results");
    results
        .map(|result| format!("{}/{}", text(result, "/pool"), text(result, "/device")))
        .collect()
}

fn slice(object: &Value) -> Vec<String> {
    let number = |pointer| object.pointer(pointer).map(Value::to_string).unwrap_or_default();
    vec![
        text(object, "/spec/driver").to_owned(),
        text(object, "/spec/pool/name").to_owned(),
        number("/spec/pool/generation"),
        reach(object),
        items(object, "/spec/devices").count().to_string(),
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
    fn every_kind_fills_its_columns() {
        let now = jiff::Timestamp::UNIX_EPOCH;
        for kind in [
            Kind::Units,
            Kind::ResourceClaims,
            Kind::ResourceSlices,
            Kind::DeviceClasses,
            Kind::Nodes,
        ] {
            assert_eq!(row(kind, &json!({}), now).len(), headings(kind).len(), "{kind:?}");
        }
    }
}
