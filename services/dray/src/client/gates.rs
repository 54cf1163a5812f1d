//! `dray gates`: the feature gates of the installation, and switching them.

use std::collections::HashMap;

use anyhow::Context;
use rpc::dray::v1::{FeatureGate, ListGatesRequest, SwitchGatesRequest};

use super::connect::{Client, ServerArgs};
use super::table;

/// What to do with the gates.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Show every gate, its default, and the log position since which it is as it is.
    Get(GetArgs),
    /// Switch gates, all or none; every process follows at one position of the log, without restart.
    Set(SetArgs),
}

#[derive(clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Args)]
pub(crate) struct SetArgs {
    /// For example `DRADerivedAttributes=true,DRADeviceTaints=false`.
    #[arg(required = true, value_name = "NAME=BOOL,...", value_delimiter = ',', value_parser = setting)]
    settings: Vec<(String, bool)>,
    #[command(flatten)]
    server: ServerArgs,
}

fn setting(text: &str) -> Result<(String, bool), String> {
    let form = || format!("{text:?} is not of the form Name=true or Name=false");
    let (name, value) = text.split_once('=').ok_or_else(form)?;
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok((name.trim().to_owned(), true)),
        "false" => Ok((name.trim().to_owned(), false)),
        _ => Err(form()),
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Get(args) => get(&args.server).await,
        Command::Set(args) => set(args).await,
    }
}

async fn get(server: &ServerArgs) -> anyhow::Result<()> {
    let client = Client::connect(server).await?;
    let answer = client.gates().list(client.request(ListGatesRequest {})).await;
    let answer = answer.context("cannot read the feature gates")?.into_inner();
    table::print(as_table(&answer.gates))
}

async fn set(args: SetArgs) -> anyhow::Result<()> {
    let client = Client::connect(&args.server).await?;
    let gates: HashMap<String, bool> = args.settings.into_iter().collect();
    let answer = client.gates().switch(client.request(SwitchGatesRequest { gates })).await;
    let answer = answer.context("cannot switch the feature gates")?.into_inner();
    table::print(if answer.unchanged {
        format!("unchanged since {}", answer.position)
    } else {
        format!("switched at {}", answer.position)
    })
}

fn as_table(gates: &[FeatureGate]) -> String {
    let mut rows = table::table(&["gate", "is", "default", "since", "needs"]);
    let word = |on: bool| if on { "on" } else { "off" };
    for gate in gates {
        let default = if gate.locked {
            format!("{}, locked", word(gate.on_by_default))
        } else {
            word(gate.on_by_default).to_owned()
        };
        let since = if gate.since == 0 {
            "the start".to_owned()
        } else {
            gate.since.to_string()
        };
        rows.add_row([gate.name.as_str(), word(gate.on), &default, &since, &gate.needs.join(", ")]);
    }
    table::text(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_names_with_booleans() {
        assert_eq!(setting("A=True"), Ok(("A".to_owned(), true)));
        assert_eq!(setting(" B = false"), Ok(("B".to_owned(), false)));
        assert!(setting("C").is_err_and(|error| error.contains("not of the form")));
        assert!(setting("C=yes").is_err());
    }
}
