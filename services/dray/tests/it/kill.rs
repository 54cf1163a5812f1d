//! Parts that die: they come back, what was acknowledged stays, and waiting claims get their devices without a human.

use std::time::Duration;

use anyhow::ensure;
use testkit::eventually;

use crate::installation::Installation;

const PARTS: [&str; 6] = [
    "allocator-1",
    "allocator-2",
    "controller",
    "ingest",
    "nats-server",
    "postgres",
];

#[tokio::test(flavor = "multi_thread")]
async fn killed_parts_come_back_and_claims_are_allocated() -> anyhow::Result<()> {
    let dray = Installation::start(&["--allocators", "2"]).await?;
    dray.ok(&["apply", "-f", "examples/gpus.yaml"]).await?;
    for (round, part) in PARTS.into_iter().enumerate() {
        let killed = dray.kill9(part)?;
        let is_back = || async { dray.pid_of(part).filter(|pid| *pid != killed) };
        eventually(Duration::from_secs(60), is_back).await;
        let client_id = format!("round-{round}");
        // The server may be the part that was killed, or may have lost its database for a moment: the same command again.
        let submit = [
            "submit",
            "-f",
            "examples/claim.yaml",
            "--client-id",
            &client_id,
            "--wait",
            "60s",
        ];
        let submitted = eventually(Duration::from_secs(90), || dray.ok(&submit)).await;
        ensure!(
            submitted.contains("  train: node-2/gpu-0, node-2/gpu-1"),
            "after {part}: {submitted}"
        );
        let unit = submitted.split_whitespace().next().unwrap_or_default().replace("units/", "");
        let delete = ["delete", "unit", &unit];
        eventually(Duration::from_secs(60), || dray.ok(&delete)).await;
        eventually(Duration::from_secs(60), || dray.err(&["get", "claim/train"])).await;
    }
    let audit = dray.ok(&["audit"]).await?;
    ensure!(audit.contains("audit: clean"), "{audit}");
    dray.stop().await?;
    Ok(())
}
