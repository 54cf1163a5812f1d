//! Every event arrives once and in order, whatever the bus loses, repeats or swaps, and whichever server goes away.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusConfig};
use follower::{Batch, Follower};
use store::{Committed, Mutation, Op, Outcome, Store, StoreConfig, Write, Writer, WriterConfig};
use testkit::eventually;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(20);
const KINDS: [&str; 2] = ["units", "resourceclaims"];

/// A committer whose announcements go where the test wants.
struct Source {
    store: Store,
    writer: Writer,
    committed: mpsc::Receiver<Arc<Committed>>,
    bus: Bus,
    announce: mpsc::Sender<Arc<Committed>>,
    _tasks: JoinSet<()>,
}

impl Source {
    async fn new(database_url: &str, nats_url: String) -> Self {
        let store = Store::connect(&StoreConfig::new(database_url, "test")).unwrap();
        let bus = Bus::connect(BusConfig::new(nats_url), "test").await.unwrap();
        let (captured, committed) = mpsc::channel(10_000);
        let (announce, to_announce) = mpsc::channel(10_000);
        let mut tasks = JoinSet::new();
        tasks.spawn(follower::announce(bus.clone(), "test".into(), to_announce));
        // One commit at a time, so that a test knows what is in each.
        let config = WriterConfig {
            in_flight_max: 1,
            ..WriterConfig::new("test")
        };
        let writer = Writer::spawn(store.clone(), config, Some(captured), &mut tasks, CancellationToken::new());
        Self {
            store,
            writer,
            committed,
            bus,
            announce,
            _tasks: tasks,
        }
    }

    /// Commits an object of the kind that `n` says and returns its event's sequence and the commit.
    async fn commit(&mut self, n: u64) -> (u64, Arc<Committed>) {
        let name = format!("object-{n}");
        let write = Write {
            kind: kind(n).into(),
            namespace: "team".into(),
            name: name.as_str().into(),
            uid: Uuid::from_u128(u128::from(n) + 1),
            op: Op::Create,
            body: format!("{{\"n\":{n}}}").into(),
            queue: None,
            part_of: None,
            cause: Some("made".into()),
            trace: None,
        };
        let outcome = self
            .writer
            .commit(Mutation {
                writes: vec![write],
                ..Mutation::default()
            })
            .await
            .unwrap();
        let Outcome::Won { sequences } = outcome else {
            panic!("{outcome:?}")
        };
        (sequences[0], self.committed.recv().await.unwrap())
    }

    async fn publish(&self, commit: &Arc<Committed>) {
        self.announce.send(commit.clone()).await.unwrap();
    }

    fn follow(&self, room: usize) -> Following {
        let (out, batches) = mpsc::channel(room);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Follower::new(self.store.clone(), self.bus.clone(), &KINDS, 0).run(out, stop.clone()));
        Following {
            batches,
            seen: BTreeMap::new(),
            position: 0,
            read_back: 0,
            stop,
            tasks,
        }
    }

    async fn connected(&self, wanted: bool) {
        let mut connected = self.bus.connected();
        tokio::time::timeout(DEADLINE, connected.wait_for(|is| *is == wanted))
            .await
            .unwrap()
            .unwrap();
    }
}

fn kind(n: u64) -> &'static str {
    // Both kinds, and one that is not followed.
    ["units", "resourceclaims", "nodes"][(n % 3) as usize]
}

