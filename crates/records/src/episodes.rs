//! The lines of `episodes/batch-NNNNNN.jsonl.zst`: one episode with its turns, tokens and forks.
//!
//! What is known per token is kept in columns of equal length, one entry per response token; a column is empty where
//! nothing was measured. Texts of tokens stand once per episode, in [`EpisodeLine::token_text`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::ForkSummary;
use crate::{Versioned, unnumbered};

/// One episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeLine {
    /// Format of the line.
    #[serde(default = "unnumbered")]
    pub format: u32,
    /// The explorer batch.
    pub batch: u64,
    /// The episode's key inside it.
    pub episode: u64,
    /// The task.
    pub task: String,
    /// The task's kind.
    #[serde(default)]
    pub task_kind: String,
    /// What the agent is asked to do (format 2).
    #[serde(default)]
    pub goal: Option<String>,
    /// Optimizer steps the snapshot had seen.
    #[serde(default)]
    pub version: u64,
    /// The horizon it was played to.
    #[serde(default)]
    pub horizon: u64,
    /// Turns replayed from reference actions before the first one.
    #[serde(default)]
    pub prefix: u64,
    /// How it ended.
    #[serde(default)]
    pub end: String,
    /// Whether the task was solved.
    #[serde(default)]
    pub success: bool,
    /// The benchmark's score at the end.
    #[serde(default)]
    pub score: Option<f64>,
    /// What went wrong, where something did.
    #[serde(default)]
    pub failure: Option<String>,
    /// The turns a model played.
    #[serde(default)]
    pub turns: Vec<TurnLine>,
    /// The forks.
    #[serde(default)]
    pub forks: Vec<ForkLine>,
    /// Text of every token id in this line, favorites included (format 2). Ids that stand for part of a character, and
    /// special tokens of engines that do not name them, are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub token_text: BTreeMap<u32, String>,
}

impl Versioned for EpisodeLine {
    fn format(&self) -> u32 {
        self.format
    }
}

/// One turn of an episode.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnLine {
    /// The turn, from 0 at reset, replayed ones included.
    pub turn: u64,
    /// Who wrote the response: `student` or `teacher`.
    pub actor: String,
    /// What was seen before acting.
    pub observation: String,
    /// The response.
    pub response: String,
    /// The action the parser found.
    pub action: Option<String>,
    /// The prompt as text, special tokens left out (format 2).
    pub prompt: Option<String>,
    /// The response, token by token.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Why the turn was not trained on.
    pub dropped: Option<String>,
}

/// What is known of each token of a response.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// The ids.
    #[serde(rename = "tokens")]
    pub ids: Vec<u32>,
    /// Log-probabilities under the student's snapshot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub student_logprobs: Vec<Option<f32>>,
    /// Log-probabilities under the teacher.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teacher_logprobs: Vec<Option<f32>>,
    /// KL(student || teacher), in nats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kl: Vec<Option<f32>>,
    /// The weights the loss gave, where the tokens were trained on.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f32>,
    /// Positions outside the content set, such as the end of the turn (format 2).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<u32>,
    /// Both models' favorite tokens (format 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub favorites: Option<Favorites>,
}

/// The two models' favorite tokens at every position, and what each model thinks of both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Favorites {
    /// The student's favorite, vS.
    pub student: Vec<Option<u32>>,
    /// The teacher's favorite, vT.
    pub teacher: Vec<Option<u32>>,
    /// `log p_S(vS)`.
    pub student_at_student: Vec<Option<f32>>,
    /// `log p_S(vT)`.
    pub student_at_teacher: Vec<Option<f32>>,
    /// `log p_T(vT)`.
    pub teacher_at_teacher: Vec<Option<f32>>,
    /// `log p_T(vS)`.
    pub teacher_at_student: Vec<Option<f32>>,
}

