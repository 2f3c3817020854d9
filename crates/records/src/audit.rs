//! The lines of `audit.jsonl`: what is true about a fork, and what every gate would have said about it.

use serde::{Deserialize, Serialize};

use crate::{Versioned, unnumbered};

/// What an audit measures; the first line of the file. An audit is resumed only with the same settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditSettings {
    /// Format of the line.
    #[serde(default = "unnumbered")]
    pub format: u32,
    /// The student that was audited.
    pub student: String,
    /// Hash of the configuration, which names teacher, task and method.
    pub configuration: String,
    /// Hash of the models and the data themselves.
    #[serde(default)]
    pub inputs: String,
    /// The seed of tasks and draws.
    pub seed: u64,
    /// Episodes of which one turn is audited.
    pub forks: u64,
    /// Episodes of which every turn is audited.
    pub episodes: u64,
    /// Continuations played to the end from each branch.
    pub continuations: u64,
    /// Pairs each gate is tried with.
    pub pairs: u64,
    /// Continuation turns of the short and the long gate.
    pub turns: [u64; 2],
    /// How the configured method judges.
    pub gate: GateSettings,
}

/// A way to judge forks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateSettings {
    /// The evaluator.
    pub evaluator: String,
    /// `independent` or `common`.
    pub coupling: String,
    /// Pairs the gain is a mean of.
    pub pairs: u64,
    /// Standard errors above 0.
    pub margin: f64,
    /// Whether outcomes are weighed before values.
    pub outcome_first: bool,
}

impl Versioned for AuditSettings {
    fn format(&self) -> u32 {
        self.format
    }
}

/// One audited fork.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditLine {
    /// Format of the line.
    pub format: u32,
    /// The episode.
    pub episode: u64,
    /// The fork turn, from 0.
    pub turn: u64,
    /// The task.
    pub task: String,
    /// The divergence D_t of the turn.
    pub divergence: f64,
    /// Whether every turn of the episode is audited.
    pub whole: bool,
    /// Whether the configured rule proposes this turn.
    pub proposed: bool,
    /// The rules that propose this turn: `top-kl`, `last-turn`.
    pub proposals: Vec<String>,
    /// Why the fork could not be run.
    pub dropped: Option<String>,
    /// The teacher's hint.
    pub hint: Option<String>,
    /// The action the student took.
    pub original: Option<String>,
    /// The action it took with the hint, in the first pair.
    pub guided: Option<String>,
    /// Whether the task was solved without and with the hint, once per continuation; both draw from the same stream.
    pub truth: Vec<(bool, bool)>,
    /// What every gate measured.
    pub gates: Vec<GateDraws>,
    /// Solved with the hint less solved without, per pair of the gates, by coupling.
    pub outcomes: Vec<OutcomeDraws>,
}

impl Versioned for AuditLine {
    fn format(&self) -> u32 {
        self.format
    }
}

impl AuditLine {
    /// The change in success probability that the hint makes.
    pub fn utility(&self) -> Option<f64> {
        mean_difference(&self.truth)
    }
}

/// Mean of solved with less solved without; `None` without continuations.
pub fn mean_difference(pairs: &[(bool, bool)]) -> Option<f64> {
    let sum: i64 = pairs.iter().map(|&(base, guided)| i64::from(guided) - i64::from(base)).sum();
    (!pairs.is_empty()).then(|| sum as f64 / pairs.len() as f64)
}

/// The gains one evaluator measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GateDraws {
    /// The evaluator.
    pub evaluator: String,
    /// `independent` or `common`.
    pub coupling: String,
    /// Continuation turns judged.
    pub turns: u64,
    /// One gain per pair; `None` where the pair is not complete.
    pub gains: Vec<Option<f64>>,
}

/// The outcomes of the pairs the gates were tried with.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OutcomeDraws {
    /// `independent` or `common`.
    pub coupling: String,
    /// -1, 0 or 1 per pair; 0 where a branch was cut.
    pub differences: Vec<i8>,
}

/// A line of `after.jsonl`: the same state played by the student after training.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfterLine {
    /// Format of the line.
    pub format: u32,
    /// The episode.
    pub episode: u64,
    /// The fork turn, from 0.
    pub turn: u64,
    /// Whether the task was solved without and with the hint, once per continuation.
    pub truth: Vec<(bool, bool)>,
}

impl Versioned for AfterLine {
    fn format(&self) -> u32 {
        self.format
    }
}
