//! `dray describe`: one object's story: what was asked, what came of it, why it waits, and what happened to it lately.

use rpc::dray::v1::{GetUnitRequest, HeadRequest, ReadLogRequest};
use serde_json::Value;

use super::columns::{how_used, items, names, node_of, state};
use super::connect::{Client, ServerArgs};
use super::kind::{Kind, Target};
use super::wait::UNIT_ANNOTATION;
use super::yaml::text;
use super::{events, fetch, get, table};

/// Events shown below an object.
const EVENTS_SHOWN: usize = 10;

/// What to describe.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// KIND or KIND/NAME.
    target: Target,
    /// Names, if they are not behind a slash.
    names: Vec<String>,
    /// Namespace of claims and units.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Describes each named object.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let client = Client::connect(&args.server).await?;
    let names = args.target.names(&args.names);
    if names.is_empty() {
        anyhow::bail!("name what to describe, e.g. `dray describe claim/train`");
    }
    for (position, name) in names.iter().enumerate() {
        if position > 0 {
            table::print("")?;
        }
        table::print(describe(&client, args.target.kind, &args.namespace, name).await?)?;
    }
    Ok(())
}

async fn describe(client: &Client, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<String> {
    let object = fetch::one(client, kind, namespace, name).await?;
    let mut page = Page::default();
    head(&mut page, &object);
    match kind {
        Kind::ResourceClaims => {
            let unit = match text(&object, UNIT_ANNOTATION) {
                "" => None,
                uid => fetch::one(client, Kind::Units, namespace, uid).await.ok(),
            };
            claim(&mut page, &object, unit.as_ref());
            page.block("Node says", &node_says(client, &object).await);
        }
        Kind::Units => unit(&mut page, &object),
        Kind::ResourceSlices | Kind::ResourceClaimTemplates | Kind::DeviceTaintRules | Kind::DeviceClasses | Kind::Nodes => {
            page.block(
                "Spec",
                &get::as_text(get::Format::Yaml, object.pointer("/spec").unwrap_or(&Value::Null))?,
            );
        }
    }
    page.block(
        "Events",
        &recent_events(client, kind, &kind.namespace(namespace), name).await?,
    );
    Ok(page.text)
}

/// What the node's agent reported about the claim, with the CDI ids a container runtime needs.
async fn node_says(client: &Client, claim: &Value) -> String {
    let uid = text(claim, UNIT_ANNOTATION).to_owned();
    let asked = client.units().get(client.request(GetUnitRequest { uid })).await;
    let Ok(unit) = asked else { return String::new() };
    let name = text(claim, "/metadata/name");
    let Some(found) = unit.into_inner().claims.into_iter().find(|c| c.name == name) else {
        return String::new();
    };
    let mut lines: Vec<String> = Some(found.prepared).filter(|said| !said.is_empty()).into_iter().collect();
    lines.extend(found.cdi_device_ids);
    lines.join("\n")
}

/// Lines of `Key: value` with the values in one column, and indented blocks.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.push(&format!("{:<15}{value}", format!("{key}:")));
        }
    }

    fn block(&mut self, key: &str, lines: &str) {
        if lines.is_empty() {
            return;
        }
        self.push(&format!("{key}:"));
        lines.lines().for_each(|line| self.push(&format!("  {line}")));
    }

    fn push(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line.trim_end());
    }
}

fn head(page: &mut Page, object: &Value) {
    page.line("Name", text(object, "/metadata/name"));
    page.line("Namespace", text(object, "/metadata/namespace"));
    page.line("Uid", text(object, "/metadata/uid"));
    page.line("Created", text(object, "/metadata/creationTimestamp"));
    page.line("Deleted", text(object, "/metadata/deletionTimestamp"));
    page.line("Version", text(object, "/metadata/resourceVersion"));
}

