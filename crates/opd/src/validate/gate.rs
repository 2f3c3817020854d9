//! The gate: which pairs count, and which of them open it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Validate;
use super::fork::{Branch, BranchEnd, FinishedFork, ForkDrop, ForkResult, Pair, Side};
use super::value::{BranchValue, Stages};
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
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// How continuations were valued.
    #[serde(default)]
    pub evaluator: BranchValue,
    /// Value of the unguided continuation, `V_B`; of several pairs the mean.
    pub base_value: Option<f64>,
    /// Value of the guided continuation, `V_H`; of several pairs the mean.
    pub guided_value: Option<f64>,
    /// `V_H - V_B`; only of complete pairs, of several the mean.
    pub gain: Option<f64>,
    /// Complete pairs.
    #[serde(default)]
    pub pairs: usize,
    /// Standard error of the mean gain; `None` with fewer than two complete pairs.
    #[serde(default)]
    pub standard_error: Option<f64>,
    /// The gate `g`.
    pub accepted: bool,
    /// Why it stayed closed.
    pub reason: Option<Reason>,
}

impl Verdict {
    fn closed(evaluator: BranchValue, reason: Reason) -> Self {
        Self { evaluator, reason: Some(reason), ..Self::default() }
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

/// The gate with a margin in standard errors of the mean gain (eq. future-validation-gate).
///
/// A standard error that is not known clears no margin.
pub fn clears(gain: f64, standard_error: Option<f64>, margin: f64) -> bool {
    let bar = if margin > 0.0 { standard_error.map(|error| margin * error) } else { Some(0.0) };
    opens(gain) && bar.is_some_and(|bar| gain > bar)
}

/// Why a branch cannot be valued under the section's rules, if it cannot.
pub fn incompleteness(branch: &Branch, validate: &Validate) -> Option<Cause> {
    match branch.end {
        BranchEnd::Timeout => return Some(Cause::Timeout),
        BranchEnd::EngineFailure => return Some(Cause::EngineFailure),
        BranchEnd::PromptTooLong => return Some(Cause::PromptTooLong),
        BranchEnd::Horizon | BranchEnd::Ended { .. } | BranchEnd::TurnLimit => {}
    }
    if validate.evaluator.is_of_end() {
        return None;
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
    (!validate.evaluator.applies(branch)).then_some(Cause::NoContent)
}

/// Judges a fork: completeness, values, gain and gate (eq. future-validation-gate).
pub fn judge(fork: &FinishedFork, validate: &Validate) -> Result<Verdict, OpdError> {
    judge_against(fork, validate, &Stages::default())
}

/// The same, with what turns of the batch are usually worth: what the evaluator "advantage" measures against.
pub fn judge_against(
    fork: &FinishedFork,
    validate: &Validate,
    stages: &Stages,
) -> Result<Verdict, OpdError> {
    let pair = match &fork.result {
        ForkResult::Dropped(reason) => {
            return Ok(Verdict::closed(validate.evaluator, Reason::Dropped(*reason)));
        }
        ForkResult::Pair(pair) => pair,
    };
    judge_pair(pair, validate, stages).map_err(OpdError::at(fork.episode, fork.turn))
}

fn judge_pair(pair: &Pair, validate: &Validate, stages: &Stages) -> Result<Verdict, InputError> {
    let evaluator = validate.evaluator;
    for branch in pair.draws().flat_map(|(base, guided)| [base, guided]) {
        branch.response.check()?;
        branch.continuation.iter().try_for_each(ScoredTurn::check)?;
    }
    if pair.guided.response.drop_reason().is_some() {
        let reason = Reason::Incomplete(Side::Guided, Cause::NoResponse);
        return Ok(Verdict::closed(evaluator, reason));
    }
    let outcome = match validate.terminal {
        Terminal::Exclude => None,
        Terminal::Outcome => better_outcome(pair),
    };
    let (mut values, mut flaw) = (Vec::new(), None);
    for (base, guided) in pair.draws() {
        match flaw_of(base, guided, validate) {
            None => values.push((evaluator.of(base, stages)?, evaluator.of(guided, stages)?)),
            found => flaw = flaw.or(found),
        }
    }
    if let (true, Some(flaw)) = (values.is_empty(), flaw) {
        return Ok(match outcome {
            None => Verdict::closed(evaluator, flaw),
            Some(false) => Verdict::closed(evaluator, Reason::NotBetter),
            Some(true) => Verdict { evaluator, accepted: true, ..Verdict::default() },
        });
    }
    let mean =
        |of: fn(&(f64, f64)) -> f64| values.iter().map(of).sum::<f64>() / values.len() as f64;
    let gain = mean(|(base, guided)| guided - base);
    let standard_error = standard_error(&values, gain);
    let accepted = outcome.unwrap_or(clears(gain, standard_error, validate.margin));
    Ok(Verdict {
        evaluator,
        base_value: Some(mean(|(base, _)| *base)),
        guided_value: Some(mean(|(_, guided)| *guided)),
        gain: Some(gain),
        pairs: values.len(),
        standard_error,
        accepted,
        reason: (!accepted).then_some(Reason::NotBetter),
    })
}

/// Why a pair cannot be valued, if it cannot.
fn flaw_of(base: &Branch, guided: &Branch, validate: &Validate) -> Option<Reason> {
    [(Side::Base, base), (Side::Guided, guided)].into_iter().find_map(|(side, branch)| {
        incompleteness(branch, validate).map(|cause| Reason::Incomplete(side, cause))
    })
}

/// The standard error of the mean gain of several pairs: sample deviation over the root of their number.
fn standard_error(values: &[(f64, f64)], mean: f64) -> Option<f64> {
    let count = values.len() as f64;
    let squares: f64 = values.iter().map(|(base, guided)| (guided - base - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt())
}

/// Whether guided branches solved the task more often than base branches, or less often. `None` when they did equally
/// often; a pair whose outcome is unknown because a branch was cut does not count.
fn better_outcome(pair: &Pair) -> Option<bool> {
    let known = pair.draws().filter(|(base, guided)| !base.end.is_cut() && !guided.end.is_cut());
    let solved = |branch: &Branch| i64::from(branch.end == BranchEnd::Ended { success: true });
    let balance: i64 = known.map(|(base, guided)| solved(guided) - solved(base)).sum();
    (balance != 0).then_some(balance > 0)
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
