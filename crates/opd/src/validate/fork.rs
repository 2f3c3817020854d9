//! What a fork asks for, and what a finished pair of branches holds (eq. gi-paired-branches).
//!
//! Branches exist to be compared: their continuation turns never enter the buffer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::episode::ScoredTurn;
use crate::random::{Purpose, StreamKey};

/// How the hint is put to the student (appendix C).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HintPrompt {
    /// Take the feedback into account (the paper's default).
    #[default]
    #[serde(alias = "incorporate")]
    FeedbackIncorporation,
    /// Reconsider the decision (ablation of table 3).
    #[serde(alias = "reconsider")]
    Reconsideration,
}

/// How the two branches of a fork differ at the fork turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkKind {
    /// Base: the snapshot samples a fresh response. Guided: it samples one with the teacher's hint in view.
    Hint {
        /// How the hint is put to the student.
        prompt: HintPrompt,
        /// The longest hint in tokens.
        tokens: usize,
    },
    /// Base: the original action is executed again. Guided: the teacher's own turn is executed.
    Bridge,
}

/// One of the two branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Without guidance.
    Base,
    /// With the hint, or after the bridge.
    Guided,
}

/// Which random draws the two branches of a pair are made of (eq. future-validation-gate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Coupling {
    /// Each branch has its own (the paper).
    #[default]
    Independent,
    /// Both have the same: equal contexts draw equal tokens, so branches that do the same have gain exactly 0.
    Common,
}

/// A fork to run: the state both branches start from (eq. gi-paired-branches).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ForkRequest {
    /// The episode's key inside the explorer batch.
    pub episode: u64,
    /// The turn to fork at: both branches start from the state before it.
    pub turn: usize,
    /// What the guided branch gets.
    pub kind: ForkKind,
    /// Turns the snapshot plays after the fork turn, `H`.
    pub continuation_turns: usize,
    /// Temperature of the teacher's log-probabilities of continuation tokens, `tau`.
    pub temperature: f64,
    /// The divergence `D_t` that led here.
    pub divergence: f64,
    /// Pairs of branches played, each with draws of its own.
    #[serde(default = "one")]
    pub pairs: usize,
    /// Which draws the two branches of a pair are made of.
    #[serde(default)]
    pub coupling: Coupling,
    /// Whether branches are played to the end of the episode; the turns after the continuation are not judged.
    #[serde(default)]
    pub play_on: bool,
    /// Whether the teacher names its favorite tokens in the continuation.
    #[serde(default)]
    pub favorites: bool,
}

fn one() -> usize {
    1
}

impl ForkRequest {
    /// The stream a student response of the fork's pair `pair` is sampled from, at turn `turn` of the episode.
    pub fn stream(&self, seed: u64, batch: u64, pair: usize, side: Side, turn: usize) -> StreamKey {
        let purpose = match (self.coupling, side) {
            (Coupling::Common, _) | (_, Side::Base) => Purpose::ForkBase,
            (Coupling::Independent, Side::Guided) => Purpose::ForkHinted,
        };
        // Forks of one episode start at different turns, so (fork turn, turn) names the draw; episodes of a batch are
        // far fewer than 2^32, so the pair has room above them.
        let place = ((self.turn as u32) << 16) | (turn as u32 & 0xffff);
        let episode = self.episode | (pair as u64) << 32;
        StreamKey::new(seed, batch, episode, purpose, place)
    }
}

/// Why a fork gave no pair of branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkDrop {
    /// The restored observation or actions differ from the recorded ones.
    RestoreMismatch,
    /// The environment could not be restored.
    RestoreFailed,
    /// The environment answers the same actions differently when they are replayed.
    NotRepeatable,
    /// The teacher's hint was empty.
    HintEmpty,
    /// The teacher failed to give a hint.
    HintFailed,
    /// The original action or the bridge is not among the admissible ones.
    InadmissibleAction,
    /// The teacher's turn holds no action.
    UnparsedAction,
    /// The prompt of the hint, the bridge or the fork turn is longer than the limit.
    PromptTooLong,
    /// Time ran out before both branches had a fork turn.
    Timeout,
    /// An engine failed before both branches had a fork turn.
    EngineFailure,
    /// The student's distributions under the hint could not be computed.
    TargetFailed,
}

/// How a branch came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchEnd {
    /// It played all continuation turns.
    Horizon,
    /// The environment ended the episode.
    Ended {
        /// Whether the task was solved.
        success: bool,
    },
    /// The episode's limit of turns was reached.
    TurnLimit,
    /// Time ran out.
    Timeout,
    /// An engine or the environment failed.
    EngineFailure,
    /// A prompt grew beyond the limit.
    PromptTooLong,
}

impl BranchEnd {
    /// Whether something other than the episode itself cut the branch short.
    pub fn is_cut(self) -> bool {
        match self {
            Self::Timeout | Self::EngineFailure | Self::PromptTooLong => true,
            Self::Horizon | Self::Ended { .. } | Self::TurnLimit => false,
        }
    }
}

/// One branch, rolled out and scored in hint-free contexts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// The response at the fork turn.
    pub response: ScoredTurn,
    /// The judged turns after it; where branches are played on, more turns follow.
    pub continuation: Vec<ScoredTurn>,
    /// How it ended.
    pub end: BranchEnd,
    /// The benchmark's score where it ended.
    #[serde(default)]
    pub score: Option<f64>,
}

/// Both branches of a fork, drawn once more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Without guidance.
    pub base: Branch,
    /// With the hint, or after the bridge.
    pub guided: Branch,
}

/// Both branches of a fork (eq. gi-paired-branches).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Without guidance.
    pub base: Branch,
    /// With the hint, or after the bridge.
    pub guided: Branch,
    /// Mean `KL(q_H || p_0)` of the guided response under the snapshot, where it was measured.
    pub internalization_gap: Option<f64>,
    /// More draws of the same fork, which are judged and never trained on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<Repeat>,
}

impl Pair {
    /// Base and guided branch of every draw, the first one first.
    pub fn draws(&self) -> impl Iterator<Item = (&Branch, &Branch)> {
        let more = self.repeats.iter().map(|repeat| (&repeat.base, &repeat.guided));
        std::iter::once((&self.base, &self.guided)).chain(more)
    }
}

/// What became of a fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkResult {
    /// Both branches were started.
    Pair(Box<Pair>),
    /// No branch could be started.
    Dropped(ForkDrop),
}

/// A fork that has been run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedFork {
    /// The episode's key inside the explorer batch.
    pub episode: u64,
    /// The fork turn.
    pub turn: usize,
    /// What became of it.
    pub result: ForkResult,
}
