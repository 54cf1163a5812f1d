//! Parts that die: they come back, what was acknowledged stays, and waiting claims get their devices without a human.

use std::time::Duration;

use anyhow::ensure;
use testkit::eventually;

use crate::stack::Stack;

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
    let stack = Stack::start(&["--allocators", "2"]).await?;
    stack.ok(&["apply", "-f", "examples/gpus.yaml"]).await?;
    for (round, part) in PARTS.into_iter().enumerate() {
        let killed = stack.kill9(part)?;
        let is_back = || async { stack.pid_of(part).filter(|pid| *pid != killed) };
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
        let submitted = eventually(Duration::from_secs(90), || stack.ok(&submit)).await;
        ensure!(
            submitted.contains("  train: node-1/gpu-0, node-1/gpu-1"),
            "after {part}: {submitted}"
        );
        let unit = submitted.split_whitespace().next().unwrap_or_default().replace("units/", "");
        let delete = ["delete", "unit", &unit];
        eventually(Duration::from_secs(60), || stack.ok(&delete)).await;
        eventually(Duration::from_secs(60), || stack.err(&["get", "claim/train"])).await;
    }
    let audit = stack.ok(&["audit"]).await?;
    ensure!(audit.contains("audit: clean"), "{audit}");
    stack.stop().await?;
    Ok(())
}
