use super::*;
use crate::mutation::{Op, PoolCheck, Take, TakeShare, Write};

fn job(mutation: Mutation) -> Job {
    let (answer, _) = oneshot::channel();
    Job { mutation, answer }
}

fn claim(name: &str) -> Mutation {
    let write = Write {
        kind: "resourceclaims".into(),
        namespace: "team".into(),
        name: name.into(),
        uid: Uuid::nil(),
        op: Op::Create,
        body: "{}".into(),
        queue: None,
        part_of: None,
        cause: None,
        trace: None,
    };
    Mutation {
        writes: vec![write],
        pool_checks: vec![PoolCheck {
            driver: "d".into(),
            pool: "p".into(),
            inventory: 1,
        }],
        gates: Some(0),
        ..Mutation::default()
    }
}

fn whole(name: &str, device: &str) -> Mutation {
    let mut mutation = claim(name);
    mutation.takes.push(Take {
        write: 0,
        driver: "d".into(),
        pool: "p".into(),
        device: device.into(),
        claim: Uuid::nil(),
    });
    mutation
}

fn share(name: &str, device: &str) -> Mutation {
    let mut mutation = claim(name);
    mutation.shares.push(TakeShare {
        write: 0,
        driver: "d".into(),
        pool: "p".into(),
        device: device.into(),
        share_id: name.into(),
        claim: Uuid::nil(),
        consumed: Vec::new(),
    });
    mutation
}

/// The names of the claims of each batch, all of them under way at once.
fn batches(mutations: Vec<Mutation>) -> (Vec<Vec<String>>, usize) {
    let config = WriterConfig::new("test");
    let mut waiting: VecDeque<Job> = mutations.into_iter().map(job).collect();
    let mut under_way: Vec<Touched> = Vec::new();
    let mut batches = Vec::new();
    loop {
        let (batch, rows) = next_batch(&mut waiting, &config, under_way.iter());
        if batch.is_empty() {
            return (batches, waiting.len());
        }
        batches.push(batch.iter().map(|job| job.mutation.writes[0].name.to_string()).collect());
        under_way.push(rows);
    }
}

#[test]
fn what_was_held_back_does_not_overtake_what_is_under_way() {
    let (sent, held) = batches(vec![
        whole("a", "gpu-0"),
        whole("b", "gpu-0"),
        whole("c", "gpu-1"),
        whole("d", "gpu-0"),
    ]);
    assert_eq!((sent, held), (vec![vec!["a".to_owned(), "c".to_owned()]], 2));
}

#[test]
fn shares_of_a_device_meet_in_a_batch_and_beside_one_under_way() {
    let (sent, held) = batches(vec![share("a", "nic"), share("b", "nic"), whole("c", "nic"), claim("a")]);
    assert_eq!((sent, held), (vec![vec!["a".to_owned(), "b".to_owned()]], 2));
}

#[test]
fn nothing_is_held_back_by_what_merely_waits_behind_it() {
    // `b` waits for `a`; `c` asks for neither's rows and goes at once, `d` is about a row of `b` and stays behind it.
    let (sent, held) = batches(vec![claim("a"), whole("a", "gpu-0"), claim("c"), whole("d", "gpu-0")]);
    assert_eq!((sent, held), (vec![vec!["a".to_owned(), "c".to_owned()]], 2));
}
