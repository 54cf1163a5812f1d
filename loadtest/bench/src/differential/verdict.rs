//! Judging one input: the reference's answer becomes the case's `expect`, and the conformance judge does the rest, which also asks us twice
//! with everything put in another order and has each plan checked.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use structured::conformance::run_cases;

/// The outcome of a search that the reference was not given more time for.
const GAVE_UP: &str = "gave-up";

/// The reference's answers to one input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PeerAnswer {
    id: String,
    expect: Value,
    expect_all_on: Value,
}

/// Which gates an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gates {
    Own,
    AllOn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Equal,
    GivenUp,
    Different { difference: String },
}

/// One answer of the reference and what ours is to it.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    /// With `expect` and `expectAllOn` as the reference answered.
    pub(super) case: Value,
    pub(super) gates: Gates,
    pub(super) judgement: Judgement,
    /// What both answers of ours to this input took, each asked twice. Zero if the reference gave both up.
    pub(super) ours: Duration,
}

/// Judges both answers to a case.
pub(super) fn judge(mut case: Value, answer: PeerAnswer) -> anyhow::Result<[Judged; 2]> {
    ensure!(
        case["id"] == answer.id.as_str(),
        "asked for {}, got an answer for {}",
        case["id"],
        answer.id
    );
    case["expect"] = answer.expect;
    case["expectAllOn"] = answer.expect_all_on;
    let is_given_up = |answer: &Value| answer["outcome"] == GAVE_UP;
    let mut ours = Duration::ZERO;
    let mut verdicts = Vec::new();
    // Ours may take its time there as well, for nothing to compare with.
    if !(is_given_up(&case["expect"]) && is_given_up(&case["expectAllOn"])) {
        let content = json!({"format": "dray-allocator-cases/1", "cases": [case]}).to_string();
        let began = Instant::now();
        verdicts = run_cases(&content).with_context(|| format!("case {case}"))?;
        ours = began.elapsed();
        ensure!(
            verdicts.len() == 2,
            "a case has a verdict with its own gates and one with all"
        );
    }
    let mut differences = verdicts.into_iter().map(|verdict| verdict.difference);
    let mut judged = |gates| {
        let difference = differences.next().flatten();
        let mut judged = Judged {
            case: case.clone(),
            gates,
            judgement: Judgement::Equal,
            ours,
        };
        judged.judgement = match difference {
            _ if judged.outcome() == GAVE_UP => Judgement::GivenUp,
            None => Judgement::Equal,
            Some(difference) => Judgement::Different { difference },
        };
        judged
    };
    Ok([judged(Gates::Own), judged(Gates::AllOn)])
}

impl Judged {
    /// The reference's answer.
    pub(super) fn expect(&self) -> &Value {
        match self.gates {
            Gates::Own => &self.case["expect"],
            Gates::AllOn => &self.case["expectAllOn"],
        }
    }

    /// `allocated`, `none`, `error` or `gave-up`: the reference's.
    pub(super) fn outcome(&self) -> &str {
        self.expect()["outcome"].as_str().unwrap_or_default()
    }

    /// Whether the gate is on for this answer.
    pub(super) fn has_gate(&self, name: &str) -> bool {
        let own = self.case["features"].as_array();
        self.gates == Gates::AllOn || own.is_some_and(|own| own.iter().any(|gate| gate == name))
    }

    /// What must stay the same while a difference is shrunk, so that it stays the same difference: both sides' kinds of answer.
    pub(super) fn signature(&self) -> Option<String> {
        let Judgement::Different { difference } = &self.judgement else {
            return None;
        };
        let theirs = self.expect()["error"]["kind"].as_str().unwrap_or_else(|| self.outcome());
        let ours = difference.split("got ").nth(1).unwrap_or(difference);
        let kind: String = ours
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '[')
            .collect();
        Some(format!("{theirs}/{kind}"))
    }

    /// Writes the case to a file of its own in this folder; `form` tells the forms of one case apart.
    pub(super) fn write(&self, folder: &Path, form: &str) -> anyhow::Result<()> {
        let name = self.case["id"].as_str().context("a case without id")?;
        let suffix = match self.gates {
            Gates::Own => "own",
            Gates::AllOn => "all-on",
        };
        let file = json!({"format": "dray-allocator-cases/1", "feature": "differential", "cases": [self.case]});
        let path = folder.join(format!("{name}-{suffix}{form}.json"));
        std::fs::write(&path, serde_json::to_vec_pretty(&file)?).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gates = match self.gates {
            Gates::Own => "its own gates",
            Gates::AllOn => "all gates on",
        };
        writeln!(f, "case {} with {gates}", self.case["id"])?;
        for part in ["features", "interrupt", "node"] {
            if !self.case[part].is_null() {
                writeln!(f, "  {part}: {}", self.case[part])?;
            }
        }
        for part in ["deviceClasses", "resourceSlices", "claims"] {
            for object in self.case[part].as_array().into_iter().flatten() {
                writeln!(f, "  {part}: {}: {}", object["metadata"]["name"], object["spec"])?;
            }
        }
        writeln!(f, "  allocated: {}", self.case["allocated"])?;
        writeln!(f, "  reference: {}", self.expect())?;
        match &self.judgement {
            Judgement::Equal => write!(f, "  equal"),
            Judgement::GivenUp => write!(f, "  given up"),
            Judgement::Different { difference } => write!(f, "  {difference}"),
        }
    }
}
