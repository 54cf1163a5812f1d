//! Starting, being seen, and stopping in good order.

use std::time::Duration;

use rpc::dray::v1 as pb;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::rig::{Rig, submission, within};

#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_answer() {
    let rig = Rig::new().await;
    for service in ["", "dray.v1.Units", "dray.v1.Agents"] {
        let asked = HealthCheckRequest { service: service.into() };
        let answer = within(HealthClient::new(rig.ingest.channel.clone()).check(asked))
            .await
            .unwrap();
        assert_eq!(answer.into_inner().status, 1, "{service:?} serves");
    }
    let asked = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(rig.ingest.channel.clone());
    let mut answers = within(client.server_reflection_info(tokio_stream::once(asked)))
        .await
        .unwrap()
        .into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) = within(answers.message()).await.unwrap().unwrap().message_response
    else {
        panic!("another answer");
    };
    let names: Vec<_> = list.service.iter().map(|s| s.name.as_str()).collect();
    for service in [
        "dray.v1.Units",
        "dray.v1.Objects",
        "dray.v1.Pools",
        "dray.v1.Log",
        "dray.v1.Agents",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&service), "{service} is missing in {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_by_method_and_code() {
    let rig = Rig::new().await;
    rig.ingest.submit(submission("job", 1)).await.unwrap();
    rig.ingest.get("no uid").await.unwrap_err();
    let families = rig.ingest.registry.gather();
    let calls = families
        .iter()
        .find(|family| family.name() == "dray_ingest_calls_total")
        .unwrap();
    let count = |method: &str, code: &str| {
        let has = |name: &str, value: &str, metric: &prometheus::proto::Metric| {
            metric
                .get_label()
                .iter()
                .any(|label| label.name() == name && label.value() == value)
        };
        let metric = calls
            .get_metric()
            .iter()
            .find(|m| has("method", method, m) && has("code", code, m));
        metric.map_or(0.0, |metric| metric.get_counter().get_value())
    };
    assert_eq!((count("Units/Submit", "0"), count("Units/Get", "3")), (1.0, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stops_although_clients_watch_wait_and_submit() {
    let rig = Rig::new().await;
    let unit = rig.ingest.submit(submission("job", 1)).await.unwrap().unit_uid;
    let mut watch = within(rig.ingest.units().watch(pb::WatchUnitsRequest::default()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(within(watch.message()).await.unwrap().unwrap().sequence, 2);
    let mut follow = within(rig.ingest.log().follow(pb::FollowLogRequest::default()))
        .await
        .unwrap()
        .into_inner();
    let mut units = rig.ingest.units();
    let waiting = tokio::spawn(async move {
        units
            .wait(pb::WaitUnitRequest {
                uid: unit,
                timeout: None,
            })
            .await
    });
    // A stream that its client keeps open.
    let (requests, open) = tokio::sync::mpsc::channel(1);
    let open = tokio_stream::wrappers::ReceiverStream::new(open);
    let mut answers = within(rig.ingest.units().submit_stream(open)).await.unwrap().into_inner();
    requests.send(submission("streamed", 1)).await.unwrap();
    within(answers.message()).await.unwrap().unwrap();

    rig.ingest.stop.cancel();
    assert_eq!(within(waiting).await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert_eq!(within(answers.message()).await.unwrap_err().code(), Code::Unavailable);
    for ended in [within(end_of(&mut watch)).await, within(end_of(&mut follow)).await] {
        assert_eq!(ended, Code::Unavailable);
    }
    within(rig.ingest.running).await.unwrap().unwrap();
    assert_eq!(rig.store.list_all("units").await.unwrap().0.len(), 2);
}

async fn end_of<T>(stream: &mut tonic::Streaming<T>) -> Code {
    loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            Some(Err(status)) => return status.code(),
            None => return Code::Ok,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_again_after_its_servers_were_away() {
    let mut rig = Rig::new().await;
    rig.stack.nats.kill9().await;
    // Without NATS, everything is slower and nothing fails.
    let unit = rig.ingest.submit(submission("job", 1)).await.unwrap().unit_uid;
    let mut units = rig.ingest.units();
    let uid = unit.clone();
    let waiting = tokio::spawn(async move { units.wait(pb::WaitUnitRequest { uid, timeout: None }).await });
    rig.allocate(&unit, "node-a").await;
    let allocated = within(waiting).await.unwrap().unwrap().into_inner();
    assert_eq!(allocated.phase, i32::from(pb::UnitPhase::Allocated));
    rig.stack.nats.restart().await.unwrap();
    testkit::eventually(Duration::from_secs(20), || async {
        rig.ingest.delete(&unit).await.map(|d| d.released)
    })
    .await;
    rig.assert_clean().await;
}
