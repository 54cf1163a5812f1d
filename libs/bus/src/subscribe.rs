//! Receiving. Plain core subscriptions, also for events: they deliver first, and what they lose is read from Postgres,
//! so JetStream's redelivery would only add a round trip and a second position to keep.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_nats::Subscriber;
use futures::Stream;
use prost::Message;
use tokio_stream::{StreamExt, StreamMap};

use crate::connect::Bus;
use crate::error::BusError;
use crate::stats::Counters;
use crate::subjects::{Subject, Topic};
use crate::trace;

/// A message that arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Received<M> {
    /// Where it was sent.
    pub subject: Subject,
    /// What it says.
    pub message: M,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
}

/// The messages of one topic, from now on; a [`Stream`] that ends when the bus is closed. Dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription<M> {
    raw: Subscriber,
    counters: Arc<Counters>,
    message: std::marker::PhantomData<fn() -> M>,
}

impl Bus {
    /// Listens to a topic. It survives reconnects; what is sent in between is lost.
    pub async fn subscribe<M>(&self, topic: &Topic<M>) -> Result<Subscription<M>, BusError> {
        let raw = self
            .shared
            .client
            .subscribe(topic.as_str().to_owned())
            .await
            .map_err(|error| BusError::Unavailable {
                subject: topic.as_str().to_owned(),
                source: Some(Box::new(error)),
            })?;
        Ok(Subscription {
            raw,
            counters: Arc::clone(&self.shared.counters),
            message: std::marker::PhantomData,
        })
    }

    /// An empty set of subscriptions.
    pub fn inbox<M>(&self) -> Inbox<M> {
        Inbox {
            bus: self.clone(),
            subscriptions: StreamMap::new(),
        }
    }

    /// Waits until the server has taken all that was sent and subscribed so far: a start that must miss nothing
    /// subscribes, flushes, and then reads Postgres.
    ///
    /// The server handles a connection's commands in order, so an echo proves that those before it are done (the
    /// client's own `flush` only empties its buffer). `Unavailable` if there is no echo within the send timeout.
    pub async fn flush(&self) -> Result<(), BusError> {
        match tokio::time::timeout(self.shared.config.send_timeout, self.echo()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(BusError::Unavailable {
                subject: "flush".into(),
                source: Some(error),
            }),
            Err(_elapsed) => Err(BusError::Unavailable {
                subject: "flush".into(),
                source: None,
            }),
        }
    }

    async fn echo(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let client = &self.shared.client;
        let inbox = client.new_inbox();
        let mut echoes = client.subscribe(inbox.clone()).await?;
        client.publish(inbox, bytes::Bytes::new()).await?;
        match StreamExt::next(&mut echoes).await {
            Some(_echo) => Ok(()),
            None => Err("the bus is closed".into()),
        }
    }
}

impl<M: Message + Default> Subscription<M> {
    /// The next message; `None` when the bus is closed. Cancel safe. Unreadable messages are counted and left out.
    pub async fn next(&mut self) -> Option<Received<M>> {
        StreamExt::next(self).await
    }
}

impl<M: Message + Default> Stream for Subscription<M> {
    type Item = Received<M>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Received<M>>> {
        loop {
            let Some(raw) = std::task::ready!(Pin::new(&mut self.raw).poll_next(context)) else {
                return Poll::Ready(None);
            };
            if let Some(received) = decode(&raw, &self.counters) {
                return Poll::Ready(Some(received));
            }
        }
    }
}

/// Reads a message; an unreadable one is counted, logged and dropped: what it said is in Postgres or will be repeated.
pub(crate) fn decode<M: Message + Default>(raw: &async_nats::Message, counters: &Counters) -> Option<Received<M>> {
    let message = M::decode(raw.payload.clone()).map_err(|error| error.to_string());
    let subject = Subject::parse(&raw.subject).ok_or_else(|| "not a subject of ours".to_owned());
    match (subject, message) {
        (Ok(subject), Ok(message)) => Some(Received {
            subject,
            message,
            traceparent: trace::traceparent(raw),
        }),
        (Err(error), _) | (_, Err(error)) => {
            counters.unreadable.add_one();
            tracing::warn!(subject = %raw.subject, error, "unreadable NATS message");
            None
        }
    }
}

/// Subscriptions to a changing set of subjects, read as one: the work of the shards a process holds.
#[derive(Debug)]
pub struct Inbox<M> {
    bus: Bus,
    subscriptions: StreamMap<String, Subscription<M>>,
}

impl<M: Message + Default> Inbox<M> {
    /// Listens to exactly these topics from now on: drops the others, keeps those it has, adds the missing.
    pub async fn listen_to(&mut self, topics: &[Topic<M>]) -> Result<(), BusError> {
        let wanted: BTreeSet<&str> = topics.iter().map(Topic::as_str).collect();
        let gone = |subject: &String| !wanted.contains(subject.as_str());
        let gone: Vec<String> = self.subscriptions.keys().filter(|subject| gone(subject)).cloned().collect();
        for subject in gone {
            self.subscriptions.remove(&subject);
        }
        for topic in topics {
            if !self.subscriptions.contains_key(topic.as_str()) {
                let subscription = self.bus.subscribe(topic).await?;
                self.subscriptions.insert(topic.as_str().to_owned(), subscription);
            }
        }
        Ok(())
    }

    /// The next message of any topic. Cancel safe. Waits for ever while there is no topic.
    pub async fn next(&mut self) -> Received<M> {
        match StreamExt::next(&mut self.subscriptions).await {
            Some((_subject, received)) => received,
            None => std::future::pending().await,
        }
    }
}
