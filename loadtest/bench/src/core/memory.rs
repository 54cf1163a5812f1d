//! Memory per device, all included: slices, indices, what decisions learn. Measured as resident memory in a process of its own, where
//! nothing else was ever allocated.

use std::fmt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, ensure};
use resource_api::class::DeviceClass;
use serde::{Deserialize, Serialize};
use structured::NodeFacts;

use super::generate::{self, Prefill, Spec};
use structured::conformance::{decide_and_take, empty_cluster, hold};

/// Bytes of a page of /proc; 4 KiB wherever this is measured.
const PAGE_BYTES: f64 = 4096.0;

/// What to build; half of the devices are in use.
#[derive(clap::Args)]
pub(super) struct Args {
    #[arg(long)]
    nodes: usize,
    #[arg(long)]
    devices_per_node: usize,
    #[arg(long)]
    claims: usize,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Figures {
    devices: usize,
    /// Slices as parsed, for comparison; their JSON is gone.
    slices_bytes_per_device: f64,
    /// Slices and nodes in a cluster that owns them, half of the devices in use.
    built_bytes_per_device: f64,
    /// After the replay of some claims: what decisions learned is in it.
    replayed_bytes_per_device: f64,
    claims: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory per device, {} devices: {:.0} B slices alone, {:.0} B in a cluster, {:.0} B after {} claims",
            self.devices, self.slices_bytes_per_device, self.built_bytes_per_device, self.replayed_bytes_per_device, self.claims
        )
    }
}

/// Starts the process and reads its figures.
pub(super) fn measure() -> anyhow::Result<Figures> {
    let output = Command::new(std::env::current_exe()?)
        .args([
            "core",
            "memory",
            "--nodes",
            "20000",
            "--devices-per-node",
            "10",
            "--claims",
            "2000",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the memory probe")?;
    ensure!(output.status.success(), "the memory probe failed: {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The measurement itself.
pub(super) fn probe(args: &Args) -> anyhow::Result<()> {
    let spec = Spec {
        seed: 900,
        nodes: args.nodes,
        devices_per_node: args.devices_per_node,
        claims: args.claims,
        prefill: Prefill::Half,
    };
    let class: DeviceClass = serde_json::from_value(generate::class())?;
    let claims = spec.claims().into_iter().map(serde_json::from_value);
    let claims: Vec<_> = claims.map(|claim| claim.map(Arc::new)).collect::<Result<_, _>>()?;
    let in_use = spec.preallocated();
    let nodes = spec.node_list();
    let before = resident_bytes()?;
    let mut cluster = empty_cluster();
    cluster.put_class(Arc::new(class));
    for node in nodes {
        cluster.put_node(NodeFacts {
            name: node.name,
            labels: node.labels,
            ..NodeFacts::default()
        });
    }
    // One at a time, as a service gets them: what the cluster does not keep is used again for the next.
    for node in 0..args.nodes {
        cluster.put_slice(spec.slice_object(node)?);
    }
    hold(&mut cluster, &in_use);
    let built = resident_bytes()?;
    let answered = claims
        .iter()
        .filter(|claim| decide_and_take(&mut cluster, claim).is_ok())
        .count();
    let replayed = resident_bytes()?;
    ensure!(answered > 0, "no claim was allocated");
    let slices: Vec<_> = (0..args.nodes)
        .map(|node| spec.slice_object(node))
        .collect::<Result<_, _>>()?;
    let with_slices = resident_bytes()?;
    drop(slices);
    let devices = args.nodes * args.devices_per_node;
    let per_device = |after: f64| (after - before) / devices as f64;
    let figures = Figures {
        devices,
        slices_bytes_per_device: (with_slices - replayed) / devices as f64,
        built_bytes_per_device: per_device(built),
        replayed_bytes_per_device: per_device(replayed),
        claims: args.claims,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn resident_bytes() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = text.split(' ').nth(1).context("statm has no resident size")?.parse()?;
    Ok(pages * PAGE_BYTES)
}
