//! What more allocator processes bring: decisions without a database, and durable claims per second with 1, 2 and 4 processes over 10,000 nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use resource_api::claim::ResourceClaim;
use resource_api::class::DeviceClass;
use resource_api::ids::Uid;
use resource_api::slice::ResourceSlice;
use serde::Serialize;
use structured::{Cluster, Features, Limits, Policy};
use uuid::Uuid;

use crate::e2e::{self, Watch};
use crate::fleet::Fleet;
use crate::machine::load;
use crate::{cluster, report};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    #[arg(long, default_value_t = 8)]
    devices: usize,
    #[arg(long, default_value_t = 7_500)]
    claims: usize,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    processes: Vec<usize>,
}

#[derive(Serialize)]
struct Figure {
    claims_per_s: f64,
    ratio_to_one: f64,
    conflicts_per_1000: f64,
    routed_home_share: f64,
}

#[derive(Serialize)]
struct Figures {
    nodes: usize,
    decisions_per_s: f64,
    processes: BTreeMap<usize, Figure>,
    cores: usize,
    load: f64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let mut figures = Figures {
        nodes: args.nodes,
        decisions_per_s: tokio::task::spawn_blocking(move || decisions_per_s(args.nodes, args.devices)).await??,
        processes: BTreeMap::new(),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        load: load(),
    };
    let mut table = report::table(&["allocators", "claims/s", "of one", "conflicts per 1,000", "right shard first"]);
    let mut one = f64::NAN;
    for &n in &args.processes {
        let fleet = Fleet::start(n).await?;
        cluster::publish(&fleet.channel, args.nodes, args.devices).await?;
        let mut watch = Watch::start(&fleet).await?;
        let burst = e2e::burst(&fleet, &mut watch, args.claims).await?;
        if one.is_nan() {
            one = burst.rate;
        }
        let (home, away) = (
            fleet.counter("dray_allocator_routed_home_total").await?,
            fleet.counter("dray_allocator_routed_away_total").await?,
        );
        let conflicts = fleet.counter("dray_allocator_conflicts_total").await?;
        let figure = Figure {
            claims_per_s: burst.rate,
            ratio_to_one: burst.rate / one,
            conflicts_per_1000: conflicts * 1e3 / (args.claims as f64 + conflicts),
            routed_home_share: home / (home + away),
        };
        table.add_row([
            n.to_string(),
            format!("{:.0}", figure.claims_per_s),
            format!("{:.2}", figure.ratio_to_one),
            format!("{:.1}", figure.conflicts_per_1000),
            format!("{:.3}", figure.routed_home_share),
        ]);
        figures.processes.insert(n, figure);
    }
    println!("{table}");
    println!(
        "{} nodes; {:.0} decisions/s in one thread without a database; {} cores, shared by Postgres, NATS, ingest, the allocators and the client: more \
         processes can only show that they do no harm here; load {:.1}",
        figures.nodes, figures.decisions_per_s, figures.cores, figures.load
    );
    report::write("shards", &figures)
}

/// Search and taking in memory, one claim of one device after the other.
fn decisions_per_s(nodes: usize, devices: usize) -> anyhow::Result<f64> {
    let mut state = Cluster::new(Features::default());
    let class = serde_json::json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{}\"", cluster::DRIVER)}}]}});
    state.put_class(Arc::new(serde_json::from_value::<DeviceClass>(class)?));
    for n in 0..nodes {
        let node = format!("node-{n:05}");
        let devices: Vec<serde_json::Value> = (0..devices)
            .map(|i| serde_json::json!({"name": format!("gpu-{i}"), "attributes": {"model": {"string": "H100"}}}))
            .collect();
        let slice = serde_json::json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
            "spec": {"driver": cluster::DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}});
        state.put_slice(Arc::new(serde_json::from_value::<ResourceSlice>(slice)?));
    }
    let claim = serde_json::json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "bench"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}});
    let claim: ResourceClaim = serde_json::from_value(claim)?;
    let n = (nodes * devices / 2).max(1);
    let began = Instant::now();
    for _ in 0..n {
        let mut claim = claim.clone();
        let uid = Uid::from(Uuid::now_v7());
        claim.metadata.uid = Some(uid);
        let unit = structured::compile_unit(&state, &[Arc::new(claim)])?;
        let plan = structured::place(&state, &unit, Policy::FirstFit, &Limits::default())?;
        for (uid, allocation) in &plan.claims {
            state.take(*uid, &allocation.devices.results);
        }
    }
    Ok(n as f64 / began.elapsed().as_secs_f64())
}
