//! Questions and answers (NATS request/reply). A lost question or answer is a timeout; the asker decides what then.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber;
use async_nats::client::RequestErrorKind;
use futures::StreamExt;
use prost::Message;

use crate::connect::Bus;
use crate::error::BusError;
use crate::stats::Counters;
use crate::subjects::{Question, Subject};
use crate::{subscribe, trace};

/// Questions that arrive, one after the other.
#[derive(Debug)]
pub struct Requests<Q, A> {
    raw: Subscriber,
    bus: Bus,
    messages: PhantomData<fn(A) -> Q>,
}

/// A question that waits for [`Request::answer`]. Dropping it lets the asker's time run out.
#[derive(Debug)]
pub struct Request<Q, A> {
    /// Where it was asked.
    pub subject: Subject,
    /// What is asked.
    pub message: Q,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
    reply_to: String,
    bus: Bus,
    answer: PhantomData<fn(A)>,
}

impl Bus {
    /// Asks and waits for the answer, at most `timeout`.
    ///
    /// `NobodyThere` comes at once, `Timeout` after `timeout`: the question may have been lost, or still be worked on.
    pub async fn ask<Q: Message, A: Message + Default>(
        &self,
        question: &Question<Q, A>,
        message: &Q,
        timeout: Duration,
        traceparent: Option<&str>,
    ) -> Result<A, BusError> {
        let subject = question.as_str().to_owned();
        let payload = self.encode(&subject, message)?;
        let request = async_nats::Request::new()
            .payload(payload)
            .headers(trace::headers(traceparent))
            .timeout(Some(timeout));
        // The client's own timeout begins when it has room for the question; ours is over all.
        let asked = self.shared.client.send_request(subject.clone(), request);
        let answer = match tokio::time::timeout(timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                return Err(match error.kind() {
                    RequestErrorKind::NoResponders => BusError::NobodyThere { subject },
                    RequestErrorKind::TimedOut => BusError::Timeout { subject, after: timeout },
                    _ => BusError::Unavailable {
                        subject,
                        source: Some(Box::new(error)),
                    },
                });
            }
            Err(_elapsed) => return Err(BusError::Timeout { subject, after: timeout }),
        };
        A::decode(answer.payload).map_err(|source| BusError::Malformed { subject, source })
    }

    /// Receives questions. Within a `queue` group each question goes to one member; without, to everyone.
    pub async fn requests<Q, A>(&self, question: &Question<Q, A>, queue: Option<&str>) -> Result<Requests<Q, A>, BusError> {
        let subject = question.as_str().to_owned();
        let client = &self.shared.client;
        let subscribed = match queue {
            Some(queue) => client.queue_subscribe(subject.clone(), queue.to_owned()).await,
            None => client.subscribe(subject.clone()).await,
        };
        let raw = subscribed.map_err(|error| BusError::Unavailable {
            subject,
            source: Some(Box::new(error)),
        })?;
        Ok(Requests {
            raw,
            bus: self.clone(),
            messages: PhantomData,
        })
    }
}

impl<Q: Message + Default, A: Message> Requests<Q, A> {
    /// The next question; `None` when the bus is closed. Cancel safe. Unreadable ones are counted and left out.
    pub async fn next(&mut self) -> Option<Request<Q, A>> {
        loop {
            let raw = self.raw.next().await?;
            let counters: &Arc<Counters> = &self.bus.shared.counters;
            let (Some(received), Some(reply_to)) = (subscribe::decode::<Q>(&raw, counters), &raw.reply) else {
                continue;
            };
            return Some(Request {
                subject: received.subject,
                message: received.message,
                traceparent: received.traceparent,
                reply_to: reply_to.to_string(),
                bus: self.bus.clone(),
                answer: PhantomData,
            });
        }
    }
}

impl<Q, A: Message> Request<Q, A> {
    /// Answers. An answer that does not arrive is a timeout for the asker.
    pub async fn answer(&self, answer: &A) -> Result<(), BusError> {
        let payload = self.bus.encode(&self.reply_to, answer)?;
        self.bus.send(self.reply_to.clone(), trace::headers(None), payload).await
    }
}
