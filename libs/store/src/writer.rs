//! The group committer: collects concurrent mutations and commits them together.
//!
//! Nobody waits on a timer: a batch goes out as soon as a commit slot is free, with whatever has gathered until then. The commit runs
//! in the writer's own task, so a caller that goes away cancels nothing. Mutations in one batch never touch the same row twice, nor a row of
//! a batch under way, which they could overtake: the later one waits, so the database decides between them in a defined order.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::commit::Committed;
use crate::error::is_passing;
use crate::gates::GATES_KIND;
use crate::mutation::{Mutation, Outcome};
use crate::{Store, StoreError};

/// Limits of a writer.
#[derive(Clone, Debug)]
pub struct WriterConfig {
    /// Name in the `commits` rows, e.g. `ingest-1`.
    pub name: String,
    /// Mutations waiting, at most; beyond it callers are refused or wait.
    pub queue_max: usize,
    /// Mutations in one commit, at most.
    pub batch_max: usize,
    /// Bytes of objects in one commit, at most (a single larger mutation goes alone).
    pub batch_bytes_max: usize,
    /// Commits under way at once. Two keep the database busy while an answer travels; more only make batches smaller.
    pub in_flight_max: usize,
    /// How long a commit is repeated after a lost connection.
    pub give_up_after: Duration,
}

impl WriterConfig {
    /// The limits that the benches settled on.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queue_max: 8192,
            batch_max: 512,
            batch_bytes_max: 1 << 20,
            in_flight_max: 2,
            give_up_after: Duration::from_secs(30),
        }
    }
}

struct Job {
    mutation: Mutation,
    answer: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// Hands mutations to the group committer; cheap to clone.
#[derive(Clone, Debug)]
pub struct Writer {
    claims: mpsc::Sender<Job>,
    bulk: mpsc::Sender<Job>,
}

/// Mutations larger than this go through a lane of their own, so that a large slice write never delays claims.
const BULK_BYTES: usize = 32 * 1024;
/// The bulk lane's queue: a few large mutations.
const BULK_QUEUE_MAX: usize = 256;

impl Writer {
    /// Starts the lanes on `tasks`. They end after `stop`, once everything accepted is answered.
    ///
    /// - `announce`: gets each commit; when it is full the commit is dropped there (the relay announces it later).
    pub fn spawn(
        store: Store,
        config: WriterConfig,
        announce: Option<mpsc::Sender<Arc<Committed>>>,
        tasks: &mut JoinSet<()>,
        stop: CancellationToken,
    ) -> Self {
        let (claims, claims_jobs) = mpsc::channel(config.queue_max);
        let (bulk, bulk_jobs) = mpsc::channel(BULK_QUEUE_MAX);
        let config = Arc::new(config);
        let lane = |jobs| Lane {
            store: store.clone(),
            config: config.clone(),
            announce: announce.clone(),
            jobs,
            stop: stop.clone(),
        };
        tasks.spawn(lane(claims_jobs).run());
        tasks.spawn(lane(bulk_jobs).run());
        Self { claims, bulk }
    }

    fn lane(&self, mutation: &Mutation) -> &mpsc::Sender<Job> {
        if mutation.size_bytes() > BULK_BYTES {
            &self.bulk
        } else {
            &self.claims
        }
    }

    /// Commits `mutation`; waits for room in the queue.
    ///
    /// Errors: `Stopped`, `Unavailable`, `CommitUnknown`, `Corrupt`.
    pub async fn commit(&self, mutation: Mutation) -> Result<Outcome, StoreError> {
        let (answer, wait) = oneshot::channel();
        self.lane(&mutation)
            .send(Job { mutation, answer })
            .await
            .map_err(|_| StoreError::Stopped)?;
        wait.await.map_err(|_| StoreError::CommitUnknown)?
    }

    /// Commits `mutation`; refuses with `Overloaded` at once if the queue is full.
    pub async fn try_commit(&self, mutation: Mutation) -> Result<Outcome, StoreError> {
        self.enqueue(mutation)?.await.map_err(|_| StoreError::CommitUnknown)?
    }