fn claim(page: &mut Page, claim: &Value, unit: Option<&Value>) {
    page.line("State", state(claim));
    page.line("Unit", text(claim, UNIT_ANNOTATION));
    page.line("Node", &node_of(claim).unwrap_or_default());
    if let Some(unit) = unit {
        waits(page, unit);
    } else if state(claim) == "pending" {
        page.line("Waits because", "no consumer has reserved it yet; `dray submit` makes one");
    }
    page.line("Used by", &names(claim, "/status/reservedFor", "/name").join(", "));
    page.block("Requests", &requests(claim));
    page.block("Devices", &allocated(claim));
    page.block("Prepared", &prepared(claim));
    page.block("Conditions", &conditions(claim));
}

/// Why a unit waits, in a line and in numbers.
fn waits(page: &mut Page, unit: &Value) {
    page.line("Waits because", text(unit, "/status/reason"));
    page.block("Counts", &counts(unit));
    page.block("Nearest miss", &nearest_miss(unit));
}

fn counts(unit: &Value) -> String {
    let number = |of: &Value, pointer: &str| of.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let lines = items(unit, "/status/explanation/requests").map(|request| {
        let needed = request.pointer("/needed").map_or_else(|| "all".to_owned(), Value::to_string);
        let removed =
            items(request, "/removed").map(|removed| format!(", {} {}", number(removed, "/devices"), text(removed, "/text")));
        format!(
            "{}: needs {needed} on one node; of {} devices on {} nodes {} fit, at most {} on one node{}",
            text(request, "/request"),
            number(request, "/devices"),
            number(request, "/nodes"),
            number(request, "/fit"),
            number(request, "/fitOnOneNode"),
            removed.collect::<String>(),
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn nearest_miss(unit: &Value) -> String {
    let line = text(unit, "/status/explanation/nearestMiss/text").to_owned();
    let changes = items(unit, "/status/explanation/nearestMiss/changes");
    let lines = changes.map(|change| {
        let holders = items(change, "/holders")
            .filter_map(Value::as_str)
            .map(|uid| format!(" (held by claim {uid})"));
        format!("- {}{}", text(change, "/text"), holders.collect::<String>())
    });
    Some(line)
        .into_iter()
        .filter(|line| !line.is_empty())
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}

fn requests(claim: &Value) -> String {
    let lines = items(claim, "/spec/devices/requests").map(|request| {
        let exactly = request.pointer("/exactly");
        match exactly {
            Some(exactly) => format!("{}: {}", text(request, "/name"), one_request(exactly)),
            None => {
                let alternatives =
                    items(request, "/firstAvailable").map(|one| format!("{} ({})", text(one, "/name"), one_request(one)));
                format!(
                    "{}: first of {}",
                    text(request, "/name"),
                    alternatives.collect::<Vec<_>>().join(", ")
                )
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// `2 of class gpu where …`.
fn one_request(request: &Value) -> String {
    let amount = match text(request, "/allocationMode") {
        "All" => "all".to_owned(),
        _ => request.pointer("/count").map_or_else(|| "1".to_owned(), Value::to_string),
    };
    let selectors = names(request, "/selectors", "/cel/expression");
    let selected = if selectors.is_empty() {
        String::new()
    } else {
        format!(" where {}", selectors.join(" && "))
    };
    let amounts = request.pointer("/capacity/requests").and_then(Value::as_object);
    let amounts: Vec<String> = amounts
        .into_iter()
        .flatten()
        .map(|(name, amount)| format!("{name} {}", amount.as_str().unwrap_or_default()))
        .collect();
    let amounts = if amounts.is_empty() {
        String::new()
    } else {
        format!(" with {}", amounts.join(", "))
    };
    let admin = if request.pointer("/adminAccess") == Some(&Value::Bool(true)) {
        ", for administration"
    } else {
        ""
    };
    format!(
        "{amount} of class {}{amounts}{selected}{admin}",
        text(request, "/deviceClassName")
    )
}

fn allocated(claim: &Value) -> String {
    let results = items(claim, "/status/allocation/devices/results");
    let paths = results.map(|r| {
        format!(
            "{}: {}/{}/{}{}",
            text(r, "/request"),
            text(r, "/driver"),
            text(r, "/pool"),
            text(r, "/device"),
            how_used(r)
        )
    });
    paths.collect::<Vec<_>>().join("\n")
}

/// What drivers reported about devices, conditions included.
fn prepared(claim: &Value) -> String {
    let reported = items(claim, "/status/devices").map(|device| {
        let mut facts = vec![format!(
            "{}/{}/{}",
            text(device, "/driver"),
            text(device, "/pool"),
            text(device, "/device")
        )];
        facts.extend(
            items(device, "/conditions").map(|c| format!("{}={} {}", text(c, "/type"), text(c, "/status"), text(c, "/reason"))),
        );
        facts.extend(device.pointer("/data").map(Value::to_string));
        facts.join(" ")
    });
    reported.collect::<Vec<_>>().join("\n")
}

fn conditions(object: &Value) -> String {
    let lines = items(object, "/status/conditions").map(|c| {
        format!(
            "{}={} {} {}",
            text(c, "/type"),
            text(c, "/status"),
            text(c, "/reason"),
            text(c, "/message")
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn unit(page: &mut Page, unit: &Value) {
    let number = |pointer| unit.pointer(pointer).map(Value::to_string).unwrap_or_default();
    page.line("Client id", text(unit, "/spec/clientId"));
    page.line("Priority", &number("/spec/priority"));
    page.line("Home shard", &number("/spec/homeShard"));
    page.line("Phase", text(unit, "/status/phase"));
    page.line("Node", text(unit, "/status/node"));
    waits(page, unit);
    page.block("Claims", &names(unit, "/spec/claims", "/name").join("\n"));
}

async fn recent_events(client: &Client, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<String> {
    let head = client.log().head(client.request(HeadRequest {})).await?.into_inner();
    let request = ReadLogRequest {
        after_sequence: head.horizon,
        limit: 1_000,
        kinds: vec![kind.plural().to_owned()],
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let read = client.log().read(client.request(request)).await?.into_inner().events;
    let mut rows = table::table(&["sequence", "time", "event", "writer", "cause"]);
    let recent = read.iter().skip(read.len().saturating_sub(EVENTS_SHOWN));
    for event in recent {
        let [sequence, time, operation, _, writer, cause] = events::cells(event);
        rows.add_row([sequence, time, operation, writer, cause]);
    }
    Ok(if read.is_empty() { String::new() } else { table::text(&rows) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_waiting_claim_says_what_it_asked_for_and_why_it_waits() {
        let object = json!({
            "metadata": {"name": "train", "annotations": {"dray.v1/unit": "u-1"}},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpu", "count": 2, "selectors": [{"cel": {"expression": "device.driver == \"d\""}}]}}]}},
        });
        let waiting = json!({"status": {"reason": "0 of 4 devices fit", "explanation": {
            "requests": [{"claim": 0, "request": "gpu", "needed": 2, "nodes": 1, "devices": 4, "fit": 0, "fitOnOneNode": 0,
                "removed": [{"rule": "allocated", "text": "allocated", "devices": 4}]}],
            "nearestMiss": {"node": "a", "text": "would fit on a if 2 devices were freed (d/p/x, d/p/y)", "changes": [
                {"kind": "free-device", "text": "device d/p/x were freed", "device": "d/p/x", "holders": ["u-7"]},
                {"kind": "free-device", "text": "device d/p/y were freed", "device": "d/p/y", "holders": []}]},
        }}});
        let mut page = Page::default();
        head(&mut page, &object);
        claim(&mut page, &object, Some(&waiting));
        let expected = [
            "Name:          train",
            "State:         pending",
            "Unit:          u-1",
            "Waits because: 0 of 4 devices fit",
            "Counts:",
            "  gpu: needs 2 on one node; of 4 devices on 1 nodes 0 fit, at most 0 on one node, 4 allocated",
            "Nearest miss:",
            "  would fit on a if 2 devices were freed (d/p/x, d/p/y)",
            "  - device d/p/x were freed (held by claim u-7)",
            "  - device d/p/y were freed",
            "Requests:",
            "  gpu: 2 of class gpu where device.driver == \"d\"",
        ];
        assert_eq!(page.text.lines().collect::<Vec<_>>(), expected);
    }
}