/// A consumer that checks what every consumer relies on.
struct Following {
    batches: mpsc::Receiver<Batch>,
    /// Sequences by kind, in the order of arrival.
    seen: BTreeMap<String, Vec<u64>>,
    position: u64,
    read_back: usize,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Following {
    fn take(&mut self, batch: Batch) {
        assert!(batch.position >= self.position, "positions never go back");
        self.position = batch.position;
        self.read_back += usize::from(batch.read_back);
        let seen = self.seen.entry(batch.kind.to_string()).or_default();
        for event in batch.events {
            assert!(
                seen.last().is_none_or(|last| *last < event.sequence),
                "{} after {seen:?}",
                event.sequence
            );
            assert_eq!(event.kind, batch.kind);
            assert_eq!(event.cause.as_deref(), Some("made"));
            seen.push(event.sequence);
        }
    }

    /// Reads until the position has reached `head`; `expected`: all followed sequences that exist.
    async fn read_to(&mut self, head: u64, expected: &[(u64, &'static str)]) {
        while self.position < head {
            let batch = tokio::time::timeout(DEADLINE, self.batches.recv()).await.unwrap().unwrap();
            self.take(batch);
            for (sequence, kind) in expected.iter().filter(|(sequence, _)| *sequence <= self.position) {
                let seen = self.seen.get(*kind).is_some_and(|seen| seen.binary_search(sequence).is_ok());
                assert!(seen, "position {} was told before {sequence} arrived", self.position);
            }
        }
        let n_seen: usize = self.seen.values().map(Vec::len).sum();
        assert_eq!(
            n_seen,
            expected.iter().filter(|(sequence, _)| *sequence <= head).count(),
            "nothing but what exists"
        );
    }

    async fn end(mut self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.tasks.join_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

/// Commits `numbers` one by one; what is followed of them goes to `expected`.
async fn commit_all(
    source: &mut Source,
    numbers: std::ops::Range<u64>,
    expected: &mut Vec<(u64, &'static str)>,
) -> Vec<Arc<Committed>> {
    let mut commits = Vec::new();
    for n in numbers {
        let (sequence, commit) = source.commit(n).await;
        if KINDS.contains(&kind(n)) {
            expected.push((sequence, kind(n)));
        }
        commits.push(commit);
    }
    commits
}

#[tokio::test]
async fn lost_repeated_and_swapped_announcements() -> anyhow::Result<()> {
    let stack = testkit::stack().await?;
    let mut source = Source::new(&stack.database_url, stack.nats.url()).await;
    source.connected(true).await;
    let mut following = source.follow(64);
    let mut expected = Vec::new();
    let mut head = 0;
    for round in 0..5 {
        let mut commits = commit_all(&mut source, round * 40..round * 40 + 40, &mut expected).await;
        head = commits.last().unwrap().last;
        commits.chunks_mut(4).for_each(<[_]>::reverse);
        for (index, commit) in commits.iter().enumerate() {
            if index % 5 == 3 {
                continue;
            }
            source.publish(commit).await;
            if index % 3 == 0 {
                source.publish(commit).await;
            }
        }
        following.read_to(head, &expected).await;
    }
    assert!(following.read_back > 0, "what was lost had to be read");
    assert_eq!(head, 200);
    following.end().await;
    Ok(())
}

#[tokio::test]
async fn little_is_read_back_while_announcements_arrive() -> anyhow::Result<()> {
    let stack = testkit::stack().await?;
    let mut source = Source::new(&stack.database_url, stack.nats.url()).await;
    source.connected(true).await;
    let mut following = source.follow(64);
    // The first may come before the subscription.
    let mut expected = Vec::new();
    let first = commit_all(&mut source, 0..1, &mut expected).await;
    following.read_to(first[0].last, &expected).await;
    let before = following.read_back;
    for n in 1..60 {
        let commits = commit_all(&mut source, n..n + 1, &mut expected).await;
        source.publish(&commits[0]).await;
    }
    following.read_to(60, &expected).await;
    // A machine that is busy elsewhere may deliver one late.
    assert!(
        following.read_back - before < 10,
        "{} of 40 batches were read",
        following.read_back - before
    );
    following.end().await;
    Ok(())
}

#[tokio::test]
async fn nats_goes_away_and_comes_back_empty() -> anyhow::Result<()> {
    let mut stack = testkit::stack().await?;
    let mut source = Source::new(&stack.database_url, stack.nats.url()).await;
    source.connected(true).await;
    let mut following = source.follow(64);
    let mut expected = Vec::new();
    for commit in &commit_all(&mut source, 0..10, &mut expected).await {
        source.publish(commit).await;
    }
    following.read_to(10, &expected).await;

    stack.nats.kill9().await;
    source.connected(false).await;
    commit_all(&mut source, 10..20, &mut expected).await;
    following.read_to(20, &expected).await;
    assert!(following.read_back > 0, "there was no bus");

    stack.nats.wipe().await?;
    source.connected(true).await;
    for commit in &commit_all(&mut source, 20..30, &mut expected).await {
        source.publish(commit).await;
    }
    following.read_to(30, &expected).await;
    following.end().await;
    Ok(())
}

#[tokio::test]
async fn postgres_restarts_under_it() -> anyhow::Result<()> {
    let (mut postgres, url) = testkit::own_postgres().await?;
    let nats = testkit::nats().await?;
    let mut source = Source::new(&url, nats.url()).await;
    source.connected(true).await;
    let mut following = source.follow(64);
    let mut expected = Vec::new();
    let commits = commit_all(&mut source, 0..10, &mut expected).await;
    // Only the last is announced: the follower knows of a gap just when nobody can fill it.
    postgres.kill9().await;
    source.publish(&commits[9]).await;
    postgres.restart().await?;
    eventually(DEADLINE, || source.store.ping()).await;
    following.read_to(10, &expected).await;
    commit_all(&mut source, 10..20, &mut expected).await;
    following.read_to(20, &expected).await;
    following.end().await;
    Ok(())
}

#[tokio::test]
async fn a_slow_consumer_gets_everything_at_its_own_pace() -> anyhow::Result<()> {
    let stack = testkit::stack().await?;
    let mut source = Source::new(&stack.database_url, stack.nats.url()).await;
    source.connected(true).await;
    let mut following = source.follow(1);
    let mut expected = Vec::new();
    // Nobody reads meanwhile: one batch fits, the follower waits, early batches overflow.
    for commit in &commit_all(&mut source, 0..400, &mut expected).await {
        source.publish(commit).await;
    }
    following.read_to(400, &expected).await;
    following.end().await;
    Ok(())
}

#[tokio::test]
async fn an_overtaken_follower_ends() -> anyhow::Result<()> {
    let stack = testkit::stack().await?;
    let mut source = Source::new(&stack.database_url, stack.nats.url()).await;
    commit_all(&mut source, 0..10, &mut Vec::new()).await;
    let trimmed = || async {
        source.store.trim_log(Duration::ZERO, 1_000).await.is_ok() && source.store.head().await.unwrap().horizon == 10
    };
    eventually(DEADLINE, trimmed).await;
    commit_all(&mut source, 10..12, &mut Vec::new()).await;
    let mut following = source.follow(64);
    let read = async { while following.batches.recv().await.is_some_and(|batch| batch.events.is_empty()) {} };
    tokio::time::timeout(DEADLINE, read).await?;
    assert!(
        following.batches.recv().await.is_none(),
        "no event may be handed out after a hole"
    );
    tokio::time::timeout(DEADLINE, following.tasks.join_next()).await?.unwrap()?;
    Ok(())
}

#[tokio::test]
async fn it_ends_when_told_or_unwanted() -> anyhow::Result<()> {
    let stack = testkit::stack().await?;
    let mut source = Source::new(&stack.database_url, stack.nats.url()).await;
    source.follow(64).end().await;
    let mut unwanted = source.follow(64);
    unwanted.batches.close();
    commit_all(&mut source, 0..3, &mut Vec::new()).await;
    tokio::time::timeout(DEADLINE, unwanted.tasks.join_next()).await?.unwrap()?;
    Ok(())
}
