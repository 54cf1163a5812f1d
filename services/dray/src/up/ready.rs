//! Asking a service whether it is ready: one HTTP GET of `/readyz`.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A service that takes longer to answer is not ready.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// `Ok` if the service says that it is ready; else what it says, or that it does not answer.
pub(crate) async fn check(health: SocketAddr) -> Result<(), String> {
    match tokio::time::timeout(ANSWER_TIMEOUT, ask(health)).await {
        Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200") => Ok(()),
        Ok(Ok(answer)) => Err(body(&answer)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

async fn ask(health: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(health).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {health}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The failed checks of an answer: lines that begin with `[-]`.
fn body(answer: &str) -> String {
    let failed: Vec<&str> = answer.lines().filter(|line| line.starts_with("[-]")).collect();
    if failed.is_empty() {
        answer.lines().next().unwrap_or_default().to_owned()
    } else {
        failed.join("; ")
    }
}
