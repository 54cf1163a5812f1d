//! Submitting many units over one stream, and again those that were not answered or should come back later.
//!
//! Repeating is safe: a unit's client id makes the server give the recorded answer.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use futures::stream;
use indicatif::ProgressBar;
use rpc::dray::v1::submit_stream_response::Result as Answer;
use rpc::dray::v1::{Refusal, SubmitRequest, SubmitStreamResponse};
use tonic::{Code, Request, Status};

use crate::client::connect::Client;
use crate::client::progress;

/// Streams opened one after another without a single new answer before giving up.
const FRUITLESS_MAX: u32 = 6;
/// The server is silent for this long: the stream is given up and another one opened.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What became of the units.
#[derive(Debug, Default)]
pub(crate) struct Submitted {
    /// Client id → unit uid.
    pub(crate) accepted: BTreeMap<String, String>,
    /// Of the accepted: how many had been submitted before.
    pub(crate) repeated: usize,
    /// (client id, why) of those that the server does not want.
    pub(crate) refused: Vec<(String, String)>,
}

/// Submits all `requests` (their client ids differ) and waits for every answer.
pub(crate) async fn submit(client: &Client, requests: Vec<SubmitRequest>) -> anyhow::Result<Submitted> {
    let bar = progress::bar("submitting", requests.len());
    let mut open: BTreeMap<String, SubmitRequest> = requests
        .into_iter()
        .map(|request| (request.client_id.clone(), request))
        .collect();
    let mut submitted = Submitted::default();
    let mut fruitless = 0;
    let mut pause = Duration::from_millis(100);
    while !open.is_empty() {
        let before = open.len();
        let ended = one_stream(client, &mut open, &mut submitted, &bar).await;
        fruitless = if open.len() < before { 0 } else { fruitless + 1 };
        if let Err(status) = ended
            && (fruitless > FRUITLESS_MAX || !is_passing(status.code()))
        {
            return Err(status.into());
        }
        if fruitless > FRUITLESS_MAX {
            bail!("the server took none of {} units in {FRUITLESS_MAX} tries", open.len());
        }
        if !open.is_empty() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }
    bar.finish_and_clear();
    Ok(submitted)
}

/// Sends everything that is open in the order of names; HTTP/2's flow control paces it. Answered units leave `open`.
async fn one_stream(
    client: &Client,
    open: &mut BTreeMap<String, SubmitRequest>,
    submitted: &mut Submitted,
    bar: &ProgressBar,
) -> Result<(), Status> {
    let requests: Vec<SubmitRequest> = open.values().cloned().collect();
    let mut expected = requests.len();
    let mut answers = client
        .units()
        .submit_stream(Request::new(stream::iter(requests)))
        .await?
        .into_inner();
    while expected > 0 {
        let answer = tokio::time::timeout(SILENCE_MAX, answers.message()).await;
        let Some(answer) = answer.map_err(|_| Status::unavailable("the server is silent"))?? else {
            return Ok(());
        };
        expected -= 1;
        if on_answer(answer, open, submitted) {
            bar.inc(1);
        }
    }
    Ok(())
}

/// True if the unit has its final answer.
fn on_answer(answer: SubmitStreamResponse, open: &mut BTreeMap<String, SubmitRequest>, submitted: &mut Submitted) -> bool {
    let id = answer.client_id;
    match answer.result {
        Some(Answer::Accepted(unit)) => {
            submitted.repeated += usize::from(unit.repeated);
            submitted.accepted.insert(id.clone(), unit.unit_uid);
        }
        Some(Answer::Refused(refusal)) if is_passing(Code::from_i32(refusal.code)) => return false,
        Some(Answer::Refused(refusal)) => submitted.refused.push((id.clone(), why(&refusal))),
        None => submitted
            .refused
            .push((id.clone(), "the server gave an empty answer".to_owned())),
    }
    open.remove(&id).is_some()
}

/// Refusals that mean "later".
fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::ResourceExhausted | Code::Unavailable | Code::Aborted | Code::Cancelled | Code::DeadlineExceeded
    )
}

fn why(refusal: &Refusal) -> String {
    let faults = refusal
        .field_violations
        .iter()
        .map(|fault| format!("{}: {}", fault.field, fault.description));
    std::iter::once(refusal.message.clone())
        .chain(faults)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use rpc::dray::v1::SubmitResponse;

    use super::*;

    #[test]
    fn a_busy_server_keeps_the_unit_open_and_a_fault_closes_it() {
        let request = |id: &str| {
            (
                id.to_owned(),
                SubmitRequest {
                    client_id: id.to_owned(),
                    ..SubmitRequest::default()
                },
            )
        };
        let mut open = BTreeMap::from([request("a"), request("b"), request("c")]);
        let mut submitted = Submitted::default();
        let mut answer = |id: &str, result| {
            let answer = SubmitStreamResponse {
                client_id: id.to_owned(),
                namespace: String::new(),
                result: Some(result),
            };
            on_answer(answer, &mut open, &mut submitted)
        };
        let refusal = |code: Code| {
            Answer::Refused(Refusal {
                code: code as i32,
                message: "no".to_owned(),
                ..Refusal::default()
            })
        };
        assert!(!answer("a", refusal(Code::ResourceExhausted)));
        assert!(answer("b", refusal(Code::InvalidArgument)));
        assert!(answer(
            "c",
            Answer::Accepted(SubmitResponse {
                unit_uid: "u".to_owned(),
                repeated: true,
                ..Default::default()
            })
        ));
        assert_eq!(open.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(submitted.refused, [("b".to_owned(), "no".to_owned())]);
        assert_eq!((submitted.repeated, submitted.accepted["c"].as_str()), (1, "u"));
    }
}
