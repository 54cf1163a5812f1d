//! Reading objects as JSON: one, or all of a kind page by page.

use anyhow::Context;
use rpc::dray::v1::{GetObjectRequest, ListObjectsRequest, Object};
use serde_json::Value;

use super::connect::Client;
use super::kind::Kind;

/// Objects of a kind and the log position up to which they are known.
pub(crate) struct Listed {
    pub(crate) objects: Vec<Value>,
    pub(crate) sequence: u64,
}

/// The server's default page would take many calls for large lists.
const PAGE_SIZE: u32 = 2_000;

/// One object.
pub(crate) async fn one(client: &Client, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let request = GetObjectRequest {
        kind: kind.plural().to_owned(),
        namespace: kind.namespace(namespace),
        name: name.to_owned(),
    };
    let answer = client.objects().get(client.request(request)).await;
    value(
        &answer
            .with_context(|| format!("cannot get {}/{name}", kind.plural()))?
            .into_inner(),
    )
}

/// All objects of a kind; an empty namespace means all namespaces.
pub(crate) async fn all(client: &Client, kind: Kind, namespace: &str) -> anyhow::Result<Listed> {
    let mut listed = Listed {
        objects: Vec::new(),
        sequence: 0,
    };
    let mut page_token = String::new();
    loop {
        let namespace = kind.namespace(namespace);
        let request = ListObjectsRequest {
            kind: kind.plural().to_owned(),
            namespace,
            page_size: PAGE_SIZE,
            page_token,
        };
        let answer = client.objects().list(client.request(request)).await;
        let page = answer.with_context(|| format!("cannot list {}", kind.plural()))?.into_inner();
        if listed.sequence == 0 {
            // The first page's position: what changes while paging is seen again by a watch from here.
            listed.sequence = page.sequence;
        }
        for object in &page.objects {
            listed.objects.push(value(object)?);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(listed);
        }
    }
}

/// The object's JSON.
pub(crate) fn value(object: &Object) -> anyhow::Result<Value> {
    serde_json::from_slice(&object.json)
        .with_context(|| format!("the server sent {}/{} as broken JSON", object.kind, object.name))
}
