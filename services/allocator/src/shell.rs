//! Around the engine: a thread of its own that feeds it inputs and hands its effects to the commits and reads of the async side.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use resource_api::unit::Unit;
use resource_api::wire::Time;
use store::{Store, StoreError, Stored, Writer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::engine::{Effect, Engine, Input, Stats};

/// Inputs waiting for the engine: batches of events and answers to commits. When full, the sender waits; the log waits with it.
pub(crate) const INPUTS_MAX: usize = 4_096;
/// Effects waiting for the async side. The engine never blocks on it: it keeps receiving while it waits for room.
pub(crate) const EFFECTS_MAX: usize = 4_096;
/// Effects that the engine may have produced and not yet handed over before it stops deciding.
const BACKLOG_MAX: usize = 4_096;
/// Reads of units under way at once.
const READS_MAX: usize = 4;

/// Runs the engine until all senders of `inputs` are gone or `stop`.
pub(crate) async fn run_engine(
    mut engine: Engine,
    stats: Stats,
    mut inputs: mpsc::Receiver<Input>,
    effects: mpsc::Sender<Effect>,
    stop: CancellationToken,
) {
    let start = Instant::now();
    let now_ms = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
    let mut backlog: VecDeque<Effect> = VecDeque::new();
    let mut produced = Vec::new();
    let mut more = false;
    loop {
        let pause = match engine.next_due_ms() {
            Some(at) => Duration::from_millis(at.saturating_sub(now_ms()).clamp(1, 1_000)),
            None => Duration::from_secs(1),
        };
        let input = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            room = effects.reserve(), if !backlog.is_empty() => {
                let Ok(room) = room else { return };
                if let Some(effect) = backlog.pop_front() {
                    room.send(effect);
                }
                while let (Ok(room), false) = (effects.try_reserve(), backlog.is_empty()) {
                    if let Some(effect) = backlog.pop_front() {
                        room.send(effect);
                    }
                }
                Input::Tick
            }
            input = inputs.recv() => match input {
                Some(input) => input,
                None => return,
            },
            () = std::future::ready(()), if more && backlog.len() < BACKLOG_MAX => Input::Tick,
            () = tokio::time::sleep(pause) => Input::Tick,
        };
        let began = Instant::now();
        engine.on_input(input, now_ms(), &mut produced);
        while let Ok(input) = inputs.try_recv() {
            engine.on_input(input, now_ms(), &mut produced);
            if began.elapsed() > Duration::from_millis(5) {
                break;
            }
        }
        more = backlog.len() < BACKLOG_MAX && engine.decide(now_ms(), Time::new(jiff::Timestamp::now()), &mut produced);
        stats.round_seconds.observe(began.elapsed().as_secs_f64());
        backlog.extend(produced.drain(..));
        while let (Ok(room), false) = (effects.try_reserve(), backlog.is_empty()) {
            if let Some(effect) = backlog.pop_front() {
                room.send(effect);
            }
        }
    }
}

/// Carries effects out until the engine is gone.
pub(crate) async fn run_effects(store: Store, writer: Writer, mut effects: mpsc::Receiver<Effect>, inputs: mpsc::Sender<Input>) {
    let mut commits = FuturesUnordered::new();
    let mut reads = FuturesUnordered::new();
    let mut to_read: VecDeque<Uuid> = VecDeque::new();
    let mut open = true;
    while open || !commits.is_empty() {
        if reads.len() < READS_MAX && !to_read.is_empty() {
            let units: Vec<Uuid> = to_read.drain(..to_read.len().min(256)).collect();
            reads.push(reread(store.clone(), units));
        }
        let answers = tokio::select! {
            biased;
            Some((token, result)) = commits.next(), if !commits.is_empty() => vec![Input::Settled { token, result }],
            Some(found) = reads.next(), if !reads.is_empty() => found,
            effect = effects.recv(), if open => {
                match effect {
                    Some(Effect::Commit { token, mutation }) => match writer.enqueue(mutation) {
                        Ok(wait) => commits.push(async move { (token, wait.await.unwrap_or(Err(StoreError::CommitUnknown))) }),
                        Err(error) => {
                            if inputs.send(Input::Settled { token, result: Err(error) }).await.is_err() {
                                return;
                            }
                        }
                    },
                    Some(Effect::Reread { unit }) => to_read.push_back(unit),
                    None => open = false,
                }
                continue;
            }
        };
        for answer in answers {
            if inputs.send(answer).await.is_err() {
                return;
            }
        }
    }
}

/// Reads units and their claims until the database answers.
async fn reread(store: Store, units: Vec<Uuid>) -> Vec<Input> {
    let mut pause = Duration::from_millis(20);
    loop {
        match read_units(&store, &units).await {
            Ok(inputs) => return inputs,
            Err(error) => tracing::warn!(error = %error, units = units.len(), "units could not be read; trying again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

async fn read_units(store: &Store, uids: &[Uuid]) -> Result<Vec<Input>, StoreError> {
    let units = store.objects_by_uid(uids).await?;
    let claims_of = |unit: &Stored| -> Vec<Uuid> {
        serde_json::from_str::<Unit>(&unit.body)
            .map(|u| u.spec.claims.iter().map(|c| c.uid.into()).collect())
            .unwrap_or_default()
    };
    let wanted: Vec<Uuid> = units.iter().flat_map(claims_of).collect();
    let claims = store.objects_by_uid(&wanted).await?;
    Ok(uids
        .iter()
        .map(|uid| {
            let found = units.iter().find(|unit| unit.uid == *uid).map(|unit| {
                let wanted = claims_of(unit);
                (
                    unit.clone(),
                    claims.iter().filter(|claim| wanted.contains(&claim.uid)).cloned().collect(),
                )
            });
            Input::Reread { unit: *uid, found }
        })
        .collect())
}
