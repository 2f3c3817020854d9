//! Does the student still play, and does the teacher still judge?

use lens_records::metrics::RolloutStats;

use super::{Finding, Patient, RECENT, Severity, thirds};
use crate::stats::mean;

/// Share of turns with an action below which learning suffers, and below which it cannot work.
const PARSED: (f64, f64) = (0.9, 0.5);
/// Growth of responses that is suspicious.
const GROWTH: f64 = 1.5;
/// Share of turns that repeat the action before.
const REPEATED: f64 = 0.3;
/// Nats of entropy left of the beginning's.
const ENTROPY: f64 = 0.2;
/// Mean probability of the teacher's favorite below which it has no opinion.
const UNIFORM: f64 = 0.3;

fn stats(patient: &Patient<'_>) -> Vec<RolloutStats> {
    let stats = patient.run.batches.iter().filter_map(|batch| batch.rollout);
    stats.filter(|stats| stats.turns > 0).collect()
}

fn recent(all: &[RolloutStats]) -> &[RolloutStats] {
    &all[all.len().saturating_sub(RECENT)..]
}

/// Responses hold no action.
pub(super) fn unparsed(patient: &Patient<'_>) -> Option<Finding> {
    let all = stats(patient);
    let (turns, parsed) = recent(&all)
        .iter()
        .fold((0, 0), |sum, stats| (sum.0 + stats.turns, sum.1 + stats.parsed_turns));
    let share = parsed as f64 / (turns as f64).max(1.0);
    (turns > 0 && share < PARSED.0).then(|| Finding {
        code: "rollout.unparsed",
        severity: if share < PARSED.1 { Severity::Problem } else { Severity::Warning },
        title: "responses without an action".to_owned(),
        evidence: format!("{:.0} % of {turns} turns hold an action", 100.0 * share),
        cause: "the student does not write the tags the parser looks for, or is cut off before them",
        advice: "raise rollout.max_response_tokens, or fine-tune the student on a few demonstrations first (`lens sft`)",
    })
}

/// Responses grow.
pub(super) fn growing_length(patient: &Patient<'_>) -> Option<Finding> {
    let all = stats(patient);
    let lengths: Vec<f64> =
        all.iter().map(|stats| stats.response_tokens as f64 / stats.turns as f64).collect();
    let (early, late) = thirds(&lengths)?;
    let (early, late) = (mean(early.iter().copied())?, mean(late.iter().copied())?);
    let limit = patient.run.number("rollout.max_response_tokens");
    let near_limit = limit.is_some_and(|limit| late > 0.8 * limit as f64);
    (late > GROWTH * early || near_limit).then(|| Finding {
        code: "rollout.growing_length",
        severity: Severity::Warning,
        title: "responses grow or fill their limit".to_owned(),
        evidence: format!(
            "{early:.0} tokens per response at first, {late:.0} now, limit {}",
            limit.map_or_else(|| "unknown".to_owned(), |limit| limit.to_string())
        ),
        cause: "long responses are cut before their action, or the loss rewards length",
        advice: "raise rollout.max_response_tokens, and compare loss.aggregation per token and per trajectory",
    })
}

/// The same action over and over.
pub(super) fn repetition(patient: &Patient<'_>) -> Option<Finding> {
    let all = stats(patient);
    let (turns, repeated) = recent(&all)
        .iter()
        .fold((0, 0), |sum, stats| (sum.0 + stats.turns, sum.1 + stats.repeated_turns));
    let share = repeated as f64 / (turns as f64).max(1.0);
    (turns >= 50 && share > REPEATED).then(|| Finding {
        code: "rollout.repetition",
        severity: Severity::Warning,
        title: "the student repeats itself".to_owned(),
        evidence: format!("{:.0} % of {turns} turns repeat the action before", 100.0 * share),
        cause: "the student is stuck in loops the environment does not end",
        advice: "show more past steps (rollout.history), raise rollout.temperature",
    })
}

/// The student's choices have no randomness left.
pub(super) fn entropy_collapse(patient: &Patient<'_>) -> Option<Finding> {
    let values: Vec<f64> = stats(patient).iter().filter_map(|stats| stats.student_nll).collect();
    let (early, late) = thirds(&values)?;
    let (early, late) = (mean(early.iter().copied())?, mean(late.iter().copied())?);
    (late < ENTROPY * early).then(|| Finding {
        code: "rollout.entropy_collapse",
        severity: Severity::Warning,
        title: "the student's entropy collapses".to_owned(),
        evidence: format!("{early:.3} nats per token at first, {late:.3} now"),
        cause: "the policy has become deterministic, so forks and rollouts no longer explore",
        advice: "lower optimizer.lr, raise rollout.temperature",
    })
}

/// The teacher has no opinion.
pub(super) fn uniform_teacher(patient: &Patient<'_>) -> Option<Finding> {
    let all = stats(patient);
    let values: Vec<f64> =
        recent(&all).iter().filter_map(|stats| stats.teacher_confidence).collect();
    let confidence = mean(values.iter().copied())?;
    (confidence < UNIFORM).then(|| Finding {
        code: "rollout.uniform_teacher",
        severity: Severity::Problem,
        title: "the teacher is close to uniform".to_owned(),
        evidence: format!("its favorite token has probability {confidence:.2} on average"),
        cause: "the teacher does not know this task or this prompt format, or another tokenizer was used",
        advice: "let the teacher play (`lens eval` with teacher.path as the model) before learning from it",
    })
}
