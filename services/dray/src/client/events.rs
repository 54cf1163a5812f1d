//! `dray events`: the event log, of everything or of one object, up to now or on and on.

use anyhow::Context;
use rpc::dray::v1::{Event, FollowLogRequest, HeadRequest, ReadLogRequest};
use tonic::Request;

use super::connect::{Client, ServerArgs};
use super::kind::Target;
use super::table;

/// Shown without `--since`, so that a long log does not scroll by.
const SHOWN_BY_DEFAULT: u64 = 50;

/// Most events of one call.
const PAGE_SIZE: u32 = 1_000;

/// What to show.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// KIND or KIND/NAME; everything if left out.
    target: Option<Target>,
    /// Namespace, where an object is named.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Events after this position. Without it: the last 50, or the whole story of a named object.
    #[arg(long, value_name = "SEQUENCE")]
    since: Option<u64>,
    /// Go on with what happens from now.
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Shows events, oldest first.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let client = Client::connect(&args.server).await?;
    let head = client
        .log()
        .head(client.request(HeadRequest {}))
        .await
        .context("cannot read the log")?
        .into_inner();
    let start = match args.since {
        Some(since) => since,
        None if name(&args).is_some() => head.horizon,
        None => head.sequence.saturating_sub(SHOWN_BY_DEFAULT).max(head.horizon),
    };
    table::print(line(
        ["SEQUENCE", "TIME", "EVENT", "OBJECT", "WRITER", "CAUSE"].map(str::to_owned),
    ))?;
    let after = read(&args, &client, start, head.sequence).await?;
    if args.follow {
        follow(&args, &client, after).await
    } else {
        Ok(())
    }
}

fn kinds(args: &Args) -> Vec<String> {
    args.target.iter().map(|target| target.kind.plural().to_owned()).collect()
}

fn name(args: &Args) -> Option<&str> {
    args.target.as_ref()?.name.as_deref()
}

/// Shows the events after `start`, at least up to `head`; returns the position reached.
async fn read(args: &Args, client: &Client, start: u64, head: u64) -> anyhow::Result<u64> {
    let namespace = match &args.target {
        Some(target) if target.name.is_some() => target.kind.namespace(&args.namespace),
        _ => String::new(),
    };
    let mut after_sequence = start;
    while after_sequence < head {
        let request = ReadLogRequest {
            after_sequence,
            limit: PAGE_SIZE,
            kinds: kinds(args),
            namespace: namespace.clone(),
            name: name(args).unwrap_or_default().to_owned(),
        };
        let page = client
            .log()
            .read(client.request(request))
            .await
            .context("cannot read the log")?
            .into_inner();
        page.events.iter().try_for_each(show)?;
        if page.sequence <= after_sequence {
            break;
        }
        after_sequence = page.sequence;
    }
    Ok(after_sequence)
}

async fn follow(args: &Args, client: &Client, after_sequence: u64) -> anyhow::Result<()> {
    let request = FollowLogRequest {
        after_sequence,
        kinds: kinds(args),
    };
    let mut events = client
        .log()
        .follow(Request::new(request))
        .await
        .context("cannot follow the log")?
        .into_inner();
    while let Some(event) = events.message().await? {
        let object = event.object.as_ref();
        let is_wanted = name(args).is_none_or(|name| {
            object
                .is_some_and(|object| object.name == name && (object.namespace.is_empty() || object.namespace == args.namespace))
        });
        if is_wanted {
            show(&event)?;
        }
    }
    anyhow::bail!("the server ended the stream of events")
}

fn show(event: &Event) -> anyhow::Result<()> {
    table::print(line(cells(event)))
}

/// The texts of an event's line.
pub(crate) fn cells(event: &Event) -> [String; 6] {
    let time = event
        .time
        .and_then(|time| jiff::Timestamp::new(time.seconds, time.nanos).ok());
    let object = event.object.as_ref().map(|object| match object.namespace.as_str() {
        "" => format!("{}/{}", object.kind, object.name),
        namespace => format!("{}/{namespace}/{}", object.kind, object.name),
    });
    [
        event.sequence.to_string(),
        time.map(|time| format!("{time:.3}")).unwrap_or_default(),
        event.operation.clone(),
        object.unwrap_or_default(),
        event.writer.clone(),
        event.cause.clone(),
    ]
}

/// Fixed widths: events are shown one by one, as they come.
fn line([sequence, time, operation, object, writer, cause]: [String; 6]) -> String {
    format!("{sequence:>9}  {time:<24}  {operation:<8}  {object:<58}  {writer:<20}  {cause}")
        .trim_end()
        .to_owned()
}
