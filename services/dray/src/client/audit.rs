//! `dray audit`: proves the invariants from the database's tables. The only client command that needs the database, because
//! it must not have to trust a service.

use std::time::Instant;

use anyhow::{Context, bail};
use store::{AuditReport, Store, StoreConfig};

use super::table;
use crate::up::running;

/// Where the tables are.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Which database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// Postgres; without it, the one that `dray up` runs on this machine.
    #[arg(long, env = "DRAY_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
    /// The data folder that was given to `dray up`, if any.
    #[arg(long, env = "DRAY_DATA_DIR", value_name = "FOLDER")]
    pub(crate) data_dir: Option<std::path::PathBuf>,
}

impl DatabaseArgs {
    /// The URL given, else that of the stack running here.
    pub(crate) fn find(&self) -> Option<String> {
        self.database_url
            .clone()
            .or_else(|| Some(running::find(self.data_dir.as_deref())?.database_url))
    }
}

/// Prints every check and what it found; an error if one found something.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Some(url) = args.database.find() else {
        bail!("no database: name one with --database-url or DRAY_DATABASE_URL");
    };
    let began = Instant::now();
    let report = audit(&url).await?;
    table::print(as_table(&report))?;
    for remark in &report.remarks {
        table::print(format!("note: {}: {}", remark.check, remark.found))?;
    }
    table::print(format!("\n{} ({:.1?})", verdict(&report), began.elapsed()))?;
    if !report.is_clean() {
        bail!("the database breaks {}", table::counted(report.violations.len(), "invariant"));
    }
    Ok(())
}

/// Runs all checks of the database at `url`.
pub(crate) async fn audit(url: &str) -> anyhow::Result<AuditReport> {
    let mut config = StoreConfig::new(url, "dray-audit");
    config.connections_max = 1;
    let store = Store::connect(&config).context("cannot read the database's URL")?;
    let report = store.audit().await.context("cannot audit the database");
    store.close().await;
    report
}

/// One line: clean or not, and how much was looked at.
pub(crate) fn verdict(report: &AuditReport) -> String {
    let counted = report
        .counted
        .iter()
        .map(|(what, number)| format!("{what} {}", table::thousands(*number)));
    let counted = counted.collect::<Vec<_>>().join(", ");
    let checks = report.checks.len();
    match report.violations.len() {
        0 => format!("audit: clean, {checks} checks of {counted}"),
        found => format!(
            "audit: {} by {checks} checks of {counted}",
            table::counted(found, "violation")
        ),
    }
}

fn as_table(report: &AuditReport) -> String {
    let mut rows = table::table(&["check", "result", "found"]);
    for check in &report.checks {
        let found: Vec<&str> = report
            .violations
            .iter()
            .filter(|v| v.check == *check)
            .map(|v| v.found.as_str())
            .collect();
        let result = if found.is_empty() { "ok" } else { "VIOLATED" };
        rows.add_row([check, result, found.join("\n").as_str()]);
    }
    table::text(&rows)
}
