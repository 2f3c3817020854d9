//! The lines of `metrics.jsonl`: numbers that depend on the configuration and the seed alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{FORMAT, Versioned, unnumbered};

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// One explorer batch.
    Batch(Box<BatchLine>),
    /// One optimizer step.
    Step(StepLine),
    /// One evaluated split.
    Eval(EvalLine),
}

impl Versioned for Record {
    fn format(&self) -> u32 {
        match self {
            Self::Batch(line) => line.format,
            Self::Step(line) => line.format,
            Self::Eval(line) => line.format,
        }
    }
}

/// One explorer batch: what was played, forked and decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchLine {
    /// Format of the line.
    #[serde(default = "unnumbered")]
    pub format: u32,
    /// The batch's number, from 1.
    pub batch: u64,
    /// Optimizer steps the rollout snapshot had seen.
    pub version: u64,
    /// Rows waiting in the buffer after the batch was added.
    #[serde(default)]
    pub waiting_rows: u64,
    /// Rows dropped for age since the run began.
    #[serde(default)]
    pub stale_rows: u64,
    /// Tokens both models read and wrote for this batch: episodes, judging, forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<SpentTokens>,
    /// How divergences were measured: `full`, `top_k` or `sampled`.
    #[serde(default)]
    pub divergence: String,
    /// The horizon K the batch was rolled out with, in turns.
    #[serde(default)]
    pub horizon: u64,
    /// The gap-adaptive clock; `None` with a fixed one.
    #[serde(default)]
    pub tick: Option<TickLine>,
    /// The teacher's share of turns (Guided-OPD).
    #[serde(default)]
    pub teacher_share: Option<f64>,
    /// Mean number of replayed turns (backward curricula).
    #[serde(default)]
    pub mean_prefix: Option<f64>,
    /// Episodes by the way they ended.
    #[serde(default)]
    pub terminations: BTreeMap<String, u64>,
    /// Episodes that solved their task.
    #[serde(default)]
    pub successes: u64,
    /// Turns without a row, by reason.
    #[serde(default)]
    pub dropped_turns: BTreeMap<String, u64>,
    /// Turns without an action, by reason; only where `prompt.parser` is not `tags`, which knows one reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unparsed_turns: BTreeMap<String, u64>,
    /// Forks whose two branches were both valued.
    #[serde(default)]
    pub complete_pairs: u64,
    /// Forks that opened the gate.
    #[serde(default)]
    pub accepted: u64,
    /// Forks per reason that closed the gate. With `accepted` they add up to the forks.
    #[serde(default)]
    pub reasons: BTreeMap<String, u64>,
    /// Every fork.
    #[serde(default)]
    pub forks: Vec<ForkSummary>,
    /// Tokens of the batch's rows, by kind of row.
    #[serde(default)]
    pub tokens: TokenCounts,
    /// Share of those tokens that guidance wrote.
    #[serde(default)]
    pub guided_share: Option<f64>,
    /// Mean support of the teacher's token at disagreements, per turn.
    #[serde(default)]
    pub support_by_depth: Option<Vec<DepthSupport>>,
    /// Sums over the turns of the batch (format 2).
    #[serde(default)]
    pub rollout: Option<RolloutStats>,
    /// One entry per episode, so that a list needs no episode file (format 2).
    #[serde(default)]
    pub episodes: Vec<EpisodeSummary>,
}

/// Tokens that models read and wrote. Prompts count in full, whatever an engine remembers of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpentTokens {
    /// The student's.
    pub student: u64,
    /// The teacher's.
    pub teacher: u64,
}

impl SpentTokens {
    /// Both models' tokens.
    pub fn total(&self) -> u64 {
        self.student + self.teacher
    }
}

impl std::ops::AddAssign for SpentTokens {
    fn add_assign(&mut self, other: Self) {
        self.student += other.student;
        self.teacher += other.teacher;
    }
}

/// The gap-adaptive clock's tick.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TickLine {
    /// The horizon the batch was measured at.
    pub depth: u64,
    /// Episodes that reached it with content tokens.
    pub valid_episodes: u64,
    /// Their median competence C, 0 to 1.
    pub competence: Option<f64>,
    /// The pace v; `None` once the deepest horizon is reached.
    pub pace: Option<f64>,
    /// The next batch's horizon.
    pub next_depth: u64,
}

