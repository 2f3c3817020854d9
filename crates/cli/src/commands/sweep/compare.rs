//! Two methods of a sweep, seed by seed and task by task.

use std::collections::BTreeMap;

use lens_opd::stats::bootstrap::Resampling;
use lens_opd::stats::crossed::{Cell, Comparison, crossed_difference};
use lens_train::evaluate::Evaluation;

use super::table::BySeed;

/// The differences in success, `method - baseline`, of every task that both played with the same seed.
pub(super) fn cells_of(
    baseline: &BySeed,
    method: &BySeed,
    counts: impl Fn(&Evaluation) -> bool,
) -> Vec<Cell> {
    let outcomes = |evaluations: &[Evaluation]| -> BTreeMap<String, bool> {
        let counted = evaluations.iter().filter(|evaluation| counts(evaluation));
        counted
            .flat_map(|one| {
                let split = &one.split;
                one.tasks.iter().map(move |task| (format!("{split}/{}", task.task), task.success))
            })
            .collect()
    };
    let mut cells = Vec::new();
    for (&seed, evaluations) in method {
        let Some(base) = baseline.get(&seed).map(|base| outcomes(base)) else { continue };
        for (task, solved) in outcomes(evaluations) {
            if let Some(&before) = base.get(&task) {
                let value = |solved: bool| f64::from(u8::from(solved));
                cells.push(Cell { seed, task, difference: value(solved) - value(before) });
            }
        }
    }
    cells
}

/// What the cells say; `None` without one.
pub(super) fn compared(cells: &[Cell]) -> Option<Comparison> {
    let resampling = Resampling { resamples: 4_000, ..Resampling::default() };
    crossed_difference(cells, &resampling).ok()
}

/// The difference in points with its interval: "+3.2 [-1.0, +7.4]".
pub(super) fn difference_text(comparison: &Comparison) -> String {
    let at = &comparison.difference;
    let scaled = [at.estimate, at.low, at.high].map(|value| 100.0 * value);
    format!("{:+.1} [{:+.1}, {:+.1}]", scaled[0], scaled[1], scaled[2])
}

/// The probability of being better: "97 %".
pub(super) fn probability_text(comparison: &Comparison) -> String {
    format!("{:.0} %", 100.0 * comparison.better)
}
