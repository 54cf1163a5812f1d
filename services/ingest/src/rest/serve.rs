//! Connections: TLS or plain, HTTP/1.1 and HTTP/2, until told to stop; then those under way are finished.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 20_000;
/// How long a TLS handshake, or the head of a request, may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Streams of one connection: a client multiplexes all its watches on one.
const STREAMS_MAX: u32 = 1_000;
/// Pings find connections whose other end is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long connections may take to finish after the stop.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// What is sent.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Who is at the other end of a connection, as far as the connection says.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The connection is encrypted.
    pub(crate) is_tls: bool,
    /// The client's certificate, checked against the authority.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

/// Serves until `stop`. `tls`: `None` serves plain HTTP.
pub(crate) async fn serve<F, Fut>(listener: TcpListener, tls: Option<TlsAcceptor>, answer: F, stop: CancellationToken)
where
    F: Fn(Peer, Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Body>> + Send + 'static,
{
    let open = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept(&listener, &open) => accepted,
        };
        let (stream, address, room) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or the other end has gone: neither is a reason to stop, both are one to pause.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let watcher = graceful.watcher();
        let (tls, answer) = (tls.clone(), answer.clone());
        connections.spawn(async move {
            let _room = room;
            if let Err(error) = connection(stream, address, tls, answer, watcher).await {
                tracing::debug!(%address, %error, "a connection ended with an error");
            }
        });
    }
    if tokio::time::timeout(FINISH_MAX, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections were still busy at the end and have been cut");
    }
    connections.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    open: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, Option<tokio::sync::OwnedSemaphorePermit>)> {
    // The semaphore is never closed.
    let room = Arc::clone(open).acquire_owned().await.ok();
    let (stream, address) = listener.accept().await?;
    Ok((stream, address, room))
}

async fn connection<F, Fut>(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    answer: F,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    F: Fn(Peer, Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Body>> + Send + 'static,
{
    stream.set_nodelay(true)?;
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER_MAX);
    let mut peer = Peer {
        address,
        is_tls: false,
        certificate: None,
    };
    let service = |peer: Peer| {
        service_fn(move |request| {
            let answered = answer(peer.clone(), request);
            async move { Ok::<_, Infallible>(answered.await) }
        })
    };
    match tls {
        None => {
            let served = builder.serve_connection(TokioIo::new(stream), service(peer));
            watcher.watch(served.into_owned()).await?;
        }
        Some(acceptor) => {
            let stream = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await??;
            let (_, session) = stream.get_ref();
            peer.is_tls = true;
            peer.certificate = session
                .peer_certificates()
                .and_then(|chain| Some(chain.first()?.clone().into_owned()));
            let served = builder.serve_connection(TokioIo::new(stream), service(peer));
            watcher.watch(served.into_owned()).await?;
        }
    }
    Ok(())
}
