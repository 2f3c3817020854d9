//! Can the evaluations tell what is claimed?

use lens_opd::stats::bootstrap::{Interval, Paired};
use lens_records::metrics::EvalLine;

use super::{Finding, Patient, Severity};
use crate::stats::{difference_of_shares, paired};

/// Differences below one point are not claims.
const POINT: f64 = 0.01;

/// The first and the last evaluation of every split, pooled: the change of success and how sure it is.
fn change(patient: &Patient<'_>) -> Option<(Interval, u64, u64)> {
    let run = patient.run;
    let (mut pairs, mut first, mut last) = (Vec::new(), (0.0, 0), (0.0, 0));
    let mut step = 0;
    for split in run.splits() {
        let of_split = |eval: &&EvalLine| eval.split == split;
        let (a, b) = (run.evals.iter().find(of_split)?, run.evals.iter().rfind(of_split)?);
        if a.step == b.step {
            return None;
        }
        step = b.step;
        for (sum, eval) in [(&mut first, a), (&mut last, b)] {
            sum.0 += eval.all.success_rate / 100.0 * eval.all.tasks as f64;
            sum.1 += eval.all.tasks;
        }
        for (cluster, (a, b)) in (pairs.len() as u64..).zip(a.tasks.iter().zip(&b.tasks)) {
            let value = |solved: bool| f64::from(u8::from(solved));
            if a.task == b.task {
                pairs.push(Paired { cluster, base: value(a.success), treated: value(b.success) });
            }
        }
    }
    let rates =
        ((first.0 / first.1.max(1) as f64, first.1), (last.0 / last.1.max(1) as f64, last.1));
    let interval = paired(&pairs).or_else(|| difference_of_shares(rates.0, rates.1))?;
    Some((interval, first.1.min(last.1), step))
}

/// A change that the evaluation is too small to tell from chance.
pub(super) fn no_difference(patient: &Patient<'_>) -> Option<Finding> {
    let (interval, tasks, step) = change(patient)?;
    let unclear = interval.low <= 0.0 && interval.high >= 0.0 && interval.estimate.abs() > POINT;
    // The interval shrinks with the root of the tasks.
    let half = (interval.high - interval.low) / 2.0;
    let needed = tasks as f64 * (half / interval.estimate).powi(2);
    unclear.then(|| Finding {
        code: "evaluation.no_difference",
        severity: Severity::Note,
        title: "the evaluation is too small to tell the change from chance".to_owned(),
        evidence: format!(
            "{:+.1} points by step {step}, 95 % interval {:+.1} to {:+.1}, {tasks} tasks; about {needed:.0} would tell",
            100.0 * interval.estimate,
            100.0 * interval.low,
            100.0 * interval.high
        ),
        cause: "few tasks, or a small change",
        advice: "evaluate all tasks (eval.tasks_during_training=0) and several seeds before drawing a conclusion",
    })
}

/// Success has fallen.
pub(super) fn falling(patient: &Patient<'_>) -> Option<Finding> {
    let (interval, tasks, step) = change(patient)?;
    (interval.high < 0.0).then(|| Finding {
        code: "evaluation.falling",
        severity: Severity::Problem,
        title: "success has fallen since the start".to_owned(),
        evidence: format!(
            "{:+.1} points by step {step} ({:+.1} to {:+.1}, {tasks} tasks)",
            100.0 * interval.estimate,
            100.0 * interval.low,
            100.0 * interval.high
        ),
        cause: "the updates hurt more than they teach",
        advice: "lower optimizer.lr, check that the teacher plays better than the student, look at the other findings",
    })
}
