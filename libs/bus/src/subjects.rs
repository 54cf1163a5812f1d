//! The grammar of subjects: built and parsed here and nowhere else.
//!
//! A builder returns a [`Topic`] or [`Question`], which fix the message type at both ends. Names become tokens by
//! [`encode_token`], as node, driver and agent names contain dots, which separate tokens in NATS.

use std::fmt::Write as _;
use std::marker::PhantomData;

use crate::messages::{EventBatch, NodeReports, ReportAnswer, Summary, TryRequest, TryResponse, Work};

/// A subject (or a pattern of subjects) that carries messages of type `M`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic<M> {
    text: String,
    message: PhantomData<fn() -> M>,
}

/// A subject (or a pattern) where a `Q` is asked and an `A` is the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question<Q, A> {
    text: String,
    messages: PhantomData<fn(Q) -> A>,
}

impl<M> Topic<M> {
    fn new(text: String) -> Self {
        Self {
            text,
            message: PhantomData,
        }
    }

    /// The subject as NATS knows it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<Q, A> Question<Q, A> {
    fn new(text: String) -> Self {
        Self {
            text,
            messages: PhantomData,
        }
    }

    /// The subject as NATS knows it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// `dray.event.<kind>`: commits that touched objects of `kind`, e.g. `resourceclaims`.
pub fn event(kind: &str) -> Topic<EventBatch> {
    Topic::new(Subject::Event { kind: kind.to_owned() }.to_string())
}

/// All commits.
pub fn all_events() -> Topic<EventBatch> {
    Topic::new("dray.event.>".to_owned())
}

/// `dray.work.<shard>`: new units for a home shard.
pub fn work(shard: u16) -> Topic<Work> {
    Topic::new(Subject::Work { shard }.to_string())
}

/// `dray.shard.<shard>.try`: asks another shard to place units.
pub fn shard_try(shard: u16) -> Question<TryRequest, TryResponse> {
    Question::new(Subject::ShardTry { shard }.to_string())
}

/// `dray.summary.<shard>`: what a shard has free, roughly.
pub fn summary(shard: u16) -> Topic<Summary> {
    Topic::new(Subject::Summary { shard }.to_string())
}

/// The summaries of all shards.
pub fn all_summaries() -> Topic<Summary> {
    Topic::new("dray.summary.*".to_owned())
}

/// `dray.agent.<agent>`: reports of one node agent (or fleet), answered when they are recorded.
pub fn agent(agent_id: &str) -> Question<NodeReports, ReportAnswer> {
    Question::new(
        Subject::Agent {
            agent_id: agent_id.to_owned(),
        }
        .to_string(),
    )
}

/// The reports of all node agents, for who answers them.
pub fn all_agents() -> Question<NodeReports, ReportAnswer> {
    Question::new("dray.agent.*".to_owned())
}

/// A concrete subject, parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// See [`event`].
    Event {
        /// Plural resource name.
        kind: String,
    },
    /// See [`work`].
    Work {
        /// Home shard.
        shard: u16,
    },
    /// See [`shard_try`].
    ShardTry {
        /// The shard that is asked.
        shard: u16,
    },
    /// See [`summary`].
    Summary {
        /// The shard that is summarised.
        shard: u16,
    },
    /// See [`agent`].
    Agent {
        /// As the agent registered.
        agent_id: String,
    },
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event { kind } => write!(f, "dray.event.{}", encode_token(kind)),
            Self::Work { shard } => write!(f, "dray.work.{shard}"),
            Self::ShardTry { shard } => write!(f, "dray.shard.{shard}.try"),
            Self::Summary { shard } => write!(f, "dray.summary.{shard}"),
            Self::Agent { agent_id } => write!(f, "dray.agent.{}", encode_token(agent_id)),
        }
    }
}

impl Subject {
    /// Reads a subject; `None` if it is none of ours (or a pattern).
    pub fn parse(text: &str) -> Option<Self> {
        let tokens: Vec<&str> = text.split('.').collect();
        match tokens.as_slice() {
            ["dray", "event", kind] => Some(Self::Event {
                kind: decode_token(kind)?,
            }),
            ["dray", "work", shard] => Some(Self::Work {
                shard: parse_shard(shard)?,
            }),
            ["dray", "shard", shard, "try"] => Some(Self::ShardTry {
                shard: parse_shard(shard)?,
            }),
            ["dray", "summary", shard] => Some(Self::Summary {
                shard: parse_shard(shard)?,
            }),
            ["dray", "agent", agent] => Some(Self::Agent {
                agent_id: decode_token(agent)?,
            }),
            _ => None,
        }
    }
}

/// One shard has one subject: no leading zeros, no sign.
fn parse_shard(text: &str) -> Option<u16> {
    let shard: u16 = text.parse().ok()?;
    (shard.to_string() == text).then_some(shard)
}

/// Turns a name into one subject token: letters, digits, `-` and `_` stay, any other byte becomes `=` and two
/// upper-case hexadecimal digits, and the empty name becomes `=`. Different names never share a token.
pub fn encode_token(name: &str) -> String {
    if name.is_empty() {
        return "=".to_owned();
    }
    let mut token = String::with_capacity(name.len() + 8);
    for byte in name.bytes() {
        if stays(byte) {
            token.push(char::from(byte));
        } else {
            write!(token, "={byte:02X}").expect("writing to a string cannot fail");
        }
    }
    token
}

/// The name behind a token; `None` if [`encode_token`] would not have made it.
pub fn decode_token(token: &str) -> Option<String> {
    if token == "=" {
        return Some(String::new());
    }
    let mut name = Vec::with_capacity(token.len());
    let mut bytes = token.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'=' => name.push(hex(bytes.next()?)? << 4 | hex(bytes.next()?)?),
            byte => name.push(byte),
        }
    }
    let name = String::from_utf8(name).ok().filter(|name| !name.is_empty())?;
    // Also refuses what has two spellings, such as `=61` for `a`.
    (encode_token(&name) == token).then_some(name)
}

fn stays(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
