//! The gate: which pairs count, and which of them open it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Validate;
use super::fork::{Branch, BranchEnd, FinishedFork, ForkDrop, ForkResult, Pair, Side};
use super::value::BranchValue;
use crate::episode::ScoredTurn;
use crate::error::{InputError, OpdError};

/// What a branch that solves the task is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Terminal {
    /// Nothing of its own: without a continuation the pair is excluded (the paper).
    #[default]
    Exclude,
    /// More than any branch that does not solve it.
    Outcome,
}

/// How long a branch must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Completeness {
    /// At least one continuation turn; a branch that ended by itself is valued on what it has.
    #[default]
    Natural,
    /// Every continuation turn asked for, or the pair is lost (FutureBridge).
    Full,
}

/// Why a branch cannot be valued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Time ran out.
    Timeout,
    /// An engine or the environment failed.
    EngineFailure,
    /// A prompt grew beyond the limit.
    PromptTooLong,
    /// A response held no action.
    UnparsedAction,
    /// A response held an action the environment does not offer.
    InadmissibleAction,
    /// The fork turn has no response that could be trained on.
    NoResponse,
    /// The episode was over at the fork turn.
    NoContinuation,
    /// It ended before the turns asked for, which `validate.completeness` does not allow.
    EndedEarly,
    /// The continuation has no content tokens.
    NoContent,
    /// The teacher could not score a continuation turn.
    Unscored,
}

/// Why the gate stayed closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The fork gave no pair.
    Dropped(ForkDrop),
    /// A branch cannot be valued.
    Incomplete(Side, Cause),
    /// The pair is complete and the guided branch is not better.
    NotBetter,
}

/// A stable code for logs: `dropped.hint_empty`, `base.timeout`, `not_better`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped(reason) => write!(f, "dropped.{}", drop_code(*reason)),
            Self::Incomplete(side, cause) => {
                let side = match side {
                    Side::Base => "base",
                    Side::Guided => "guided",
                };
                write!(f, "{side}.{}", cause_code(*cause))
            }
            Self::NotBetter => f.write_str("not_better"),
        }
    }
}

/// The gate's word on one fork.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// How continuations were valued.
    #[serde(default)]
    pub evaluator: BranchValue,
    /// Value of the unguided continuation, `V_B`.
    pub base_value: Option<f64>,
    /// Value of the guided continuation, `V_H`.
    pub guided_value: Option<f64>,
    /// `V_H - V_B`; only of complete pairs.
    pub gain: Option<f64>,
    /// The gate `g`.
    pub accepted: bool,
    /// Why it stayed closed.
    pub reason: Option<Reason>,
}

impl Verdict {
    fn closed(evaluator: BranchValue, reason: Reason) -> Self {
        let reason = Some(reason);
        Self {
            evaluator,
            base_value: None,
            guided_value: None,
            gain: None,
            accepted: false,
            reason,
        }
    }

    /// Whether both branches were valued.
    pub fn is_complete(&self) -> bool {
        self.gain.is_some()
    }
}

/// The gate `g = 1[V_H - V_B > 0]`: strict, a tie stays closed (eq. future-validation-gate).
pub fn opens(gain: f64) -> bool {
    gain > 0.0
}

/// Why a branch cannot be valued under the section's rules, if it cannot.
pub fn incompleteness(branch: &Branch, validate: &Validate) -> Option<Cause> {
    match branch.end {
        BranchEnd::Timeout => return Some(Cause::Timeout),
        BranchEnd::EngineFailure => return Some(Cause::EngineFailure),
        BranchEnd::PromptTooLong => return Some(Cause::PromptTooLong),
        BranchEnd::Horizon | BranchEnd::Ended { .. } | BranchEnd::TurnLimit => {}
    }
    if branch.continuation.is_empty() {
        return Some(Cause::NoContinuation);
    }
    if branch.continuation.iter().any(|turn| turn.dropped.is_some()) {
        return Some(Cause::Unscored);
    }
    if validate.completeness == Completeness::Full {
        if branch.continuation.iter().any(|turn| !turn.parsed) {
            return Some(Cause::UnparsedAction);
        }
        if branch.continuation.iter().any(|turn| !turn.admissible) {
            return Some(Cause::InadmissibleAction);
        }
        if branch.continuation.len() < validate.continuation_turns {
            return Some(Cause::EndedEarly);
        }
    }
    let valued = match validate.evaluator {
        BranchValue::TeacherLikelihood => {
            branch.continuation.iter().any(|turn| turn.content().next().is_some())
        }
        BranchValue::TokenRatio => branch.continuation.iter().any(|turn| !turn.tokens.is_empty()),
    };
    (!valued).then_some(Cause::NoContent)
}

