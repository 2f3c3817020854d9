//! What a training loop hands to a method: scored tokens, turns, episodes and batches.
//!
//! Turns are counted from 0 at reset, replayed turns included; the paper's turn `t` is our `t - 1`.
//! A quantity that was not measured is `None`, never a number that stands for "missing".

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{InputError, OpdError, log_probability, measured};

/// The two models' favorite tokens at one position and what each model thinks of them.
///
/// Ties go to the lowest token id. Engines that return only the top few tokens may not know a
/// model's opinion of the other one's favorite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TopPair {
    /// The student's most likely token, `vS`.
    pub student_top: u32,
    /// The teacher's most likely token, `vT`.
    pub teacher_top: u32,
    /// `log p_S(vS)`.
    pub student_at_student: Option<f32>,
    /// `log p_S(vT)`.
    pub student_at_teacher: Option<f32>,
    /// `log p_T(vT)`.
    pub teacher_at_teacher: Option<f32>,
    /// `log p_T(vS)`.
    pub teacher_at_student: Option<f32>,
}

impl TopPair {
    /// Whether both models favor the same token.
    pub fn agree(&self) -> bool {
        self.student_top == self.teacher_top
    }
}

/// One generated token and what both models say about its position.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScoredToken {
    /// The token generated.
    pub id: u32,
    /// Whether it belongs to the content set `C_t`.
    pub content: bool,
    /// Whether the tokenizer calls it special (end of turn, think markers).
    pub special: bool,
    /// The rollout snapshot's log-probability of the token.
    pub student_logprob: Option<f32>,
    /// The teacher's log-probability of the token in the same context.
    pub teacher_logprob: Option<f32>,
    /// Both models' favorite tokens.
    pub top: Option<TopPair>,
    /// `KL(snapshot || teacher)` at this position, by the batch's [`DivergenceSource`].
    pub kl: Option<f32>,
}

impl ScoredToken {
    /// A token nobody has scored yet; special tokens are not content.
    pub fn unscored(id: u32, special: bool) -> Self {
        Self {
            id,
            content: !special,
            special,
            student_logprob: None,
            teacher_logprob: None,
            top: None,
            kl: None,
        }
    }

    /// Refuses values that no engine should return; what is missing stays missing.
    pub fn check(&self, position: usize) -> Result<(), InputError> {
        if self.content && self.special {
            return Err(InputError::SpecialContent { position });
        }
        let top = self.top;
        for (value, what) in [
            (self.student_logprob, "student log-probability"),
            (self.teacher_logprob, "teacher log-probability"),
            (top.and_then(|top| top.student_at_student), "log p_S(vS)"),
            (top.and_then(|top| top.student_at_teacher), "log p_S(vT)"),
            (top.and_then(|top| top.teacher_at_teacher), "log p_T(vT)"),
            (top.and_then(|top| top.teacher_at_student), "log p_T(vS)"),
        ] {
            if let Some(value) = value {
                log_probability(value, what, position)?;
            }
        }
        self.kl.map_or(Ok(()), |kl| divergence(kl, position).map(|_| ()))
    }
}

/// The value, if it can be a KL divergence: finite and not below zero (rounding aside).
pub(crate) fn divergence(kl: f32, position: usize) -> Result<f64, InputError> {
    const ROUNDING: f32 = 1e-2;
    let (what, value) = ("KL divergence", f64::from(kl));
    if !kl.is_finite() {
        return Err(InputError::NotFinite { what, position, value });
    }
    if kl < -ROUNDING {
        return Err(InputError::OutOfRange { what, position, value, expected: "at least 0" });
    }
    Ok(value)
}

/// Who wrote a turn's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// The student's rollout snapshot.
    Student,
    /// The teacher (Guided-OPD's teacher turns, FutureBridge's bridge).
    Teacher,
}

/// Why a turn has no training row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnDrop {
    /// The prompt was longer than the limit; it is never cut.
    PromptTooLong,
    /// The teacher could not score the turn.
    TeacherFailed,
    /// Time ran out before the model answered.
    Timeout,
    /// The engine failed while generating.
    EngineFailed,
    /// The response has no tokens.
    EmptyResponse,
}

/// What a response tells the environment to do, and where it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The action as the environment gets it.
    pub text: String,
    /// The response tokens that spell it; empty where they were not found.
    pub tokens: Range<usize>,
}

/// One prompt and one response: one training row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoredTurn {
    /// The turn's number, counted from 0 at reset.
    pub turn: usize,
    /// Who wrote the response.
    pub actor: Actor,
    /// Whether the response holds an action the parser understood.
    pub parsed: bool,
    /// Whether the environment offered that action where it was taken.
    #[serde(default = "yes")]
    pub admissible: bool,
    /// The response, token by token; all of it is trained on.
    pub tokens: Vec<ScoredToken>,
    /// The action, where one was found.
    #[serde(default)]
    pub action: Option<Action>,
    /// Set when the turn must not be trained on.
    pub dropped: Option<TurnDrop>,
}

