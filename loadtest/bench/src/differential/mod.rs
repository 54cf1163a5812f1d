//! Random small inputs over all features to both allocators: ours and the reference (`loadtest/peer`). Answers are compared field by
//! field, each input with gates of its own and with all gates on.
//!
//! Every difference is a fault of ours or a choice listed in docs/differences.md. A difference is shrunk before it is shown, and written to
//! `target/differential` in the form of a conformance case whose `expect` is the reference's answer.

mod generate;
mod inventory;
mod known;
mod shrink;
mod verdict;
mod wishes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::peer::{Conversation, Peer};
use verdict::{Judged, Judgement};

/// Differences that are shrunk and shown; further ones are only written. One fault often shows in hundreds of inputs.
const SHRUNK_MAX: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Inputs to generate.
    #[arg(long, default_value_t = 5_000)]
    cases: u64,
    /// Names the whole sequence of inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time after which the reference has given an answer up.
    #[arg(long, default_value_t = 0.5)]
    seconds_per_answer: f64,
    /// Judge the cases of these files (`dray-allocator-cases/1`) instead of generated ones.
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
}

/// Answers counted; each input has two.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    different: usize,
    listed: usize,
    given_up: usize,
    /// Of the equal ones.
    allocated: usize,
    none: usize,
    errors: usize,
    /// The input that took us longest.
    slowest: Option<(String, Duration)>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = PathBuf::from("target/differential");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let peer = Peer::build()?;
    let mut conversation = peer.cases(args.seconds_per_answer)?;
    let cases = cases(args)?;
    let mut tally = Tally::default();
    let mut different = Vec::new();
    judge_all(&mut conversation, cases, |judged| tally.add(judged, &mut different))?;
    for (at, judged) in different.into_iter().enumerate() {
        judged.write(&folder, "")?;
        if at < SHRUNK_MAX {
            let shrunk = shrink::shrink(&mut conversation, judged)?;
            println!("\n{shrunk}");
            shrunk.write(&folder, "-shrunk")?;
        }
    }
    println!("{tally}");
    ensure!(
        tally.different == 0,
        "{} answers differ from the reference's; inputs in {}",
        tally.different,
        folder.display()
    );
    ensure!(tally.equal > 0, "no answer was compared");
    Ok(())
}

fn cases(args: &Args) -> anyhow::Result<Box<dyn Iterator<Item = Value>>> {
    if args.from.is_empty() {
        let seed = args.seed;
        return Ok(Box::new((0..args.cases).map(move |number| generate::case(seed, number))));
    }
    let mut cases = Vec::new();
    for file in &args.from {
        cases.extend(read_cases(file).with_context(|| format!("{}", file.display()))?);
    }
    Ok(Box::new(cases.into_iter()))
}

fn read_cases(file: &Path) -> anyhow::Result<Vec<Value>> {
    let content: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let cases = content["cases"].as_array().context("it has no cases")?;
    Ok(cases.clone())
}

/// Asks ahead by one, so that the reference thinks while we do.
fn judge_all(
    conversation: &mut Conversation,
    mut cases: impl Iterator<Item = Value>,
    mut on_judged: impl FnMut(Judged),
) -> anyhow::Result<()> {
    let mut asked = cases.next();
    if let Some(case) = &asked {
        conversation.ask(case)?;
    }
    while let Some(case) = asked {
        asked = cases.next();
        if let Some(next) = &asked {
            conversation.ask(next)?;
        }
        let answer = conversation.answer()?;
        verdict::judge(case, answer)?.into_iter().for_each(&mut on_judged);
    }
    Ok(())
}

impl Tally {
    fn add(&mut self, judged: Judged, different: &mut Vec<Judged>) {
        if self.slowest.as_ref().is_none_or(|(_, longest)| *longest < judged.ours) {
            self.slowest = Some((judged.case["id"].as_str().unwrap_or_default().to_owned(), judged.ours));
        }
        match judged.judgement {
            Judgement::GivenUp => self.given_up += 1,
            Judgement::Equal => {
                self.equal += 1;
                match judged.outcome() {
                    "allocated" => self.allocated += 1,
                    "none" => self.none += 1,
                    _ => self.errors += 1,
                }
            }
            Judgement::Different { .. } => match known::choice(&judged) {
                Some(_) => self.listed += 1,
                None => {
                    self.different += 1;
                    different.push(judged);
                }
            },
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            equal,
            different,
            listed,
            given_up,
            allocated,
            none,
            errors,
            slowest,
        } = self;
        if let Some((id, longest)) = slowest {
            writeln!(f, "slowest input of ours: {id}, {longest:.1?} for four answers")?;
        }
        write!(
            f,
            "{equal} equal ({allocated} allocated, {none} none, {errors} errors), {different} different, {given_up} given up by the peer, {listed} listed \
             in docs/differences.md"
        )
    }
}
