//! Publishing the nodes' pools, some at a time.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use rpc::dray::v1::ApplyRequest;
use tonic::Code;

use super::objects;
use super::trace::Node;
use crate::client::connect::Client;
use crate::client::progress;

/// Pools being published at once: enough to fill the server's commits, few enough for it to stay answering.
const IN_FLIGHT: usize = 32;
/// Tries of one pool while the server is busy.
const TRIES: u32 = 8;

/// Applies the class and publishes every node's pool. Returns how many were new or changed.
pub(crate) async fn publish(client: &Client, nodes: &[Node]) -> anyhow::Result<usize> {
    let class = ApplyRequest {
        json: serde_json::to_vec(&objects::class())?,
    };
    client
        .objects()
        .apply(client.request(class))
        .await
        .context("cannot apply the device class")?;
    let bar = progress::bar("publishing", nodes.len());
    let published = stream::iter(nodes)
        .map(|node| publish_one(client, node))
        .buffer_unordered(IN_FLIGHT)
        .inspect_ok(|_| bar.inc(1))
        .try_fold(0, |changed, is_changed| async move { Ok(changed + usize::from(is_changed)) })
        .await;
    bar.finish_and_clear();
    published
}

async fn publish_one(client: &Client, node: &Node) -> anyhow::Result<bool> {
    let request = objects::pool(node)?;
    let mut pause = Duration::from_millis(50);
    for _ in 1..TRIES {
        match client.pools().publish(client.request(request.clone())).await {
            Ok(answer) => return Ok(!answer.into_inner().unchanged),
            Err(status) if matches!(status.code(), Code::ResourceExhausted | Code::Unavailable | Code::Aborted) => {}
            Err(status) => return Err(status).with_context(|| format!("cannot publish the pool {}", request.pool)),
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    let answer = client.pools().publish(client.request(request.clone())).await;
    let answer = answer.with_context(|| format!("cannot publish the pool {} after {TRIES} tries", request.pool))?;
    Ok(!answer.into_inner().unchanged)
}
