//! Figure 4cd: how much guidance is trained on and what it leaves to learn; where the weight inside turns goes.

use super::{benchmark, letter, of_run};
use crate::plot::{Axis, Figure, Mark, Panel, Style};
use crate::run::Run;
use crate::summary::{Summary, WINDOW};
use lens_opd::stats::moving_average;

pub(super) fn draw(runs: &[Run]) -> Figure {
    let mut panels = Vec::new();
    for run in runs {
        let summary = Summary::new(run);
        if summary.batches.target_mass.iter().all(Option::is_none) {
            continue;
        }
        panels.push(internalization(runs, run, &summary, panels.len()));
        panels.push(concentration(runs, run, &summary, panels.len()));
    }
    Figure {
        name: "figure-4cd-allocation".to_owned(),
        title: "Guided experience and token-level allocation".to_owned(),
        caption: format!(
            "Left: share of trained tokens in internalization rows (after rows too old were dropped), and the mean KL between the hinted and the hint-free student. Right: in focused turns, the share of content tokens where the models prefer different tokens, and the share of the normalized weight on them. Lines are {WINDOW}-batch moving averages."
        ),
        columns: 2,
        panels,
    }
}

fn smooth(places: &[u64], curve: &[Option<f64>]) -> Vec<(f64, f64)> {
    let values = moving_average(curve, WINDOW);
    places.iter().zip(values).filter_map(|(&step, value)| Some((step as f64, value?))).collect()
}

fn internalization(runs: &[Run], run: &Run, summary: &Summary, index: usize) -> Panel {
    let (steps, batches) = (&summary.steps, &summary.batches);
    let share = Style::new("guided share", "#e69f00");
    let gap = Style::new("internalization gap (right)", "#0072b2").right();
    Panel {
        title: format!(
            "({}) Internalization, {}{}",
            letter(index),
            benchmark(run),
            of_run(runs, run)
        ),
        x: Axis::new("optimizer steps"),
        y: Axis::new("share of trained tokens"),
        right: Some(Axis::new("gap, nats")),
        marks: vec![
            Mark::Line(share, smooth(&steps.step, &steps.guided_tokens)),
            Mark::Line(gap.dashed(), smooth(&batches.version, &batches.gap)),
        ],
    }
}

fn concentration(runs: &[Run], run: &Run, summary: &Summary, index: usize) -> Panel {
    let batches = &summary.batches;
    let turns: usize = run
        .batches
        .iter()
        .map(|batch| batch.forks.iter().filter(|fork| fork.focus.is_some()).count())
        .sum();
    Panel {
        title: format!("({}) Target tokens{}", letter(index), of_run(runs, run)),
        x: Axis::new("optimizer steps of the student"),
        y: Axis::within("share", 0.0, 1.0),
        right: None,
        marks: vec![
            Mark::Line(
                Style::new("of weight", "#d55e00"),
                smooth(&batches.version, &batches.target_mass),
            ),
            Mark::Line(
                Style::new("of tokens", "#777777").dashed(),
                smooth(&batches.version, &batches.target_tokens),
            ),
            Mark::Note(vec![format!("{turns} focused turns")]),
        ],
    }
}
