//! `dray submit`: the claims of a file as one unit, which lands on one node and is its own consumer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use resource_api::claim::ResourceClaim;
use rpc::dray::v1::{ClaimTemplate, SubmitRequest};

use super::connect::{Client, ServerArgs};
use super::yaml::{Document, read};
use super::{table, wait};

/// What to submit.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file, a folder or `-`; all ResourceClaims in it become one unit.
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Your own id of this submission: repeating it is harmless. Made up if left out.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Namespace of claims that name none.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Higher goes first.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Wait until it is allocated, at most this long (5m if no time is given).
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "5m", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Submits and says the unit's name; with `--wait`, also where it landed.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let documents = read(&args.files)?;
    let request = SubmitRequest {
        namespace: namespace(&documents, &args.namespace)?,
        client_id: args.client_id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string()),
        claims: documents.iter().map(template).collect::<anyhow::Result<_>>()?,
        priority: args.priority,
    };
    let client = Client::connect(&args.server).await?;
    let answer = client
        .units()
        .submit(client.request(request))
        .await
        .context("cannot submit")?
        .into_inner();
    let claims = answer.claim_names.join(", ");
    let again = if answer.repeated {
        "had been submitted before"
    } else {
        "submitted"
    };
    table::print(format!("units/{} {again}: {claims}", answer.unit_uid))?;
    if let Some(patience) = args.wait {
        let unit = wait::until_allocated(&client, &answer.unit_uid, patience).await?;
        table::print(wait::outcome(&unit))?;
    }
    Ok(())
}

/// The one namespace of all claims.
fn namespace(documents: &[Document], default: &str) -> anyhow::Result<String> {
    let named = |document: &Document| match document.text("/metadata/namespace") {
        "" => default.to_owned(),
        named => named.to_owned(),
    };
    let mut namespaces: Vec<String> = documents.iter().map(named).collect();
    namespaces.dedup();
    match namespaces.as_slice() {
        [one] => Ok(one.clone()),
        several => bail!("the claims of a unit are in one namespace, not in {}", several.join(", ")),
    }
}

fn template(document: &Document) -> anyhow::Result<ClaimTemplate> {
    if document.text("/kind") != "ResourceClaim" {
        bail!(
            "{} ({}) is not a ResourceClaim; `dray apply` writes other objects",
            document.shown(),
            document.origin
        );
    }
    let claim: ResourceClaim = serde_json::from_value(document.object.clone())
        .with_context(|| format!("{} ({}) cannot be read", document.shown(), document.origin))?;
    Ok(ClaimTemplate {
        name: document.text("/metadata/name").to_owned(),
        spec: Some(rpc::convert::claim_spec_message(&claim.spec)?),
        labels: claim.metadata.labels.into_iter().collect(),
        annotations: claim.metadata.annotations.into_iter().collect(),
    })
}
