//! A user's first session: objects from YAML, a unit, its devices, its end; and what happens to faulty input.

use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::eventually;

use crate::stack::Stack;

#[tokio::test(flavor = "multi_thread")]
async fn claim_goes_from_yaml_to_devices_and_back() -> anyhow::Result<()> {
    let stack = Stack::start(&[]).await?;
    let applied = stack.ok(&["apply", "-f", "examples/gpus.yaml"]).await?;
    assert_eq!(
        applied,
        "DeviceClass/example-gpu created\nResourceSlice/node-1-gpus created\n"
    );
    assert_eq!(
        stack
            .ok(&["apply", "-f", "examples/gpus.yaml"])
            .await?
            .matches("unchanged")
            .count(),
        2
    );

    let submit = ["submit", "-f", "examples/claim.yaml", "--client-id", "first", "--wait", "60s"];
    let submitted = stack.ok(&submit).await?;
    assert!(submitted.contains("submitted: train"), "{submitted}");
    assert!(submitted.contains("  train: node-1/gpu-0, node-1/gpu-1"), "{submitted}");
    let repeated = stack.ok(&submit).await?;
    assert!(repeated.contains("had been submitted before: train"), "{repeated}");

    let claim = stack.json(&["get", "claim/train"]).await?;
    assert_eq!(claim["status"]["reservedFor"][0]["resource"], "units");
    let unit = claim["metadata"]["annotations"]["dray.v1/unit"]
        .as_str()
        .context("the claim names no unit")?
        .to_owned();
    let listed = stack.ok(&["get", "claims"]).await?;
    ensure!(
        listed.contains("train") && listed.contains("reserved") && listed.contains("node-1/gpu-0"),
        "{listed}"
    );
    let described = stack.ok(&["describe", "claim", "train"]).await?;
    ensure!(
        described.contains("Requests:\n  gpus: 2 of class example-gpu where"),
        "{described}"
    );
    ensure!(described.contains("gpus: gpu.example.com/node-1/gpu-1"), "{described}");
    let story = stack.ok(&["events", "claim/train"]).await?;
    ensure!(story.contains("ADDED") && story.contains("MODIFIED"), "{story}");

    stack.ok(&["delete", "unit", &unit]).await?;
    let gone = || async { stack.err(&["get", "claim/train"]).await.is_ok() };
    eventually(Duration::from_secs(30), gone).await;
    let again = stack
        .ok(&[
            "submit",
            "-f",
            "examples/claim.yaml",
            "--client-id",
            "second",
            "--wait",
            "60s",
        ])
        .await?;
    assert!(
        again.contains("  train: node-1/gpu-0, node-1/gpu-1"),
        "the devices are free again: {again}"
    );
    let audit = stack.ok(&["audit"]).await?;
    ensure!(audit.contains("audit: clean"), "{audit}");
    stack.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_input_is_explained_and_writes_nothing() -> anyhow::Result<()> {
    let stack = Stack::start(&[]).await?;
    let bad = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: bad}\nspec: {devices: {requests: [\
               {name: a, exactly: {deviceClassName: Not_A_Name}}, {name: b}]}}\n";
    let bad = stack.write("bad.yaml", bad)?;
    let refused = stack.err(&["submit", "-f", &bad, "--client-id", "bad"]).await?;
    let faults: Vec<&str> = refused.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(
        faults
            .iter()
            .any(|fault| fault.contains("requests[0].exactly.deviceClassName: ")),
        "{refused}"
    );
    assert!(faults.iter().any(|fault| fault.contains("requests[1]")), "{refused}");
    let claims = stack.json(&["get", "claims", "-A"]).await?;
    assert_eq!(claims["items"].as_array().map(Vec::len), Some(0));
    let missing = stack.err(&["get", "claim/nothing"]).await?;
    assert!(missing.starts_with("error: cannot get resourceclaims/nothing: "), "{missing}");

    stack.ok(&["apply", "-f", "examples/claim.yaml"]).await?;
    let described = stack.ok(&["describe", "claim/train"]).await?;
    ensure!(
        described.contains("Waits because: no consumer has reserved it yet"),
        "an applied claim has no consumer: {described}"
    );
    let waited = stack.err(&["wait", "claim/train"]).await?;
    ensure!(waited.contains("belongs to no unit"), "{waited}");
    stack.stop().await?;
    Ok(())
}
