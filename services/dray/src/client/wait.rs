//! `dray wait`: until a unit, or the unit that a claim belongs to, is allocated.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rpc::dray::v1::{AllocatedDevice, Unit, UnitPhase, WaitUnitRequest};

use super::connect::{Client, ServerArgs};
use super::kind::{Kind, Target};
use super::yaml::text;
use super::{columns, fetch, progress, table};

/// The annotation by which a claim names the unit it belongs to.
pub(crate) const UNIT_ANNOTATION: &str = "/metadata/annotations/dray.v1~1unit";

/// One call waits at most this long, so that a server that goes away is noticed.
const ONE_WAIT: Duration = Duration::from_secs(20);

/// What to wait for.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// unit/UID or claim/NAME.
    target: Target,
    /// The name, if it is not behind a slash.
    name: Option<String>,
    /// Namespace of the claim.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// How long to wait.
    #[arg(long = "for", default_value = "5m", value_parser = humantime::parse_duration, value_name = "DURATION")]
    patience: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

/// Waits and says where the unit landed; an error says why it did not.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let client = Client::connect(&args.server).await?;
    let Some(name) = args.target.name.or(args.name) else {
        bail!("name what to wait for, e.g. `dray wait claim/train`");
    };
    let uid = match args.target.kind {
        Kind::Units => name,
        Kind::ResourceClaims => unit_of(&client, &args.namespace, &name).await?,
        other => bail!("{} are not waited for; units and resourceclaims are", other.plural()),
    };
    let unit = until_allocated(&client, &uid, args.patience).await?;
    table::print(outcome(&unit))
}

async fn unit_of(client: &Client, namespace: &str, claim: &str) -> anyhow::Result<String> {
    let object = fetch::one(client, Kind::ResourceClaims, namespace, claim).await?;
    match text(&object, UNIT_ANNOTATION) {
        "" => bail!("resourceclaims/{claim} belongs to no unit: it waits for a consumer, not for devices"),
        uid => Ok(uid.to_owned()),
    }
}

/// Asks again and again until the unit is allocated; after `patience`, an error with the reason.
pub(crate) async fn until_allocated(client: &Client, uid: &str, patience: Duration) -> anyhow::Result<Unit> {
    let spinner = progress::spinner("waiting for devices");
    let end = Instant::now() + patience;
    loop {
        let rest = end.saturating_duration_since(Instant::now()).min(ONE_WAIT);
        let timeout = prost_types::Duration::try_from(rest).ok();
        let request = WaitUnitRequest {
            uid: uid.to_owned(),
            timeout,
        };
        let answer = client
            .units()
            .wait(client.request_within(rest + Duration::from_secs(5), request))
            .await;
        let unit = answer.with_context(|| format!("cannot wait for units/{uid}"))?.into_inner();
        if unit.phase() == UnitPhase::Allocated {
            spinner.finish_and_clear();
            return Ok(unit);
        }
        if Instant::now() >= end {
            spinner.finish_and_clear();
            let reason = if unit.reason.is_empty() {
                "no allocator has looked at it yet"
            } else {
                &unit.reason
            };
            bail!(
                "units/{uid} was not allocated within {}: {reason}",
                humantime::format_duration(patience)
            );
        }
    }
}

/// As in lists of claims: ` (admin)`, ` (share: bandwidth 4G)`, or nothing.
fn how_used(device: &AllocatedDevice) -> String {
    let mut consumed: Vec<_> = device.consumed_capacity.iter().collect();
    consumed.sort();
    let consumed: serde_json::Map<String, serde_json::Value> = consumed
        .into_iter()
        .map(|(name, amount)| (name.clone(), amount.as_str().into()))
        .collect();
    columns::how_used(&serde_json::json!({
        "adminAccess": device.admin_access, "shareID": device.share_id, "consumedCapacity": consumed,
    }))
}

/// The unit's devices, a line per claim.
pub(crate) fn outcome(unit: &Unit) -> String {
    let mut lines = vec![format!(
        "units/{} allocated on {}",
        unit.uid,
        if unit.node.is_empty() { "any node" } else { &unit.node }
    )];
    for claim in &unit.claims {
        let devices: Vec<String> = claim
            .devices
            .iter()
            .map(|device| format!("{}/{}{}", device.pool, device.device, how_used(device)))
            .collect();
        lines.push(format!("  {}: {}", claim.name, devices.join(", ")));
    }
    lines.join("\n")
}
