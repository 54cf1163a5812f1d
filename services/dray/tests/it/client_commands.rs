//! A user's first session: objects from YAML, a unit, its devices, its end; and what happens to faulty input.

use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::eventually;

use crate::installation::Installation;

#[tokio::test(flavor = "multi_thread")]
async fn claim_goes_from_yaml_to_devices_and_back() -> anyhow::Result<()> {
    let dray = Installation::start(&[]).await?;
    let applied = dray.ok(&["apply", "-f", "examples/gpus.yaml"]).await?;
    assert_eq!(
        applied,
        "DeviceClass/sim-gpu created\nDeviceClass/example-gpu created\nResourceSlice/node-2-gpus created\n"
    );
    assert_eq!(
        dray.ok(&["apply", "-f", "examples/gpus.yaml"])
            .await?
            .matches("unchanged")
            .count(),
        3
    );

    let submit = ["submit", "-f", "examples/claim.yaml", "--client-id", "first", "--wait", "60s"];
    let submitted = dray.ok(&submit).await?;
    assert!(submitted.contains("submitted: train"), "{submitted}");
    assert!(submitted.contains("  train: node-2/gpu-0, node-2/gpu-1"), "{submitted}");
    let repeated = dray.ok(&submit).await?;
    assert!(repeated.contains("had been submitted before: train"), "{repeated}");

    let claim = dray.json(&["get", "claim/train"]).await?;
    assert_eq!(claim["status"]["reservedFor"][0]["resource"], "units");
    let unit = claim["metadata"]["annotations"]["dray.v1/unit"]
        .as_str()
        .context("the claim names no unit")?
        .to_owned();
    let listed = dray.ok(&["get", "claims"]).await?;
    ensure!(
        listed.contains("train") && listed.contains("reserved") && listed.contains("node-2/gpu-0"),
        "{listed}"
    );
    let described = dray.ok(&["describe", "claim", "train"]).await?;
    ensure!(
        described.contains("Requests:\n  gpus: 2 of class example-gpu where"),
        "{described}"
    );
    ensure!(described.contains("gpus: gpu.example.com/node-2/gpu-1"), "{described}");
    let story = dray.ok(&["events", "claim/train"]).await?;
    ensure!(story.contains("ADDED") && story.contains("MODIFIED"), "{story}");

    dray.ok(&["delete", "unit", &unit]).await?;
    let gone = || async { dray.err(&["get", "claim/train"]).await.is_ok() };
    eventually(Duration::from_secs(30), gone).await;
    let again = dray
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
        again.contains("  train: node-2/gpu-0, node-2/gpu-1"),
        "the devices are free again: {again}"
    );
    let audit = dray.ok(&["audit"]).await?;
    ensure!(audit.contains("audit: clean"), "{audit}");
    dray.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_driver_prepares_and_unprepares() -> anyhow::Result<()> {
    let dray = Installation::start(&["--nodes", "3"]).await?;
    dray.ok(&["apply", "-f", "examples/gpus.yaml"]).await?;
    let pools = || async {
        dray.ok(&["get", "slices", "-o", "name"])
            .await
            .is_ok_and(|names| names.lines().count() == 5)
    };
    eventually(Duration::from_secs(60), pools).await;
    let submitted = dray.ok(&["submit", "-f", "examples/sim-claim.yaml", "--wait", "60s"]).await?;
    let unit = submitted.split_whitespace().next().unwrap_or_default().to_owned();
    let shown = || async {
        let described = dray.ok(&["describe", "claim/sim"]).await;
        described.is_ok_and(|text| text.contains("Node says:\n  prepared\n") && text.contains("/gpu="))
    };
    eventually(Duration::from_secs(60), shown).await;
    // Deleting answers at once or once the node has let go; either way the devices come back and the claim goes.
    dray.ok(&["delete", &unit]).await?;
    let gone = || async { dray.err(&["get", "claim/sim"]).await.is_ok() };
    eventually(Duration::from_secs(60), gone).await;
    dray.ok(&["submit", "-f", "examples/sim-claim.yaml", "--wait", "60s"]).await?;
    let audit = dray.ok(&["audit"]).await?;
    ensure!(audit.contains("audit: clean"), "{audit}");
    dray.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_input_is_explained_and_writes_nothing() -> anyhow::Result<()> {
    let dray = Installation::start(&[]).await?;
    let bad = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: bad}\nspec: {devices: {requests: [\
               {name: a, exactly: {deviceClassName: Not_A_Name}}, {name: b}]}}\n";
    let bad = dray.write("bad.yaml", bad)?;
    let refused = dray.err(&["submit", "-f", &bad, "--client-id", "bad"]).await?;
    let faults: Vec<&str> = refused.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(
        faults
            .iter()
            .any(|fault| fault.contains("requests[0].exactly.deviceClassName: ")),
        "{refused}"
    );
    assert!(faults.iter().any(|fault| fault.contains("requests[1]")), "{refused}");
    let claims = dray.json(&["get", "claims", "-A"]).await?;
    assert_eq!(claims["items"].as_array().map(Vec::len), Some(0));
    let missing = dray.err(&["get", "claim/nothing"]).await?;
    assert!(missing.starts_with("error: cannot get resourceclaims/nothing: "), "{missing}");

    dray.ok(&["apply", "-f", "examples/claim.yaml"]).await?;
    let described = dray.ok(&["describe", "claim/train"]).await?;
    ensure!(
        described.contains("Waits because: no consumer has reserved it yet"),
        "an applied claim has no consumer: {described}"
    );
    let waited = dray.err(&["wait", "claim/train"]).await?;
    ensure!(waited.contains("belongs to no unit"), "{waited}");
    dray.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_show_shares_counters_taints_and_gates() -> anyhow::Result<()> {
    let dray = Installation::start(&["--allocators", "2", "--feature-gates", "DRADerivedAttributes=true"]).await?;
    for file in ["gpus", "partitions", "bandwidth", "taint-rule"] {
        let file = format!("examples/{file}.yaml");
        let applied = dray.ok(&["apply", "-f", &file]).await?;
        ensure!(!applied.contains("unchanged"), "{applied}");
        // Also kinds that are never changed without a version can be applied again.
        let again = dray.ok(&["apply", "-f", &file]).await?;
        assert_eq!(again.matches("unchanged").count(), again.lines().count(), "{again}");
    }
    let submit = async |file: &str| {
        let file = format!("examples/{file}-claim.yaml");
        dray.ok(&["submit", "-f", &file, "--wait", "60s"]).await
    };
    for (file, devices) in [
        ("bandwidth", "uplink: node-2/nic-0 (share: bandwidth 4G)"),
        ("partition", "partition: node-3/mig-3g-0"),
        ("tolerant", "tolerant: node-2/gpu-2"),
        (
            "admin",
            "monitor: node-2/gpu-0 (admin), node-2/gpu-1 (admin), node-2/gpu-2 (admin)",
        ),
        ("pair", "pair: node-2/gpu-0, node-2/nic-0 (share: bandwidth 2G)"),
    ] {
        let submitted = submit(file).await?;
        ensure!(submitted.contains(devices), "{file}: {submitted}");
    }
    let claims = dray.ok(&["get", "claims"]).await?;
    ensure!(claims.contains("node-2/nic-0 (share: bandwidth 4G)"), "{claims}");
    let described = dray.ok(&["describe", "claim", "uplink"]).await?;
    ensure!(
        described.contains("nic: 1 of class shared-nic with bandwidth 4G"),
        "{described}"
    );
    ensure!(
        described.contains("nic: nic.example.com/node-2/nic-0 (share: bandwidth 4G)"),
        "{described}"
    );
    let slices = dray.ok(&["get", "slices"]).await?;
    ensure!(slices.contains("gpu-0: memory 40Gi, slots 7"), "{slices}");
    let rules = dray.ok(&["get", "devicetaintrules"]).await?;
    ensure!(
        rules.contains("gpu.example.com/node-2/gpu-2") && rules.contains("example.com/maintenance=planned:NoSchedule"),
        "{rules}"
    );
    ensure!(
        dray.ok(&["describe", "taintrule", "drain-gpu-2"])
            .await?
            .contains("effect: NoSchedule")
    );
    assert_eq!(
        dray.ok(&["delete", "taintrule", "drain-gpu-2"]).await?,
        "devicetaintrules/drain-gpu-2 deleted\n"
    );

    let gates = dray.ok(&["gates", "get"]).await?;
    let derived = gates
        .lines()
        .find(|line| line.starts_with("DRADerivedAttributes"))
        .context("no such gate")?;
    ensure!(derived.contains("on") && derived.contains("off"), "{derived}");
    let switched = dray.ok(&["gates", "set", "DRAListTypeAttributes=true"]).await?;
    ensure!(switched.starts_with("switched at "), "{switched}");
    let refused = dray
        .err(&["gates", "set", "DRAConsumableCapacity=false,DRAMagic=true"])
        .await?;
    ensure!(refused.contains("no feature gate \"DRAMagic\""), "{refused}");
    ensure!(dray.ok(&["audit"]).await?.contains("audit: clean"));
    dray.stop().await?;
    Ok(())
}
