//! The three paths, over a real socket.

use prometheus::IntCounter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn get_path(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: dray\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn serves_health_readiness_and_metrics_until_stopped() {
    let stop = CancellationToken::new();
    let health = Health::new(stop.clone());
    let counter = IntCounter::new("dray_test_things_total", "how many things there were").unwrap();
    health.registry().register(Box::new(counter.clone())).unwrap();
    counter.inc_by(3);
    let (kind, name) = (crate::metrics::Kind::Counter, "dray_test_events_total");
    health.observe(kind, name, "how many events there were", || 7.0).unwrap();
    assert!(health.observe(kind, name, "taken", || 8.0).is_err());
    health.add_check("postgres", || async { Ok(()) });
    let until = CancellationToken::new();
    let (address, server) = health.clone().serve(([127, 0, 0, 1], 0).into(), until.clone()).await.unwrap();
    let server = tokio::spawn(server);

    assert!(get_path(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let ready = get_path(address, "/readyz").await;
    assert!(
        ready.starts_with("HTTP/1.1 200") && ready.contains("[+]postgres ok"),
        "{ready}"
    );
    let metrics = get_path(address, "/metrics").await;
    assert!(metrics.contains("dray_test_things_total 3"), "{metrics}");
    assert!(
        metrics.contains("# TYPE dray_test_events_total counter\ndray_test_events_total 7"),
        "{metrics}"
    );

    health.add_check("nats", || async { Err("disconnected".to_owned()) });
    let ready = get_path(address, "/readyz").await;
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("[-]nats failed: disconnected"),
        "{ready}"
    );

    until.cancel();
    server.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hanging_check_fails_and_a_stopping_service_is_not_ready() {
    let stop = CancellationToken::new();
    let health = Health::new(stop.clone());
    assert!(health.readiness().await.is_ok());
    health.add_check("slow", std::future::pending);
    assert!(
        health
            .readiness()
            .await
            .unwrap_err()
            .contains("[-]slow failed: no answer within 1s")
    );
    stop.cancel();
    assert!(health.readiness().await.unwrap_err().contains("stopping"));
}
