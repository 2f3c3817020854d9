//! Figure 2a: how much of its own weight the student gives to the teacher's token, by depth, as training goes on.

use std::collections::BTreeMap;

use lens_records::metrics::BatchLine;

use super::{benchmark, letter, of_run};
use crate::plot::{Axis, Figure, Mark, Panel, Style, color};
use crate::run::Run;

/// Depths with fewer disagreements than this are left out: their means jump.
const MIN_POSITIONS: u64 = 5;

pub(super) fn draw(runs: &[Run]) -> Figure {
    let panels: Vec<Panel> = runs
        .iter()
        .filter(|run| run.batches.iter().any(|batch| batch.support_by_depth.is_some()))
        .enumerate()
        .map(|(index, run)| panel(runs, run, index))
        .collect();
    Figure {
        name: "figure-2a-support".to_owned(),
        title: "Student support of the teacher's token by depth".to_owned(),
        caption: format!(
            "Mean soft support min(1, p_S(v_T) / p_S(v_S)) at content positions where the models prefer different tokens, pooled over the batches of each third of training; depths with fewer than {MIN_POSITIONS} such positions are left out."
        ),
        columns: panels.len().clamp(1, 2),
        panels,
    }
}

fn panel(runs: &[Run], run: &Run, index: usize) -> Panel {
    let third = run.batches.len().div_ceil(3).max(1);
    let marks = run.batches.chunks(third).enumerate().map(|(part, batches)| {
        let (first, last) = (batches[0].version, batches[batches.len() - 1].version);
        let name =
            if first == last { format!("step {first}") } else { format!("steps {first}–{last}") };
        let points = pooled(batches);
        Mark::Line(Style::new(name, color([5, 0, 7][part.min(2)])), points)
    });
    Panel {
        title: format!("({}) Support, {}{}", letter(index), benchmark(run), of_run(runs, run)),
        x: Axis::new("turn"),
        y: Axis::within("support of the teacher's token", 0.0, 1.0),
        right: None,
        marks: marks.collect(),
    }
}

/// Mean support per depth, weighted by positions. The paper counts turns from 1.
fn pooled(batches: &[BatchLine]) -> Vec<(f64, f64)> {
    let mut sums: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
    for depth in batches.iter().filter_map(|batch| batch.support_by_depth.as_ref()).flatten() {
        let sum = sums.entry(depth.turn).or_default();
        sum.0 += depth.support * depth.positions as f64;
        sum.1 += depth.positions;
    }
    let kept = sums.into_iter().filter(|(_, (_, positions))| *positions >= MIN_POSITIONS);
    kept.map(|(turn, (sum, positions))| (turn as f64 + 1.0, sum / positions as f64)).collect()
}
