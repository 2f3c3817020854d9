//! Is the gate choosing anything?

use lens_records::episodes::ForkText;
use lens_records::metrics::ForkSummary;

use super::{Finding, MIN_FORKS, Patient, RECENT, Severity};
use crate::stats::mean_and_error;

/// Below this share of accepted pairs the gate counts as closed.
const CLOSED: f64 = 0.05;
/// Complete pairs should be more than this share of forks.
const COMPLETE: f64 = 0.5;
/// Above this share of forks with the same action in both branches, hints change nothing.
const IDENTICAL: f64 = 0.7;
/// Above this share of hints that name the plan of a failed episode without contradicting it.
const APPROVING: f64 = 0.6;

fn recent<'a>(patient: &Patient<'a>) -> Vec<&'a ForkSummary> {
    let batches = &patient.run.batches;
    let skip = batches.len().saturating_sub(RECENT);
    batches[skip..].iter().flat_map(|batch| &batch.forks).collect()
}

/// Hardly any complete pair opens the gate.
pub(super) fn closed(patient: &Patient<'_>) -> Option<Finding> {
    let forks = recent(patient);
    let complete = forks.iter().filter(|fork| fork.verdict.gain.is_some()).count();
    let accepted = forks.iter().filter(|fork| fork.verdict.accepted).count();
    let share = accepted as f64 / complete.max(1) as f64;
    (complete >= MIN_FORKS && share < CLOSED).then(|| Finding {
        code: "gate.closed",
        severity: Severity::Problem,
        title: "the gate is almost always closed".to_owned(),
        evidence: format!("{accepted} of the last {complete} complete pairs accepted"),
        cause: "hints make the student's future worse in the teacher's eyes, so nothing is internalized or focused",
        advice: "read a few forks with `lens view`; try a teacher that gives better hints, validate.hint_prompt or a longer validate.continuation_turns",
    })
}

/// Gains are indistinguishable from zero and the gate opens half the time.
pub(super) fn coin_flip(patient: &Patient<'_>) -> Option<Finding> {
    let gains: Vec<f64> = recent(patient).iter().filter_map(|fork| fork.verdict.gain).collect();
    let (mean, error) = mean_and_error(&gains)?;
    let open = gains.iter().filter(|&&gain| gain > 0.0).count() as f64 / gains.len() as f64;
    let flip = gains.len() >= MIN_FORKS && mean.abs() < 2.0 * error && (0.4..0.6).contains(&open);
    flip.then(|| Finding {
        code: "gate.coin_flip",
        severity: Severity::Warning,
        title: "the gate is a coin flip".to_owned(),
        evidence: format!(
            "mean gain {mean:+.3} ± {error:.3} over {} pairs, {:.0} % positive",
            gains.len(),
            100.0 * open
        ),
        cause: "the two futures differ by chance more than by the hint",
        advice: "lengthen validate.continuation_turns, lower rollout.temperature, or check that hints name another action",
    })
}

/// Most forks give no pair of values.
pub(super) fn incomplete(patient: &Patient<'_>) -> Option<Finding> {
    let forks = recent(patient);
    let complete = forks.iter().filter(|fork| fork.verdict.gain.is_some()).count();
    if forks.len() < MIN_FORKS || complete as f64 > COMPLETE * forks.len() as f64 {
        return None;
    }
    let mut reasons: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for reason in forks.iter().filter(|fork| fork.verdict.gain.is_none()) {
        *reasons.entry(reason.reason.as_deref().unwrap_or("unknown")).or_default() += 1;
    }
    let (reason, count) = reasons.into_iter().max_by_key(|(_, count)| *count)?;
    Some(Finding {
        code: "gate.incomplete",
        severity: Severity::Warning,
        title: "most forks give no complete pair".to_owned(),
        evidence: format!(
            "{complete} of {} complete; most often `{reason}` ({count})",
            forks.len()
        ),
        cause: "branches end, time out or fail before they can be valued",
        advice: "look at the reason: raise rollout limits for timeouts, validate.terminal=outcome where branches end by solving the task",
    })
}

fn forks<'a>(patient: &'a Patient<'_>) -> impl Iterator<Item = &'a ForkText> {
    patient.episodes.iter().flat_map(|episode| &episode.forks)
}

/// Both branches act alike at the fork turn.
pub(super) fn identical_branches(patient: &Patient<'_>) -> Option<Finding> {
    let pairs: Vec<(&str, &str)> = forks(patient)
        .filter_map(|fork| {
            Some((fork.base.first()?.action.as_deref()?, fork.guided.first()?.action.as_deref()?))
        })
        .collect();
    let same = pairs.iter().filter(|(base, guided)| base == guided).count();
    let share = same as f64 / pairs.len().max(1) as f64;
    (pairs.len() >= MIN_FORKS && share > IDENTICAL).then(|| Finding {
        code: "gate.identical_branches",
        severity: Severity::Warning,
        title: "hints rarely change the action".to_owned(),
        evidence: format!("{same} of {} forks take the same action with and without the hint", pairs.len()),
        cause: "the student already acts as the hint says, or does not follow hints",
        advice: "check that the student can follow a hint (`lens lab examine`), or fork where the models disagree more",
    })
}

/// Hints name the student's own plan although the episode fails.
pub(super) fn approving_hints(patient: &Patient<'_>) -> Option<Finding> {
    let (mut hints, mut approving) = (0_usize, 0_usize);
    for episode in patient.episodes.iter().filter(|episode| !episode.success) {
        for fork in &episode.forks {
            let turn = episode.turns.iter().find(|turn| turn.turn == Some(fork.turn));
            let action = turn.and_then(|turn| turn.action.as_deref());
            if let (Some(action), Some(hint)) = (action, fork.hint.as_deref()) {
                hints += 1;
                approving += usize::from(approves(hint, action));
            }
        }
    }
    let share = approving as f64 / hints.max(1) as f64;
    (hints >= MIN_FORKS && share > APPROVING).then(|| Finding {
        code: "gate.approving_hints",
        severity: Severity::Warning,
        title: "hints approve of plans that fail".to_owned(),
        evidence: format!("{approving} of {hints} hints in failed episodes repeat the student's action"),
        cause: "the teacher agrees with the proposed action instead of judging it",
        advice: "try another validate.hint_prompt or a stronger teacher; turns that the teacher approves of cannot be improved by a fork",
    })
}

/// Whether a hint names the action and nowhere says not to take it.
fn approves(hint: &str, action: &str) -> bool {
    let (hint, action) = (hint.to_lowercase(), action.to_lowercase());
    let against = ["not ", "instead of ", "rather than ", "avoid ", "don't "];
    hint.contains(&action) && !against.iter().any(|word| hint.contains(&format!("{word}{action}")))
}

#[cfg(test)]
mod tests {
    use super::approves;

    #[test]
    fn a_hint_that_contradicts_the_plan_does_not_approve_of_it() {
        assert!(approves("Go to desk 1 is right.", "go to desk 1"));
        assert!(!approves("go to bed 1 is right, not go to desk 1.", "go to desk 1"));
        assert!(!approves("Look around first.", "go to desk 1"));
    }
}
