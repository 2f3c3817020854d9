//! Do the clock, the buffer and the optimizer do their work?

use super::{Finding, MIN_FORKS, Patient, RECENT, Severity, thirds};
use crate::stats::mean;

/// A gradient this many times the median is a spike.
const SPIKE: f64 = 20.0;
/// Competence above this leaves a gap that is mostly noise.
const SATURATED: f64 = 0.98;
/// Nats below which the hinted and the hint-free student are the same.
const NO_GAP: f64 = 0.002;
/// Share of rows that may be lost to age.
const STALE: f64 = 0.25;

/// Steps were skipped, or gradients left their range.
pub(super) fn diverging(patient: &Patient<'_>) -> Option<Finding> {
    let steps = &patient.run.steps;
    let skipped = steps.iter().filter(|step| step.skipped).count();
    let norms: Vec<f64> = steps.iter().filter_map(|step| step.grad_norm).collect();
    let median = lens_opd::locate::support::median(&norms).unwrap_or(0.0);
    let (_, late) = thirds(&norms).unwrap_or((&[], &[]));
    let spikes = late.iter().filter(|&&norm| norm > SPIKE * median).count();
    (skipped > 0 || spikes > 1).then(|| Finding {
        code: "learning.diverging",
        severity: if skipped > 0 { Severity::Problem } else { Severity::Warning },
        title: "optimizer steps left their range".to_owned(),
        evidence: format!(
            "{skipped} of {} steps skipped, {spikes} late gradients above {SPIKE} times the median {median:.3}",
            steps.len()
        ),
        cause: "the learning rate is too high, or a batch holds extreme targets",
        advice: "lower optimizer.lr or optimizer.grad_clip; resume from a checkpoint before the first spike",
    })
}

/// The student agrees with the teacher almost everywhere, so the clock measures noise.
pub(super) fn saturated_clock(patient: &Patient<'_>) -> Option<Finding> {
    let batches = &patient.run.batches;
    let ticks = batches.iter().rev().filter_map(|batch| batch.tick?.competence).take(RECENT);
    let values: Vec<f64> = ticks.collect();
    let competence = mean(values.iter().copied())?;
    (values.len() >= 3 && competence > SATURATED).then(|| Finding {
        code: "learning.saturated_clock",
        severity: Severity::Note,
        title: "competence is saturated: the clock's pace is noise".to_owned(),
        evidence: format!("mean competence {competence:.4} over {} batches", values.len()),
        cause: "both models prefer the same tokens at the frontier, so ratios of gaps mean little",
        advice: "raise locate.epsilon, or use locate.clock=fixed-f2b for this pair of models",
    })
}

/// Hinted and hint-free distributions are the same.
pub(super) fn nothing_to_internalize(patient: &Patient<'_>) -> Option<Finding> {
    let batches = patient.run.batches.iter().rev().take(RECENT);
    let gaps: Vec<f64> = batches
        .flat_map(|batch| batch.forks.iter().filter_map(|fork| fork.internalization_gap))
        .collect();
    let gap = mean(gaps.iter().copied())?;
    (gaps.len() >= MIN_FORKS && gap < NO_GAP).then(|| Finding {
        code: "learning.nothing_to_internalize",
        severity: Severity::Note,
        title: "there is nothing left to internalize".to_owned(),
        evidence: format!("mean internalization gap {gap:.5} nats over {} forks", gaps.len()),
        cause: "the student acts with the hint as it does without it",
        advice: "if success has not risen, check that the student reads hints at all; otherwise guidance has done its work",
    })
}

/// Rows grow too old before they are trained on.
pub(super) fn stale_rows(patient: &Patient<'_>) -> Option<Finding> {
    let run = patient.run;
    let stale = run.batches.last()?.stale_rows as f64;
    let trained = run.steps.len() as f64 * run.number("train.batch_size")? as f64;
    let share = stale / (stale + trained).max(1.0);
    (run.batches.len() >= 4 && share > STALE).then(|| Finding {
        code: "learning.stale_rows",
        severity: Severity::Warning,
        title: "many rows are dropped for age".to_owned(),
        evidence: format!(
            "{stale:.0} rows dropped, {trained:.0} trained ({:.0} % lost)",
            100.0 * share
        ),
        cause: "batches make more rows than the steps between them use",
        advice: "raise train.batch_size or train.max_staleness, or lower rollout.batch_size",
    })
}

/// At its pace the horizon does not reach the depth at which tasks are solved.
pub(super) fn horizon_out_of_reach(patient: &Patient<'_>) -> Option<Finding> {
    let run = patient.run;
    let last = run.batches.last()?;
    last.tick?;
    let (done, planned) = (run.last_step(), run.planned_steps()?);
    let limit = run.number("task.turn_limit").unwrap_or(u64::MAX);
    if done < 4 || last.horizon < 1 || last.horizon >= limit {
        return None;
    }
    let expected = last.horizon as f64 * planned as f64 / done as f64;
    let solved: Vec<f64> = run
        .evals
        .iter()
        .flat_map(|eval| &eval.tasks)
        .filter(|task| task.success)
        .map(|task| task.turns as f64)
        .collect();
    let needed = lens_opd::locate::support::median(&solved)?;
    (expected < needed).then(|| Finding {
        code: "learning.horizon_out_of_reach",
        severity: Severity::Warning,
        title: "the horizon will not reach the tasks' depth".to_owned(),
        evidence: format!(
            "horizon {} after {done} of {planned} steps, about {expected:.0} at the end; solved tasks take {needed:.0} turns",
            last.horizon
        ),
        cause: "the clock grows too slowly for this budget, so the ends of episodes are never trained",
        advice: "lower locate.residence, or raise train.steps",
    })
}