/// Judges a fork: completeness, values, gain and gate (eq. future-validation-gate).
pub fn judge(fork: &FinishedFork, validate: &Validate) -> Result<Verdict, OpdError> {
    let pair = match &fork.result {
        ForkResult::Dropped(reason) => {
            return Ok(Verdict::closed(validate.evaluator, Reason::Dropped(*reason)));
        }
        ForkResult::Pair(pair) => pair,
    };
    judge_pair(pair, validate).map_err(OpdError::at(fork.episode, fork.turn))
}

fn judge_pair(pair: &Pair, validate: &Validate) -> Result<Verdict, InputError> {
    for branch in [&pair.base, &pair.guided] {
        branch.response.check()?;
        branch.continuation.iter().try_for_each(ScoredTurn::check)?;
    }
    if pair.guided.response.drop_reason().is_some() {
        return Ok(Verdict::closed(
            validate.evaluator,
            Reason::Incomplete(Side::Guided, Cause::NoResponse),
        ));
    }
    let outcome = match validate.terminal {
        Terminal::Exclude => None,
        Terminal::Outcome => better_outcome(pair),
    };
    let flaw = [(Side::Base, &pair.base), (Side::Guided, &pair.guided)]
        .into_iter()
        .find_map(|(side, branch)| incompleteness(branch, validate).map(|cause| (side, cause)));
    if let Some((side, cause)) = flaw {
        return Ok(match outcome {
            None => Verdict::closed(validate.evaluator, Reason::Incomplete(side, cause)),
            Some(false) => Verdict::closed(validate.evaluator, Reason::NotBetter),
            Some(true) => Verdict {
                evaluator: validate.evaluator,
                base_value: None,
                guided_value: None,
                gain: None,
                accepted: true,
                reason: None,
            },
        });
    }
    let base_value = validate.evaluator.of(&pair.base)?;
    let guided_value = validate.evaluator.of(&pair.guided)?;
    let gain = guided_value - base_value;
    let accepted = outcome.unwrap_or(opens(gain));
    Ok(Verdict {
        evaluator: validate.evaluator,
        base_value: Some(base_value),
        guided_value: Some(guided_value),
        gain: Some(gain),
        accepted,
        reason: (!accepted).then_some(Reason::NotBetter),
    })
}

/// Whether the guided branch solved the task where the base did not, or the reverse. `None` when the
/// outcomes are the same, or when one of them is unknown because its branch was cut.
fn better_outcome(pair: &Pair) -> Option<bool> {
    let branches = [&pair.base, &pair.guided];
    let [base, guided] = branches.map(|branch| branch.end == BranchEnd::Ended { success: true });
    let known = branches.iter().all(|branch| !branch.end.is_cut());
    (known && base != guided).then_some(guided)
}

fn drop_code(reason: ForkDrop) -> &'static str {
    match reason {
        ForkDrop::RestoreMismatch => "restore_mismatch",
        ForkDrop::RestoreFailed => "restore_failed",
        ForkDrop::NotRepeatable => "not_repeatable",
        ForkDrop::HintEmpty => "hint_empty",
        ForkDrop::HintFailed => "hint_failed",
        ForkDrop::InadmissibleAction => "inadmissible_action",
        ForkDrop::UnparsedAction => "unparsed_action",
        ForkDrop::PromptTooLong => "prompt_too_long",
        ForkDrop::Timeout => "timeout",
        ForkDrop::EngineFailure => "engine_failure",
        ForkDrop::TargetFailed => "target_failed",
    }
}

fn cause_code(cause: Cause) -> &'static str {
    match cause {
        Cause::Timeout => "timeout",
        Cause::EngineFailure => "engine_failure",
        Cause::PromptTooLong => "prompt_too_long",
        Cause::UnparsedAction => "unparsed_action",
        Cause::InadmissibleAction => "inadmissible_action",
        Cause::NoResponse => "no_response",
        Cause::NoContinuation => "no_continuation",
        Cause::EndedEarly => "ended_early",
        Cause::NoContent => "no_content",
        Cause::Unscored => "unscored",
    }
}
