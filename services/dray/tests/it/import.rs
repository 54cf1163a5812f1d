//! The openb trace through everything: imported, imported again, and still there after a restart.

use anyhow::ensure;

use crate::installation::Installation;

const IMPORT: [&str; 10] = [
    "import",
    "openb",
    "--nodes",
    "testdata/openb/nodes.csv",
    "--pods",
    "testdata/openb/pods.csv",
    "--max-nodes",
    "20",
    "--max-pods",
    "200",
];

/// The figure of a row of the import's report.
fn figure(report: &str, row: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.starts_with(row))?;
    line.split_whitespace().nth(1)?.replace(',', "").parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_is_imported_once_and_survives_a_restart() -> anyhow::Result<()> {
    let dray = Installation::start(&["--allocators", "2"]).await?;
    let first = dray.ok(&IMPORT).await?;
    let [submitted, allocated, waiting] = ["submitted", "allocated", "waiting"].map(|row| figure(&first, row).unwrap_or(0));
    assert_eq!(submitted, allocated + waiting, "{first}");
    assert!(allocated > 0 && waiting > 0, "{first}");
    ensure!(first.contains("audit: clean"), "{first}");

    let folder = dray.stop().await?;
    let dray = Installation::start_in(folder, &[]).await?;
    let second = dray.ok(&IMPORT).await?;
    assert!(second.contains(&format!("{submitted} had been submitted before")), "{second}");
    assert_eq!(figure(&second, "allocated"), Some(allocated), "{second}");
    assert_eq!(figure(&second, "waiting"), Some(waiting), "{second}");
    let names = dray.ok(&["get", "claims", "-n", "openb", "-o", "name"]).await?;
    assert_eq!(names.lines().count() as u64, submitted);
    dray.stop().await?;
    Ok(())
}