    /// Puts `mutation` in the queue and returns where its outcome will be. Refuses with `Overloaded` if the queue is full.
    pub fn enqueue(&self, mutation: Mutation) -> Result<oneshot::Receiver<Result<Outcome, StoreError>>, StoreError> {
        let (answer, wait) = oneshot::channel();
        self.lane(&mutation)
            .try_send(Job { mutation, answer })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => StoreError::Overloaded,
                mpsc::error::TrySendError::Closed(_) => StoreError::Stopped,
            })?;
        Ok(wait)
    }

    /// As [`Writer::enqueue`], but waits for room in the queue: for callers with flow control of their own.
    pub async fn enqueue_waiting(
        &self,
        mutation: Mutation,
    ) -> Result<oneshot::Receiver<Result<Outcome, StoreError>>, StoreError> {
        let (answer, wait) = oneshot::channel();
        self.lane(&mutation)
            .send(Job { mutation, answer })
            .await
            .map_err(|_| StoreError::Stopped)?;
        Ok(wait)
    }

    /// Commits many at once, in order; outcomes at the same places.
    pub async fn commit_all(&self, mutations: Vec<Mutation>) -> Vec<Result<Outcome, StoreError>> {
        let mut waits = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            let (answer, wait) = oneshot::channel();
            let sent = self.lane(&mutation).send(Job { mutation, answer }).await;
            waits.push(sent.is_ok().then_some(wait));
        }
        let mut outcomes = Vec::with_capacity(waits.len());
        for wait in waits {
            outcomes.push(match wait {
                Some(wait) => wait.await.unwrap_or(Err(StoreError::CommitUnknown)),
                None => Err(StoreError::Stopped),
            });
        }
        outcomes
    }
}

struct Lane {
    store: Store,
    config: Arc<WriterConfig>,
    announce: Option<mpsc::Sender<Arc<Committed>>>,
    jobs: mpsc::Receiver<Job>,
    stop: CancellationToken,
}

impl Lane {
    async fn run(mut self) {
        let mut under_way = UnderWay::default();
        let mut waiting: VecDeque<Job> = VecDeque::new();
        let mut open = true;
        while open || !waiting.is_empty() {
            if waiting.is_empty() {
                let job = tokio::select! {
                    biased;
                    job = self.jobs.recv() => job,
                    () = self.stop.cancelled(), if !self.jobs.is_closed() => {
                        self.jobs.close(); // what was accepted is still received
                        continue;
                    }
                };
                match job {
                    Some(job) => waiting.push_back(job),
                    None => open = false,
                }
                continue;
            }
            while under_way.len() >= self.config.in_flight_max {
                under_way.one_ended().await;
            }
            under_way.forget_ended();
            // Whatever gathered while the slot was busy goes along.
            while waiting.len() < self.config.batch_max {
                match self.jobs.try_recv() {
                    Ok(job) => waiting.push_back(job),
                    Err(_) => break,
                }
            }
            let (batch, rows) = next_batch(&mut waiting, &self.config, under_way.rows());
            if batch.is_empty() {
                // Everything that waits is about rows of what is under way.
                under_way.one_ended().await;
                continue;
            }
            let commit = Commit {
                store: self.store.clone(),
                config: self.config.clone(),
                announce: self.announce.clone(),
            };
            under_way.add(commit.run(batch), rows);
        }
        while under_way.len() > 0 {
            under_way.one_ended().await;
        }
    }
}

/// Commits under way, with the rows that each is about.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<()>,
    rows: Vec<(Id, Touched)>,
}

impl UnderWay {
    fn len(&self) -> usize {
        self.tasks.len()
    }

    fn rows(&self) -> impl Iterator<Item = &Touched> + Clone {
        self.rows.iter().map(|(_, rows)| rows)
    }

    fn add(&mut self, commit: impl Future<Output = ()> + Send + 'static, rows: Touched) {
        let id = self.tasks.spawn(commit).id();
        self.rows.push((id, rows));
    }

