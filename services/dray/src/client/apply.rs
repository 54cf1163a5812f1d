//! `dray apply`: creates or replaces the objects of files, in an order in which they can refer to each other.

use std::path::PathBuf;

use anyhow::bail;
use rpc::dray::v1::ApplyRequest;
use serde_json::{Value, json};

use super::connect::{Client, ServerArgs};
use super::yaml::{Document, read};
use super::{failure, progress, table};

/// What to apply.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file, a folder of YAML and JSON files, or `-` for standard input; may be repeated.
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Namespace of objects that name none.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Applies every object, also after one failed; an error counts the failures.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let documents = read(&args.files)?;
    let client = Client::connect(&args.server).await?;
    let bar = progress::bar("applying", documents.len());
    let mut failures = 0;
    for document in documents {
        match apply(&client, &args.namespace, &document).await {
            Ok(outcome) => bar.suspend(|| table::print(format!("{} {outcome}", document.shown())))?,
            Err(error) => {
                failures += 1;
                let error = error.context(format!("{} ({})", document.shown(), document.origin));
                bar.suspend(|| eprint!("{}", failure::render(&error)));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if failures > 0 {
        bail!("{} could not be applied", table::counted(failures, "object"));
    }
    Ok(())
}

async fn apply(client: &Client, namespace: &str, document: &Document) -> anyhow::Result<String> {
    let object = with_namespace(document, namespace);
    let request = ApplyRequest {
        json: serde_json::to_vec(&object)?,
    };
    Ok(client.objects().apply(client.request(request)).await?.into_inner().outcome)
}

/// Claims live in a namespace; the file may leave it to the command line.
fn with_namespace(document: &Document, namespace: &str) -> Value {
    let mut object = document.object.clone();
    let is_namespaced = matches!(document.text("/kind"), "ResourceClaim" | "ResourceClaimTemplate");
    if is_namespaced && document.text("/metadata/namespace").is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}
