//! Receives reports (any controller may: everything it writes is conditional) and sweeps for drains that nobody finished.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bus::messages::{ClaimReport, ClaimState, NodeReports, ReportAnswer, ReportKey};
use bus::{Bus, Request, subjects};
use resource_api::claim::ResourceClaim;
use resource_api::unit::{UNIT_ANNOTATION, Unit};
use store::{PreparedRow, Store, StoreError, Stored, Writer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::decide::{Drained, ReleasingUnit, decide_completion};

/// As stored in `prepared.state`; the same numbers as the message's.
const UNPREPARED: i16 = ClaimState::Unprepared as i16;
const FAILED: i16 = ClaimState::Failed as i16;
/// Report messages handled at once. More wait in NATS's bounded subscription; what it drops there is repeated by the agent.
const REPORTS_AT_ONCE: usize = 16;
/// Drained claims completed by one sweep.
const SWEEP_MAX: u32 = 1_000;

/// Answers reports until `stop`.
pub(crate) async fn run(store: Store, writer: Writer, bus: Bus, stop: CancellationToken) {
    let mut pause = Duration::from_millis(100);
    while !stop.is_cancelled() {
        match bus.requests(&subjects::all_agents(), Some("controllers")).await {
            Ok(mut requests) => {
                pause = Duration::from_millis(100);
                let mut under_way = JoinSet::new();
                loop {
                    let request = tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        _ = under_way.join_next(), if under_way.len() >= REPORTS_AT_ONCE => continue,
                        request = requests.next(), if under_way.len() < REPORTS_AT_ONCE => request,
                    };
                    let Some(request) = request else { break };
                    under_way.spawn(answer(store.clone(), writer.clone(), request));
                    while under_way.try_join_next().is_some() {}
                }
                while under_way.join_next().await.is_some() {}
            }
            Err(error) => tracing::warn!(error = %error, "no reports can be received; trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
        }
    }
}

/// A report that is not answered is repeated by its agent.
async fn answer(store: Store, writer: Writer, request: Request<NodeReports, ReportAnswer>) {
    match on_reports(&store, &writer, &request.message).await {
        Ok(answer) => {
            if let Err(error) = request.answer(&answer).await {
                tracing::debug!(error = %error, "an answer could not be sent");
            }
        }
        Err(error) => tracing::warn!(error = %error, "reports could not be recorded"),
    }
}

async fn on_reports(store: &Store, writer: &Writer, message: &NodeReports) -> Result<ReportAnswer, StoreError> {
    let rows: Vec<PreparedRow> = message.reports.iter().filter_map(row_of).collect();
    store.put_prepared(&rows).await?;
    let unprepared: Vec<(Uuid, u64)> = rows
        .iter()
        .filter(|row| row.state == UNPREPARED)
        .map(|row| (row.claim_uid, row.allocation_sequence))
        .collect();
    complete(store, writer, &unprepared).await?;
    let accepted = message
        .reports
        .iter()
        .map(|r| ReportKey {
            claim_uid: r.claim_uid.clone(),
            allocation_sequence: r.allocation_sequence,
        })
        .collect();
    Ok(ReportAnswer { accepted })
}

fn row_of(report: &ClaimReport) -> Option<PreparedRow> {
    let Ok(claim_uid) = report.claim_uid.parse::<Uuid>() else {
        tracing::warn!(node = report.node, "a report names no claim uid");
        return None;
    };
    Some(PreparedRow {
        claim_uid,
        allocation_sequence: report.allocation_sequence,
        node: report.node.clone(),
        state: i16::try_from(report.state).unwrap_or(FAILED),
        message: report.message.clone(),
        devices: devices_json(report),
    })
}

fn devices_json(report: &ClaimReport) -> String {
    let devices: Vec<serde_json::Value> = report
        .devices
        .iter()
        .map(|d| {
            serde_json::json!({"driver": d.driver, "pool": d.pool, "device": d.device, "cdiDeviceIDs": d.cdi_device_ids, "requests": d.request_names})
        })
        .collect();
    serde_json::Value::from(devices).to_string()
}

/// Frees the devices of those claims that drain and whose allocation is the one that was let go.
async fn complete(store: &Store, writer: &Writer, let_go: &[(Uuid, u64)]) -> Result<(), StoreError> {
    if let_go.is_empty() {
        return Ok(());
    }
    let uids: Vec<Uuid> = let_go.iter().map(|(uid, _)| *uid).collect();
    let draining: BTreeSet<Uuid> = store
        .allocation_sequences(&uids)
        .await?
        .into_iter()
        .filter(|(uid, sequence, draining)| *draining && let_go.contains(&(*uid, *sequence)))
        .map(|(uid, _, _)| uid)
        .collect();
    let uids: Vec<Uuid> = draining.into_iter().collect();
    let drained: Vec<Drained> = store
        .objects_by_uid(&uids)
        .await?
        .into_iter()
        .map(|claim| Drained {
            unit: unit_of(&claim),
            claim,
        })
        .collect();
    let units = read_units(store, &drained).await?;
    for outcome in writer.commit_all(decide_completion(&drained, &units)).await {
        // A lost one is found by the sweep, or by the next repetition.
        tracing::debug!(outcome = ?outcome?, "a drained unit");
    }
    Ok(())
}

fn unit_of(claim: &Stored) -> Option<Uuid> {
    let claim: ResourceClaim = serde_json::from_str(&claim.body).ok()?;
    claim.metadata.annotations.get(UNIT_ANNOTATION)?.parse().ok()
}

async fn read_units(store: &Store, drained: &[Drained]) -> Result<BTreeMap<Uuid, ReleasingUnit>, StoreError> {
    let uids: BTreeSet<Uuid> = drained.iter().filter_map(|d| d.unit).collect();
    let uids: Vec<Uuid> = uids.into_iter().collect();
    let mut units = BTreeMap::new();
    for stored in store.objects_by_uid(&uids).await? {
        let Ok(unit) = serde_json::from_str::<Unit>(&stored.body) else {
            continue;
        };
        let claims: Vec<Uuid> = unit.spec.claims.iter().map(|c| c.uid.into()).collect();
        let living = store.objects_by_uid(&claims).await?.into_iter().map(|c| c.uid).collect();
        units.insert(stored.uid, ReleasingUnit { stored, living });
    }
    Ok(units)
}

/// Finishes, while this process leads, drains whose node let go but whose completion got lost.
pub(crate) async fn sweep(store: Store, writer: Writer, leading: watch::Receiver<bool>, stop: CancellationToken) {
    let mut every = tokio::time::interval(Duration::from_secs(2));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        if !*leading.borrow() {
            continue;
        }
        let swept = async {
            let let_go = store.finished_drains(SWEEP_MAX).await?;
            complete(&store, &writer, &let_go).await
        };
        if let Err(error) = swept.await {
            tracing::warn!(error = %error, "drains could not be finished; trying again");
        }
    }
}