    /// Waits for any of them.
    async fn one_ended(&mut self) {
        let ended = self.tasks.join_next_with_id().await;
        self.forget(ended);
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(Some(ended));
        }
    }

    fn forget(&mut self, ended: Option<Result<(Id, ()), JoinError>>) {
        let ended = ended.map(|ended| ended.map_or_else(|error| error.id(), |(id, ())| id));
        self.rows.retain(|(id, _)| Some(*id) != ended);
    }
}

/// Takes jobs from the front that fit one commit and touch no row twice, nor one that is `under_way`; the others stay, in order. Also
/// returns the rows of what was taken. Nothing is taken if everything waits for what is under way.
fn next_batch<'t>(
    waiting: &mut VecDeque<Job>,
    config: &WriterConfig,
    under_way: impl Iterator<Item = &'t Touched> + Clone,
) -> (Vec<Job>, Touched) {
    let (mut touched, mut taken) = (Touched::default(), Touched::default());
    let mut batch = Vec::with_capacity(waiting.len().min(config.batch_max));
    let mut rest = VecDeque::new();
    let mut size_bytes = 0;
    while let Some(job) = waiting.pop_front() {
        let job_bytes = job.mutation.size_bytes();
        let keys = RowKeys::of(&job.mutation);
        let fits = batch.is_empty() || (batch.len() < config.batch_max && size_bytes + job_bytes <= config.batch_bytes_max);
        if fits && touched.leaves(&keys) && under_way.clone().all(|rows| rows.leaves(&keys)) {
            size_bytes += job_bytes;
            batch.push(job);
            taken.add(&keys);
        } else {
            rest.push_back(job);
        }
        // Of one that stays as well: later mutations of the same rows must not overtake it.
        touched.add(&keys);
    }
    *waiting = rest;
    (batch, taken)
}

/// Which of these mutations would share the first commit.
#[cfg(test)]
pub(crate) fn batch_of(mutations: &[Mutation]) -> Vec<usize> {
    let mut touched = Touched::default();
    let mut chosen = Vec::new();
    for (index, mutation) in mutations.iter().enumerate() {
        let keys = RowKeys::of(mutation);
        if touched.leaves(&keys) {
            chosen.push(index);
        }
        touched.add(&keys);
    }
    chosen
}

/// Hashes of the rows that a mutation decides about. A collision only moves a mutation to the next batch.
struct RowKeys {
    /// For which it must be the only one of its batch.
    alone: Vec<u64>,
    /// Which it may meet others on that say the same: shares of one device, checks of one pool.
    together: Vec<u64>,
}

impl RowKeys {
    fn of(mutation: &Mutation) -> Self {
        fn key(parts: impl Hash) -> u64 {
            let mut hasher = DefaultHasher::new();
            parts.hash(&mut hasher);
            hasher.finish()
        }
        const GATES: u64 = 0;
        let writes = mutation.writes.iter().map(|w| key((0, &w.kind, &w.namespace, &w.name)));
        let takes = mutation.takes.iter().map(|t| key((1, &t.driver, &t.pool, &t.device)));
        let puts = mutation.pool_puts.iter().map(|p| key((2, &p.driver, &p.pool)));
        let submission = mutation.submission.iter().map(|s| key((3, &s.namespace, &s.client_id)));
        let share_ids = mutation
            .shares
            .iter()
            .map(|s| key((4, &s.driver, &s.pool, &s.device, &s.share_id)));
        let switch = mutation.writes.iter().filter(|w| w.kind == GATES_KIND).map(|_| GATES);
        let shares = mutation.shares.iter().map(|s| key((1, &s.driver, &s.pool, &s.device)));
        let checks = mutation.pool_checks.iter().map(|p| key((2, &p.driver, &p.pool)));
        let alone: Vec<u64> = writes
            .chain(takes)
            .chain(puts)
            .chain(submission)
            .chain(share_ids)
            .chain(switch)
            .collect();
        let together = shares.chain(checks).chain(mutation.gates.map(|_| GATES)).collect();
        Self { alone, together }
    }
}