/// A fork's outcome without its turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkSummary {
    /// What was asked for.
    pub request: ForkRequest,
    /// What the gate said.
    pub verdict: Verdict,
    /// Why the gate stayed closed: `not_better`, `base.timeout`, `dropped.hint_empty`, ...
    #[serde(default)]
    pub reason: Option<String>,
    /// Mean KL from the hinted to the hint-free distribution over the hinted response.
    #[serde(default)]
    pub internalization_gap: Option<f64>,
    /// Where the weight of the focused turn went; accepted forks only.
    #[serde(default)]
    pub focus: Option<FocusMass>,
}

/// What a fork was asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkRequest {
    /// The episode's key inside the batch.
    pub episode: u64,
    /// The fork turn, from 0 at reset.
    pub turn: u64,
    /// What the guided branch gets.
    pub kind: ForkKind,
    /// Turns played after the fork turn, H.
    pub continuation_turns: u64,
    /// Temperature tau of the teacher's log-probabilities.
    pub score_temperature: f64,
    /// The divergence D_t that led here.
    pub divergence: f64,
    /// Pairs of branches played, where there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<u64>,
    /// `common` where both branches of a pair drew from the same stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coupling: Option<String>,
    /// Whether branches were played to the end of the episode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub play_on: bool,
}

/// What the guided branch of a fork gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkKind {
    /// The teacher's hint.
    Hint {
        /// How the hint is framed: `incorporate` or `reconsider`.
        feedback: String,
    },
    /// The teacher's own turn.
    Bridge,
    /// A kind this build does not know.
    #[serde(untagged)]
    Other(serde_json::Value),
}

/// Values, gain and gate of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Value of the unguided continuation, V_B.
    #[serde(default)]
    pub base_value: Option<f64>,
    /// Value of the guided continuation, V_H.
    #[serde(default)]
    pub guided_value: Option<f64>,
    /// V_H - V_B; complete pairs only, of several the mean.
    #[serde(default)]
    pub gain: Option<f64>,
    /// Complete pairs, where several were played.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<u64>,
    /// Standard error of the mean gain; two complete pairs or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
    /// Whether the gate opened.
    pub accepted: bool,
}

/// Weight on the disagreement tokens of a focused turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FocusMass {
    /// Content tokens of the turn.
    pub content_tokens: u64,
    /// Those where the two models prefer different tokens.
    pub target_tokens: u64,
    /// Normalized weight of all content tokens.
    pub content_mass: f64,
    /// Normalized weight of the disagreement tokens.
    pub target_mass: f64,
}

/// Tokens by kind of row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenCounts {
    /// The student's own turns.
    pub opd: u64,
    /// Hinted responses.
    pub gi: u64,
    /// The teacher's turns.
    pub teacher_nll: u64,
    /// Bridges.
    pub bridge: u64,
}

/// Student support at one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DepthSupport {
    /// The turn, from 0.
    pub turn: u64,
    /// Content positions where the two models prefer different tokens.
    pub positions: u64,
    /// Mean soft support there, 0 to 1.
    pub support: f64,
}

/// What the turns of a batch have in common. Means are over the student's content tokens unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RolloutStats {
    /// Turns a model played.
    pub turns: u64,
    /// Turns whose response held an action.
    pub parsed_turns: u64,
    /// Turns that repeat the action of the turn before.
    pub repeated_turns: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Tokens of all responses.
    pub response_tokens: u64,
    /// Content tokens the means below are over.
    pub scored_tokens: u64,
    /// Mean KL(student || teacher), in nats.
    pub kl: Option<f64>,
    /// Mean negative log-probability of the sampled tokens under the student, at temperature 1 an estimate of its
    /// entropy, in nats.
    pub student_nll: Option<f64>,
    /// Mean negative log-probability of the same tokens under the teacher, in nats.
    pub teacher_nll: Option<f64>,
    /// Mean probability the teacher gives to its favorite token.
    pub teacher_confidence: Option<f64>,
    /// Share of positions where both models prefer the same token.
    pub agreement: Option<f64>,
}