/// A fork with both branches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForkLine {
    /// The fork turn.
    pub turn: u64,
    /// The teacher's hint.
    #[serde(default)]
    pub hint: Option<String>,
    /// What the teacher was asked (format 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_prompt: Option<String>,
    /// The prompt with the hint in view (format 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hinted_prompt: Option<String>,
    /// How branches were valued: `teacher_likelihood`, `token_ratio`, ... (format 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluator: Option<String>,
    /// The branch without guidance, the fork turn first.
    #[serde(default)]
    pub base: Vec<BranchTurn>,
    /// The branch with guidance, the fork turn first.
    #[serde(default)]
    pub guided: Vec<BranchTurn>,
    /// How the branch without guidance ended (format 2).
    #[serde(default)]
    pub base_end: Option<String>,
    /// How the branch with guidance ended (format 2).
    #[serde(default)]
    pub guided_end: Option<String>,
    /// The benchmark's score where the branch without guidance ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_score: Option<f64>,
    /// The benchmark's score where the branch with guidance ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guided_score: Option<f64>,
    /// The pairs after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<RepeatLine>,
    /// The outcome, as in `metrics.jsonl`.
    #[serde(default)]
    pub record: Option<ForkSummary>,
}

/// Both branches of a fork, drawn once more.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RepeatLine {
    /// The branch without guidance, the fork turn first.
    pub base: Vec<BranchTurn>,
    /// The branch with guidance, the fork turn first.
    pub guided: Vec<BranchTurn>,
    /// How the branch without guidance ended.
    pub base_end: Option<String>,
    /// How the branch with guidance ended.
    pub guided_end: Option<String>,
    /// The benchmark's score where the branch without guidance ended.
    pub base_score: Option<f64>,
    /// The benchmark's score where the branch with guidance ended.
    pub guided_score: Option<f64>,
}

/// One turn of a branch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BranchTurn {
    /// The turn, from 0 at reset (format 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// What was seen before acting.
    pub observation: String,
    /// The response.
    pub response: String,
    /// The action the parser found.
    pub action: Option<String>,
    /// The response, token by token (format 2).
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Mean teacher log-probability of the content tokens (format 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likelihood: Option<f64>,
    /// Share of tokens the teacher finds likelier than the student does (format 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<f64>,
    /// Content tokens, the weight of this turn in the branch's value (format 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_tokens: Option<u64>,
    /// The tokens of the action: the first one, and the one after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_tokens: Option<(u32, u32)>,
}

/// An episode's texts without its tokens: a twentieth of the memory, to read many episodes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EpisodeText {
    /// Format of the line.
    #[serde(default = "unnumbered")]
    pub format: u32,
    /// The explorer batch.
    pub batch: u64,
    /// The episode's key inside it.
    pub episode: u64,
    /// The task.
    pub task: String,
    /// What the agent is asked to do.
    #[serde(default)]
    pub goal: Option<String>,
    /// Whether the task was solved.
    #[serde(default)]
    pub success: bool,
    /// The turns.
    #[serde(default)]
    pub turns: Vec<TurnText>,
    /// The forks.
    #[serde(default)]
    pub forks: Vec<ForkText>,
}

impl Versioned for EpisodeText {
    fn format(&self) -> u32 {
        self.format
    }
}

/// A turn's texts, of an episode or a branch.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct TurnText {
    /// The turn, from 0 at reset; `None` in branches of format 1.
    pub turn: Option<u64>,
    /// What was seen before acting.
    pub observation: String,
    /// The response.
    pub response: String,
    /// The action the parser found.
    pub action: Option<String>,
}

/// A fork's texts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ForkText {
    /// The fork turn.
    pub turn: u64,
    /// The teacher's hint.
    #[serde(default)]
    pub hint: Option<String>,
    /// The branch without guidance.
    #[serde(default)]
    pub base: Vec<TurnText>,
    /// The branch with guidance.
    #[serde(default)]
    pub guided: Vec<TurnText>,
}

/// Format 1 wrote `null` where a turn had no weights.
fn or_empty<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<f32>, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

impl Tokens {
    /// Whether position `index` belongs to the content set.
    pub fn is_content(&self, index: usize) -> bool {
        !self.masked.iter().any(|&masked| masked as usize == index)
    }

    /// Mean of a column over the content positions where it was measured.
    pub fn content_mean(&self, column: &[Option<f32>]) -> Option<f64> {
        let (mut sum, mut count) = (0.0, 0_u64);
        for (index, value) in column.iter().enumerate() {
            if let (Some(value), true) = (value, self.is_content(index)) {
                sum += f64::from(*value);
                count += 1;
            }
        }
        (count > 0).then(|| sum / count as f64)
    }
}

impl TurnLine {
    /// Mean KL of the content tokens, the divergence D_t.
    pub fn divergence(&self) -> Option<f64> {
        self.tokens.content_mean(&self.tokens.kl)
    }
}