/// The rows of a batch.
#[derive(Default)]
struct Touched {
    alone: HashSet<u64>,
    together: HashSet<u64>,
}

impl Touched {
    fn leaves(&self, keys: &RowKeys) -> bool {
        keys.alone
            .iter()
            .all(|key| !self.alone.contains(key) && !self.together.contains(key))
            && keys.together.iter().all(|key| !self.alone.contains(key))
    }

    fn add(&mut self, keys: &RowKeys) {
        self.alone.extend(&keys.alone);
        self.together.extend(&keys.together);
    }
}

struct Commit {
    store: Store,
    config: Arc<WriterConfig>,
    announce: Option<mpsc::Sender<Arc<Committed>>>,
}

impl Commit {
    async fn run(self, jobs: Vec<Job>) {
        let (mutations, answers): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.mutation, job.answer)).unzip();
        let mut todo = vec![(mutations, answers)];
        while let Some((mutations, mut answers)) = todo.pop() {
            match self.commit_once(&mutations).await {
                Ok(outcomes) => {
                    for (answer, outcome) in answers.into_iter().zip(outcomes) {
                        drop(answer.send(Ok(outcome))); // the caller may have gone away; the commit stands
                    }
                }
                Err(Failure::Split) if mutations.len() > 1 => {
                    let mut mutations = mutations;
                    let second = mutations.split_off(mutations.len() / 2);
                    let second_answers = answers.split_off(mutations.len());
                    todo.push((second, second_answers));
                    todo.push((mutations, answers));
                }
                Err(failure) => {
                    tracing::warn!(mutations = mutations.len(), error = ?failure, "a commit failed");
                    for answer in answers {
                        drop(answer.send(Err(failure.to_error())));
                    }
                }
            }
        }
    }

    /// Repeats the same batch until it is known to be committed, or time is up.
    async fn commit_once(&self, mutations: &[Mutation]) -> Result<Vec<Outcome>, Failure> {
        let batch = Uuid::now_v7();
        let deadline = Instant::now() + self.config.give_up_after;
        let mut pause = Duration::from_millis(10);
        let mut unknown = false;
        loop {
            let error = match self.store.commit(batch, &self.config.name, mutations).await {
                Ok((outcomes, committed)) => {
                    self.announce(committed);
                    return Ok(outcomes);
                }
                Err(error) => error,
            };
            match &error {
                sqlx::Error::Database(db) if !is_passing(db.code().as_deref()) => {
                    tracing::warn!(error = %error, mutations = mutations.len(), "the database refused a batch");
                    return Err(if mutations.len() > 1 {
                        Failure::Split
                    } else {
                        Failure::Refused(error.to_string())
                    });
                }
                sqlx::Error::Database(_) | sqlx::Error::PoolTimedOut => {}
                sqlx::Error::PoolClosed => return Err(Failure::Unavailable),
                _ => unknown = true, // the statement may have reached the server
            }
            if Instant::now() + pause > deadline {
                return Err(if unknown { Failure::Unknown } else { Failure::Unavailable });
            }
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    fn announce(&self, committed: Option<Committed>) {
        if let (Some(announce), Some(committed)) = (&self.announce, committed)
            && !committed.kinds.is_empty()
            && announce.try_send(Arc::new(committed)).is_err()
        {
            tracing::debug!("a commit was not announced; the relay will");
        }
    }
}

#[derive(Debug)]
enum Failure {
    Split,
    Refused(String),
    Unavailable,
    Unknown,
}

impl Failure {
    fn to_error(&self) -> StoreError {
        match self {
            Self::Split => StoreError::Corrupt("a batch could not be split".to_owned()),
            Self::Refused(text) => StoreError::Corrupt(text.clone()),
            Self::Unavailable => StoreError::Unavailable(sqlx::Error::PoolTimedOut),
            Self::Unknown => StoreError::CommitUnknown,
        }
    }
}

#[cfg(test)]
mod tests;
