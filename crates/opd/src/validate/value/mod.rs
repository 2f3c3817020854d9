//! What a continuation is worth: one file per value, one line here.

mod action_tokens;
mod advantage;
mod likelihood;
mod outcome;
mod progress;
mod regret;
mod token_ratio;
mod turn_mean;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fork::Branch;
use crate::error::InputError;

pub use action_tokens::action_tokens;
pub use advantage::{Stages, advantage};
pub use likelihood::{teacher_likelihood, tempered_log_probability};
pub use outcome::outcome;
pub use progress::progress;
pub use regret::regret;
pub use token_ratio::token_ratio;
pub use turn_mean::turn_mean;

/// How a continuation is valued (eq. future-evaluator).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BranchValue {
    /// Mean teacher log-likelihood of the content tokens (the paper).
    #[default]
    #[serde(alias = "log-likelihood")]
    TeacherLikelihood,
    /// Share of tokens the teacher finds likelier than the student does (FutureBridge).
    TokenRatio,
    /// Mean over turns of each turn's mean teacher log-likelihood: long responses weigh no more than short ones.
    TurnMean,
    /// Mean teacher log-likelihood of the tokens of the actions: what is done, not what is said.
    ActionTokens,
    /// Mean over turns of the teacher log-likelihood above what a step of that kind usually has in the batch.
    Advantage,
    /// Mean of what the teacher's log-likelihood falls short of its favorite token's.
    Regret,
    /// 1 if the branch, played on to its end, solves the task; else 0.
    Outcome,
    /// The benchmark's own score where the branch, played on, ends.
    Progress,
}

impl BranchValue {
    /// Every value.
    pub const ALL: [Self; 8] = [
        Self::TeacherLikelihood,
        Self::TokenRatio,
        Self::TurnMean,
        Self::ActionTokens,
        Self::Advantage,
        Self::Regret,
        Self::Outcome,
        Self::Progress,
    ];

    /// The word in configurations and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TeacherLikelihood => "teacher-likelihood",
            Self::TokenRatio => "token-ratio",
            Self::TurnMean => "turn-mean",
            Self::ActionTokens => "action-tokens",
            Self::Advantage => "advantage",
            Self::Regret => "regret",
            Self::Outcome => "outcome",
            Self::Progress => "progress",
        }
    }

    /// The branch's value on its continuation turns, the fork turn excluded (eq. future-evaluator).
    pub fn of(self, branch: &Branch, stages: &Stages) -> Result<f64, InputError> {
        match self {
            Self::TeacherLikelihood => teacher_likelihood(branch),
            Self::TokenRatio => token_ratio(branch),
            Self::TurnMean => turn_mean(branch),
            Self::ActionTokens => action_tokens(branch),
            Self::Advantage => advantage(branch, stages),
            Self::Regret => regret(branch),
            Self::Outcome => Ok(outcome(branch)),
            Self::Progress => progress(branch),
        }
    }

    /// Whether the value is that of the branch's end, which must be played and needs no judged continuation.
    pub fn is_of_end(self) -> bool {
        matches!(self, Self::Outcome | Self::Progress)
    }

    /// Whether the teacher must name its favorite token at every position.
    pub fn needs_favorites(self) -> bool {
        self == Self::Regret
    }

    /// Whether the branch holds something this value is a mean of.
    pub(super) fn applies(self, branch: &Branch) -> bool {
        let mut turns = branch.continuation.iter();
        match self {
            Self::Outcome | Self::Progress => true,
            Self::TokenRatio => turns.any(|turn| !turn.tokens.is_empty()),
            Self::ActionTokens => turns.any(|turn| turn.action_content().next().is_some()),
            Self::TeacherLikelihood | Self::TurnMean | Self::Advantage | Self::Regret => {
                turns.any(|turn| turn.content().next().is_some())
            }
        }
    }
}

/// Builders of branches for the tests of the values.
#[cfg(test)]
mod example {
    use crate::episode::{Action, Actor, ScoredToken, ScoredTurn, TopPair};
    use crate::validate::fork::{Branch, BranchEnd};

    /// A turn whose tokens have these teacher log-probabilities; the last token ends the turn.
    pub(super) fn turn(number: usize, logprobs: &[f32]) -> ScoredTurn {
        let last = logprobs.len();
        let tokens = logprobs.iter().zip(1..).map(|(&logprob, place)| ScoredToken {
            teacher_logprob: Some(logprob),
            student_logprob: Some(-1.0),
            ..ScoredToken::unscored(place as u32, place == last)
        });
        ScoredTurn {
            turn: number,
            actor: Actor::Student,
            parsed: true,
            admissible: true,
            tokens: tokens.collect(),
            action: None,
            dropped: None,
        }
    }

    /// The same turn with its action at the tokens `from..to`.
    pub(super) fn acting(turn: ScoredTurn, from: usize, to: usize) -> ScoredTurn {
        let action = Some(Action { text: "look".to_owned(), tokens: from..to });
        ScoredTurn { action, ..turn }
    }

    /// The same turn with the teacher's log-probability of its favorite token at every position.
    pub(super) fn favorite(mut turn: ScoredTurn, logprob: f32) -> ScoredTurn {
        for token in &mut turn.tokens {
            token.top = Some(TopPair {
                student_top: 1,
                teacher_top: 2,
                student_at_student: None,
                student_at_teacher: None,
                teacher_at_teacher: Some(logprob),
                teacher_at_student: None,
            });
        }
        turn
    }

    /// A branch with that continuation.
    pub(super) fn branch(continuation: Vec<ScoredTurn>) -> Branch {
        Branch {
            response: turn(0, &[-9.0, -9.0]),
            continuation,
            end: BranchEnd::Horizon,
            score: None,
        }
    }

    /// Asserts equality up to rounding.
    pub(super) fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }
}
