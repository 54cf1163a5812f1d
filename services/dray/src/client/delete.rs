//! `dray delete`: objects by name or by file. Deleting a unit releases its devices.

use std::path::PathBuf;

use anyhow::{Context, bail};
use rpc::dray::v1::{DeleteObjectRequest, DeleteUnitRequest};

use super::connect::{Client, ServerArgs};
use super::kind::{Kind, Target};
use super::{table, yaml};

/// What to delete.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// KIND or KIND/NAME.
    #[arg(required_unless_present = "files")]
    target: Option<Target>,
    /// Names.
    names: Vec<String>,
    /// The objects in a file, a folder or `-` instead.
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with = "target")]
    files: Vec<PathBuf>,
    /// Namespace of claims and units.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Deletes in order and stops at the first that cannot be deleted.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let doomed = match &args.target {
        Some(target) => by_name(target, &args),
        None => by_file(&args)?,
    };
    if doomed.is_empty() {
        bail!("name what to delete, e.g. `dray delete unit NAME`");
    }
    let client = Client::connect(&args.server).await?;
    for object in doomed {
        let outcome = delete(&client, &object)
            .await
            .with_context(|| format!("cannot delete {object}"))?;
        table::print(format!("{object} {outcome}"))?;
    }
    Ok(())
}

struct Doomed {
    kind: Kind,
    namespace: String,
    name: String,
}

impl std::fmt::Display for Doomed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.plural(), self.name)
    }
}

fn by_name(target: &Target, args: &Args) -> Vec<Doomed> {
    let kind = target.kind;
    let doomed = |name| Doomed {
        kind,
        namespace: kind.namespace(&args.namespace),
        name,
    };
    target.names(&args.names).into_iter().map(doomed).collect()
}

/// In the reverse of the writing order: claims before the classes they name.
fn by_file(args: &Args) -> anyhow::Result<Vec<Doomed>> {
    let mut doomed = Vec::new();
    for document in yaml::read(&args.files)?.iter().rev() {
        let kind: Kind = document.text("/kind").parse().map_err(anyhow::Error::msg)?;
        let namespace = match document.text("/metadata/namespace") {
            "" => kind.namespace(&args.namespace),
            named => named.to_owned(),
        };
        doomed.push(Doomed {
            kind,
            namespace,
            name: document.text("/metadata/name").to_owned(),
        });
    }
    Ok(doomed)
}

async fn delete(client: &Client, doomed: &Doomed) -> anyhow::Result<&'static str> {
    if doomed.kind == Kind::Units {
        let request = DeleteUnitRequest {
            uid: doomed.name.clone(),
        };
        let answer = client.units().delete(client.request(request)).await?.into_inner();
        return Ok(if answer.released {
            "deleted"
        } else {
            "deleting: its devices are free once the node has let go of them"
        });
    }
    let request = DeleteObjectRequest {
        kind: doomed.kind.plural().to_owned(),
        namespace: doomed.namespace.clone(),
        name: doomed.name.clone(),
        uid: String::new(),
    };
    client.objects().delete(client.request(request)).await?;
    Ok("deleted")
}
