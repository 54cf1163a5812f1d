//! `dray get`: one object or all of a kind, as a table or in full, once or as they change.

use std::io::IsTerminal;

use clap::ValueEnum;
use rpc::dray::v1::WatchObjectsRequest;
use serde_json::{Value, json};
use tonic::Request;

use super::connect::{Client, ServerArgs};
use super::kind::{Kind, Target};
use super::yaml::text;
use super::{columns, fetch, table};

/// What to show and how.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// KIND or KIND/NAME: units, resourceclaims (claims), resourceslices (slices), deviceclasses (classes), nodes.
    target: Target,
    /// Names; all objects of the kind if there are none.
    names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Go on and show every change; the first column of a table then says what happened.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which namespaces.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scope {
    /// Namespace of claims and units.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// All namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
}

impl Scope {
    /// As the API wants it: empty for all.
    pub(crate) fn wanted(&self) -> &str {
        if self.all_namespaces { "" } else { &self.namespace }
    }
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns that fit the terminal.
    Table,
    /// The whole objects.
    Json,
    /// The whole objects.
    Yaml,
    /// `kind/name` only, for scripts.
    Name,
}

/// Shows what was asked for.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let client = Client::connect(&args.server).await?;
    let kind = args.target.kind;
    let names = args.target.names(&args.names);
    let mut sequence = 0;
    let mut objects = Vec::new();
    if names.is_empty() || args.watch {
        let listed = fetch::all(&client, kind, args.scope.wanted()).await?;
        sequence = listed.sequence;
        objects = listed
            .objects
            .into_iter()
            .filter(|object| is_wanted(object, &names))
            .collect();
    } else {
        for name in &names {
            objects.push(fetch::one(&client, kind, &args.scope.namespace, name).await?);
        }
    }
    if args.watch {
        return watch(&args, &client, &names, objects, sequence).await;
    }
    show(&args, &objects, names.len() == 1)
}

fn is_wanted(object: &Value, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| text(object, "/metadata/name") == name)
}

fn show(args: &Args, objects: &[Value], is_single: bool) -> anyhow::Result<()> {
    let kind = args.target.kind;
    match args.output {
        Format::Table if objects.is_empty() => {
            if std::io::stderr().is_terminal() {
                eprintln!("no {} found", kind.plural());
            }
            Ok(())
        }
        Format::Table => table::print(table::text(&as_table(kind, &args.scope, objects))),
        Format::Name => objects.iter().try_for_each(|object| table::print(name_of(kind, object))),
        Format::Json | Format::Yaml => {
            let whole = match objects {
                [object] if is_single => object.clone(),
                objects => json!({"apiVersion": "v1", "kind": "List", "items": objects}),
            };
            table::print(as_text(args.output, &whole)?)
        }
    }
}

fn as_table(kind: Kind, scope: &Scope, objects: &[Value]) -> comfy_table::Table {
    let now = jiff::Timestamp::now();
    let mut table = table::table(&headings(kind, scope));
    for object in objects {
        table.add_row(row(kind, scope, object, now));
    }
    table
}

fn headings(kind: Kind, scope: &Scope) -> Vec<&'static str> {
    let namespace = shows_namespace(kind, scope).then_some("namespace");
    namespace.iter().chain(columns::headings(kind)).copied().collect()
}

fn row(kind: Kind, scope: &Scope, object: &Value, now: jiff::Timestamp) -> Vec<String> {
    let namespace = shows_namespace(kind, scope).then(|| text(object, "/metadata/namespace").to_owned());
    namespace.into_iter().chain(columns::row(kind, object, now)).collect()
}

fn shows_namespace(kind: Kind, scope: &Scope) -> bool {
    kind.is_namespaced() && scope.all_namespaces
}

fn name_of(kind: Kind, object: &Value) -> String {
    format!("{}/{}", kind.plural(), text(object, "/metadata/name"))
}

/// The object in full, without a line break at the end.
pub(crate) fn as_text(format: Format, value: &Value) -> anyhow::Result<String> {
    Ok(match format {
        Format::Yaml => serde_yaml_ng::to_string(value)?.trim_end().to_owned(),
        Format::Json | Format::Table | Format::Name => serde_json::to_string_pretty(value)?,
    })
}

/// Shows what is there, then each change on a line of its own. Column widths are those of the first rows: a table that
/// never ends cannot be laid out as a whole.
async fn watch(args: &Args, client: &Client, names: &[String], objects: Vec<Value>, sequence: u64) -> anyhow::Result<()> {
    let kind = args.target.kind;
    let now = jiff::Timestamp::now();
    let mut lines = Lines::new(&headings(kind, &args.scope));
    let first: Vec<_> = objects
        .iter()
        .map(|object| with_operation("", row(kind, &args.scope, object, now)))
        .collect();
    lines.fit(&first);
    match args.output {
        Format::Table => lines.start(&first)?,
        Format::Json | Format::Yaml | Format::Name => objects.iter().try_for_each(|object| show_change(args, "", object))?,
    }
    let namespace = kind.namespace(args.scope.wanted());
    let request = WatchObjectsRequest {
        kind: kind.plural().to_owned(),
        namespace,
        after_sequence: sequence,
    };
    let mut changes = client.objects().watch(Request::new(request)).await?.into_inner();
    while let Some(change) = changes.message().await? {
        let Some(object) = change.object.as_ref() else {
            continue;
        };
        let object = fetch::value(object)?;
        if !is_wanted(&object, names) {
            continue;
        }
        match args.output {
            Format::Table => {
                let cells = row(kind, &args.scope, &object, jiff::Timestamp::now());
                table::print(lines.line(&with_operation(&change.operation, cells)))?;
            }
            Format::Json | Format::Yaml | Format::Name => show_change(args, &change.operation, &object)?,
        }
    }
    anyhow::bail!("the server ended the watch")
}

fn with_operation(operation: &str, cells: Vec<String>) -> Vec<String> {
    std::iter::once(operation.to_owned()).chain(cells).collect()
}

/// One change in a form that is not a table: a JSON line, a YAML document or a name.
fn show_change(args: &Args, operation: &str, object: &Value) -> anyhow::Result<()> {
    match args.output {
        Format::Json => table::print(serde_json::to_string(&json!({"type": operation, "object": object}))?),
        Format::Yaml => table::print(format!("---\n{}", as_text(Format::Yaml, object)?)),
        Format::Name | Format::Table => table::print(name_of(args.target.kind, object)),
    }
}

/// Rows of a table that goes on: widths grow with what was seen.
struct Lines {
    headings: Vec<String>,
    widths: Vec<usize>,
}

impl Lines {
    fn new(headings: &[&str]) -> Self {
        let headings = with_operation("EVENT", headings.iter().map(|heading| heading.to_uppercase()).collect());
        let widths = headings
            .iter()
            .map(|heading| heading.chars().count().max("MODIFIED".len()))
            .collect();
        Self { headings, widths }
    }

    fn fit(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }

    fn start(&mut self, rows: &[Vec<String>]) -> anyhow::Result<()> {
        table::print(self.line(&self.headings.clone()))?;
        rows.iter().try_for_each(|row| table::print(self.line(row)))
    }

    fn line(&mut self, row: &[String]) -> String {
        self.fit(std::slice::from_ref(&row.to_vec()));
        let cells = row.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}