fn yes() -> bool {
    true
}

impl ScoredTurn {
    /// The content tokens with their positions in the response.
    pub fn content(&self) -> impl Iterator<Item = (usize, &ScoredToken)> {
        self.tokens.iter().enumerate().filter(|(_, token)| token.content)
    }

    /// The content tokens of the action with their positions in the response.
    pub fn action_content(&self) -> impl Iterator<Item = (usize, &ScoredToken)> {
        let tokens = self.action.as_ref().map_or(0..0, |action| action.tokens.clone());
        self.content().filter(move |(position, _)| tokens.contains(position))
    }

    /// Whether both turns tell the environment to do the same.
    pub fn acts_like(&self, other: &Self) -> bool {
        let text = |turn: &Self| turn.action.as_ref().map(|action| action.text.clone());
        text(self).is_some() && text(self) == text(other)
    }

    /// Why the turn has no training row, if it has none.
    pub fn drop_reason(&self) -> Option<TurnDrop> {
        self.dropped.or(self.tokens.is_empty().then_some(TurnDrop::EmptyResponse))
    }

    /// `log T - log mu` of every token; a token that was not measured is an error.
    pub fn gaps(&self) -> Result<Vec<f64>, InputError> {
        let tokens = self.tokens.iter().enumerate();
        tokens
            .map(|(position, token)| {
                Ok(measured(token.teacher_logprob, "teacher log-probability", position)?
                    - measured(token.student_logprob, "student log-probability", position)?)
            })
            .collect()
    }

    /// Refuses impossible values.
    pub fn check(&self) -> Result<(), InputError> {
        self.tokens.iter().enumerate().try_for_each(|(position, token)| token.check(position))
    }
}

/// How an episode came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpisodeEnd {
    /// The environment ended it (natural completion; not necessarily success).
    Completed,
    /// The curriculum's horizon, below the environment's limit, stopped it.
    CurriculumCutoff,
    /// The environment's limit of turns stopped it.
    TurnLimit,
    /// A prompt grew beyond the limit.
    PromptTooLong,
    /// An engine or environment failed, or time ran out.
    Failed,
}

/// One episode, rolled out and scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoredEpisode {
    /// The episode's key inside its explorer batch: its slot, from 0.
    pub episode: u64,
    /// Optimizer steps done when the snapshot that rolled it out was taken.
    pub version: u64,
    /// Reference actions replayed before the first turn; those turns are not listed.
    pub prefix: usize,
    /// How many reference actions the task has, if it has any.
    pub reference_actions: Option<usize>,
    /// How it ended.
    pub end: EpisodeEnd,
    /// Whether the task was solved.
    pub success: bool,
    /// The turns played, in order, from turn number `prefix` on.
    pub turns: Vec<ScoredTurn>,
}

impl ScoredEpisode {
    /// The turn with that number.
    pub fn turn(&self, number: usize) -> Option<&ScoredTurn> {
        self.turns.iter().find(|turn| turn.turn == number)
    }

    fn check(&self) -> Result<(), OpdError> {
        for (turn, expected) in self.turns.iter().zip(self.prefix..) {
            if turn.turn != expected {
                let message = format!("turn {} is listed where {expected} is due", turn.turn);
                return Err(OpdError::Episode { episode: self.episode, message });
            }
            turn.check().map_err(OpdError::at(self.episode, turn.turn))?;
        }
        Ok(())
    }
}

/// Which divergence [`ScoredToken::kl`] and the proposal use. A run records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DivergenceSource {
    /// KL over the full vocabulary.
    Full,
    /// KL over the teacher's top k tokens and one bucket for all others.
    TopK,
    /// `log p_S - log p_T` of the sampled token; [`ScoredToken::kl`] is not used.
    Sampled,
}

/// One explorer batch: the tick of the curriculum's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoredBatch {
    /// The batch's number, from 1.
    pub number: u64,
    /// How divergences were measured.
    pub divergence: DivergenceSource,
    /// The episodes, by ascending key.
    pub episodes: Vec<ScoredEpisode>,
}

impl ScoredBatch {
    /// The episode with that key.
    pub fn episode(&self, key: u64) -> Option<&ScoredEpisode> {
        self.episodes.iter().find(|episode| episode.episode == key)
    }

    /// Refuses batches that contradict themselves or hold impossible numbers.
    pub fn check(&self) -> Result<(), OpdError> {
        for pair in self.episodes.windows(2) {
            if pair[1].episode <= pair[0].episode {
                return Err(OpdError::Episode {
                    episode: pair[1].episode,
                    message: format!("listed after episode {}; keys must ascend", pair[0].episode),
                });
            }
        }
        self.episodes.iter().try_for_each(ScoredEpisode::check)
    }
}
