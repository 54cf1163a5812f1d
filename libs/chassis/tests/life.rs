//! A service process's life, seen from outside: stop signals drain it, and the exit code tells how it went.
//!
//! Each test starts this test binary again as the service, as signals go to whole processes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use chassis::{AnyError, ChassisConfig, Parts};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn start(service: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", service])
        .stderr(Stdio::piped())
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Reads the log until a line with `text` appears; panics with everything read if it never does.
fn wait_for_line(log: &mut impl BufRead, text: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "no line with {text:?} in:\n{seen}");
        if line.contains(text) {
            return line;
        }
        seen.push_str(&line);
    }
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

fn run<F, Fut>(config: ChassisConfig, serve: F) -> !
where
    F: FnOnce(Parts) -> Fut,
    Fut: Future<Output = Result<(), AnyError>>,
{
    let code = chassis::run("test", &config, serve);
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

#[test]
#[ignore = "a service that other tests start"]
fn draining_service() {
    run(ChassisConfig::default(), |parts| async move {
        tracing::info!("working");
        parts.stop.cancelled().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        tracing::info!("drained");
        Ok(())
    });
}

#[test]
#[ignore = "a service that other tests start"]
fn hanging_service() {
    let config = ChassisConfig {
        drain_timeout: Duration::from_millis(100),
        ..ChassisConfig::default()
    };
    run(config, |_| async move {
        tracing::info!("working");
        std::future::pending().await
    });
}

#[test]
#[ignore = "a service that other tests start"]
fn patient_service() {
    run(ChassisConfig::default(), |_| async move {
        tracing::info!("working");
        std::future::pending().await
    });
}

#[test]
#[ignore = "a service that other tests start"]
fn panicking_service() {
    run(ChassisConfig::default(), |_| async move {
        let task = tokio::spawn(async { panic!("a bug") });
        task.await.ok();
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(())
    });
}

#[test]
#[ignore = "a service that other tests start"]
fn json_service() {
    let mut config = ChassisConfig::default();
    config.telemetry.log_format = chassis::telemetry::LogFormat::Json;
    run(config, |_| async move { Err("no database".into()) });
}

/// The variable that names the collector of [`traced_service`].
const COLLECTOR: &str = "TEST_COLLECTOR";

#[test]
#[ignore = "a service that other tests start"]
fn traced_service() {
    let mut config = ChassisConfig::default();
    config.telemetry.otlp_endpoint = std::env::var_os(COLLECTOR).unwrap().into_string().unwrap();
    run(config, |_| async move {
        tracing::info_span!("work").in_scope(|| {
            let traceparent = chassis::telemetry::current_traceparent().unwrap();
            tracing::info!(traceparent, "working");
        });
        Ok(())
    });
}

fn signal_and_wait(service: &str, signals: &[Signal]) -> (ExitStatus, String) {
    let mut child = start(service);
    let mut log = BufReader::new(child.stderr.take().unwrap());
    wait_for_line(&mut log, "working");
    let mut seen = String::new();
    for signal in signals {
        send(&child, *signal);
        seen.push_str(&wait_for_line(&mut log, "stopping"));
    }
    std::io::Read::read_to_string(&mut log, &mut seen).unwrap();
    (child.wait().unwrap(), seen)
}

#[test]
fn a_stop_signal_drains_and_exits_cleanly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (status, log) = signal_and_wait("draining_service", &[signal]);
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("drained") && log.contains("service stopped"), "{log}");
    }
}

#[test]
fn a_drain_that_takes_too_long_is_a_failure() {
    let (status, log) = signal_and_wait("hanging_service", &[Signal::SIGTERM]);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("did not end within 100ms"), "{log}");
}

#[test]
fn a_second_signal_does_not_wait() {
    let (status, log) = signal_and_wait("patient_service", &[Signal::SIGTERM, Signal::SIGTERM]);
    assert_eq!(status.code(), Some(1), "{log}");
}

#[test]
fn a_panic_in_a_task_ends_the_process() {
    let output = start("panicking_service").wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("a bug"));
}

#[test]
fn a_failure_is_logged_as_json_and_exits_with_one() {
    let output = start("json_service").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr);
    let line = log.lines().find(|line| line.contains("service failed")).unwrap();
    assert!(line.starts_with('{') && line.contains("\"error\":\"no database\""), "{line}");
}

fn run_traced(collector: &str) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", "traced_service"])
        .env(COLLECTOR, collector);
    command.output().unwrap()
}

#[test]
fn traces_are_sent_to_the_collector_before_the_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let collector = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut preface = [0; 24];
        std::io::Read::read_exact(&mut stream, &mut preface).unwrap();
        preface
    });
    let output = run_traced(&address);
    // The way gRPC begins; this collector then hangs up, which must not fail the service.
    assert_eq!(&collector.join().unwrap(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_dead_collector_does_not_keep_a_service_from_ending() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = run_traced(&address);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
