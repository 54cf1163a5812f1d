//! Claims from outside, as many as there are devices: they can only all be allocated if the pools of the killed allocator
//! get another one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::stack::{ALLOCATORS, Stack};
use crate::shell;

const POOLS: usize = 16;
const DEVICES_PER_POOL: usize = 4;
const CLAIMS: usize = POOLS * DEVICES_PER_POOL;
/// The allocator is killed after so many.
const KILL_AFTER: usize = CLAIMS / 3;
const CLIENTS: usize = 4;
const DRIVER: &str = "gpu.compose.example";
const NAMESPACE: &str = "compose-test";
/// For one claim; the killed allocator's leases run out within seconds.
const PATIENCE: &str = "60s";

/// Publishes, submits, kills, and checks the result. Returns what to tell.
pub(super) fn run(dray: &Path, stack: &Stack, folder: &Path) -> anyhow::Result<String> {
    let client = Client {
        dray,
        server: stack.server(),
    };
    let (objects, claim) = write_files(folder)?;
    shell::run(client.command(&["apply", "--filename"]).arg(objects).stdout(Stdio::null()))?;
    let began = Instant::now();
    let slowest = burst(&client, &claim, stack)?;
    let took = began.elapsed();
    check(&client)?;
    stack.must_have_allocators(ALLOCATORS - 1)?;
    Ok(format!(
        "{CLAIMS} claims took all {CLAIMS} devices in {took:.1?} by {CLIENTS} clients, one of {ALLOCATORS} allocators killed \
         after {KILL_AFTER}, slowest claim {slowest:.1?}, audit clean"
    ))
}

/// The `dray` program outside the containers.
struct Client<'a> {
    dray: &'a Path,
    server: String,
}

impl Client<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = shell::program(self.dray);
        command.args(args).env("DRAY_SERVER", &self.server).stdin(Stdio::null());
        command
    }

    /// Submits a claim and waits for its devices; the time that took.
    fn claim(&self, file: &Path, number: usize) -> anyhow::Result<Duration> {
        let id = format!("claim-{number}");
        let mut command = self.command(&["submit", "--client-id", &id, "--wait", PATIENCE, "--filename"]);
        let began = Instant::now();
        let output = command.arg(file).output().context("cannot run dray")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{id} was not allocated: {said}");
        Ok(began.elapsed())
    }
}

/// Several clients submit at once; in the middle, an allocator is killed. Returns the slowest claim's time.
fn burst(client: &Client<'_>, claim: &Path, stack: &Stack) -> anyhow::Result<Duration> {
    let next = AtomicUsize::new(0);
    // Room for every answer, so that no client waits for us while we kill.
    let (answers, done) = sync_channel(CLAIMS);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let (answers, next) = (answers.clone(), &next);
            scope.spawn(move || submit_all(client, claim, next, &answers));
        }
        drop(answers);
        let before = slowest_of(&done, KILL_AFTER)?;
        stack.kill_an_allocator()?;
        let after = slowest_of(&done, CLAIMS - KILL_AFTER)?;
        Ok(before.max(after))
    })
}

/// One client: takes the next number until there is none left. Ends early if nobody listens any more.
fn submit_all(client: &Client<'_>, claim: &Path, next: &AtomicUsize, answers: &SyncSender<anyhow::Result<Duration>>) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= CLAIMS || answers.send(client.claim(claim, number)).is_err() {
            return;
        }
    }
}

fn slowest_of(done: &Receiver<anyhow::Result<Duration>>, count: usize) -> anyhow::Result<Duration> {
    let mut slowest = Duration::ZERO;
    for _ in 0..count {
        slowest = slowest.max(done.recv().context("the clients ended early")??);
    }
    Ok(slowest)
}

/// Every claim has a device, and no two have the same.
fn check(client: &Client<'_>) -> anyhow::Result<()> {
    let listed = shell::output(&mut client.command(&["get", "claims", "--namespace", NAMESPACE, "--output", "json"]))?;
    let listed: Value = serde_json::from_str(&listed).context("cannot read the list of claims")?;
    let claims = listed["items"].as_array().context("the list of claims has no items")?;
    let devices: Vec<&Value> = claims.iter().flat_map(devices_of).collect();
    let different: BTreeSet<String> = devices
        .iter()
        .map(|device| format!("{}/{}", device["pool"], device["device"]))
        .collect();
    ensure!(
        claims.len() == CLAIMS && devices.len() == CLAIMS && different.len() == CLAIMS,
        "{CLAIMS} claims should have a device each, but {} claims have {} devices, {} different ones",
        claims.len(),
        devices.len(),
        different.len()
    );
    Ok(())
}

fn devices_of(claim: &Value) -> impl Iterator<Item = &Value> {
    let results = claim.pointer("/status/allocation/devices/results");
    results.and_then(Value::as_array).into_iter().flatten()
}

/// The class and the pools, and the claim that all submissions repeat.
fn write_files(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let mut documents = vec![class()];
    documents.extend((0..POOLS).map(slice));
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    let (objects, claim) = (folder.join("objects.yaml"), folder.join("claim.yaml"));
    std::fs::write(&objects, text.join("\n---\n"))?;
    std::fs::write(&claim, claim_object().to_string())?;
    Ok((objects, claim))
}

fn class() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "compose-gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}}]},
    })
}

fn slice(number: usize) -> Value {
    let node = format!("compose-{number}");
    let devices = (0..DEVICES_PER_POOL).map(|device| json!({"name": format!("gpu-{device}")}));
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": devices.collect::<Vec<_>>(),
        },
    })
}

/// Without a name: the server makes one for each unit.
fn claim_object() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "compose-gpu"}}]}},
    })
}