/// One episode in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeSummary {
    /// The episode's key inside the batch.
    pub episode: u64,
    /// The task.
    pub task: String,
    /// The task's kind.
    pub task_kind: String,
    /// How it ended.
    pub end: String,
    /// Whether the task was solved.
    pub success: bool,
    /// The benchmark's score at the end.
    pub score: f64,
    /// Turns a model played.
    pub turns: u64,
    /// The largest mean KL of a turn, in nats.
    pub divergence: Option<f64>,
}

/// One optimizer step. Numbers that were not finite are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepLine {
    /// Format of the line.
    #[serde(default = "unnumbered")]
    pub format: u32,
    /// The step, from 1.
    pub step: u64,
    /// The explorer batch it followed (format 2).
    #[serde(default)]
    pub batch: Option<u64>,
    /// The batch loss.
    #[serde(default)]
    pub loss: Option<f64>,
    /// The part of it that is not guidance internalization.
    #[serde(default)]
    pub focus_loss: Option<f64>,
    /// The part of it that is.
    #[serde(default)]
    pub internalization_loss: Option<f64>,
    /// Norm of the gradient before clipping.
    #[serde(default)]
    pub grad_norm: Option<f64>,
    /// Whether nothing was updated because a number was not finite.
    #[serde(default)]
    pub skipped: bool,
    /// Distinct trajectories in the train batch, B.
    #[serde(default)]
    pub trajectories: u64,
    /// Trained tokens of rows other than internalization.
    #[serde(default)]
    pub opd_tokens: u64,
    /// Trained tokens of internalization rows.
    #[serde(default)]
    pub gi_tokens: u64,
    /// Trained tokens by kind of row, after staleness (figure 4c; format 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained: Option<TokenCounts>,
    /// What internalization rows weigh next to 1 for all other rows (format 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internalize_share: Option<f64>,
    /// Tokens that went through the model, prompts included (format 2).
    #[serde(default)]
    pub tokens: Option<u64>,
    /// The oldest snapshot version among the rows.
    #[serde(default)]
    pub oldest_version: u64,
}

/// One evaluated split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalLine {
    /// Format of the line.
    #[serde(default = "unnumbered")]
    pub format: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Explorer batches done.
    pub batch: u64,
    /// The split.
    pub split: String,
    /// All tasks together.
    pub all: Measures,
    /// Per kind of task.
    #[serde(default)]
    pub kinds: BTreeMap<String, Measures>,
    /// Every task, so that two runs can be compared task by task (format 2).
    #[serde(default)]
    pub tasks: Vec<TaskOutcome>,
}

/// Measures of a group of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Tasks played.
    pub tasks: u64,
    /// Share solved, in percent.
    pub success_rate: f64,
    /// Mean score of 100, where the benchmark has one.
    #[serde(default)]
    pub score: Option<f64>,
    /// Mean turns used, the limit where a task was not solved.
    pub rounds: f64,
}

/// One evaluated task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// The task.
    pub task: String,
    /// Its kind.
    pub kind: String,
    /// Whether it was solved.
    pub success: bool,
    /// The benchmark's score at the end.
    pub score: f64,
    /// Turns taken.
    pub turns: u64,
    /// How the episode ended.
    pub end: String,
}

impl BatchLine {
    /// An empty line of the present format.
    pub fn new(batch: u64, version: u64) -> Self {
        Self {
            format: FORMAT,
            batch,
            version,
            waiting_rows: 0,
            stale_rows: 0,
            spent: None,
            divergence: String::new(),
            horizon: 0,
            tick: None,
            teacher_share: None,
            mean_prefix: None,
            terminations: BTreeMap::new(),
            successes: 0,
            dropped_turns: BTreeMap::new(),
            unparsed_turns: BTreeMap::new(),
            complete_pairs: 0,
            accepted: 0,
            reasons: BTreeMap::new(),
            forks: Vec::new(),
            tokens: TokenCounts::default(),
            guided_share: None,
            support_by_depth: None,
            rollout: None,
            episodes: Vec::new(),
        }
    }
}
