//! `dray ready`: asks a service's `/readyz`, for health checks in images that have no other HTTP client.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::up::ready;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Which service.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The service's `/readyz`; the port is that of its `--health-listen`.
    #[arg(long, default_value = "http://127.0.0.1:9464/readyz", value_name = "URL")]
    url: String,
}

/// Succeeds if and only if the service says that it is ready; the error says which check fails.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let host = host(&args.url).with_context(|| format!("{:?} is not http://HOST:PORT/readyz", args.url))?;
    let address = resolve(host).await?;
    if let Err(reason) = ready::check(address).await {
        bail!("not ready: {reason}");
    }
    Ok(())
}

/// `HOST:PORT` of `http://HOST:PORT/readyz`; nothing else is asked, so nothing else is accepted.
fn host(url: &str) -> Option<&str> {
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    (path == "readyz").then_some(host)
}

async fn resolve(host: &str) -> anyhow::Result<SocketAddr> {
    let found = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host(host)).await;
    let mut addresses = found
        .with_context(|| format!("no answer about {host}"))?
        .with_context(|| format!("cannot find {host}"))?;
    addresses.next().with_context(|| format!("{host} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readyz_over_http_is_asked() {
        assert_eq!(host("http://127.0.0.1:9464/readyz"), Some("127.0.0.1:9464"));
        assert_eq!(host("https://127.0.0.1:9464/readyz"), None);
        assert_eq!(host("http://127.0.0.1:9464/metrics"), None);
        assert_eq!(host("127.0.0.1:9464"), None);
    }
}
