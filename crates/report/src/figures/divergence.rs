//! Figure 2b: does local divergence predict future gain?

use lens_opd::stats::rank_correlation;

use super::{benchmark, letter, of_run};
use crate::plot::{Axis, Figure, Mark, Panel, Style};
use crate::run::Run;

pub(super) fn draw(runs: &[Run]) -> Figure {
    let panels: Vec<Panel> = runs
        .iter()
        .map(|run| (run, pairs(run)))
        .filter(|(_, pairs)| !pairs.is_empty())
        .enumerate()
        .map(|(index, (run, pairs))| panel(runs, run, &pairs, index))
        .collect();
    Figure {
        name: "figure-2b-divergence".to_owned(),
        title: "Local divergence against future gain".to_owned(),
        caption: "Every complete fork: the mean KL of the fork turn against the gain V_H − V_B of the guided continuation. ρ is Spearman's rank correlation.".to_owned(),
        columns: panels.len().clamp(1, 2),
        panels,
    }
}

fn pairs(run: &Run) -> Vec<(f64, f64)> {
    let forks = run.batches.iter().flat_map(|batch| &batch.forks);
    forks.filter_map(|fork| Some((fork.request.divergence, fork.verdict.gain?))).collect()
}

fn panel(runs: &[Run], run: &Run, pairs: &[(f64, f64)], index: usize) -> Panel {
    let (divergences, gains): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let rho = rank_correlation(&divergences, &gains).ok().flatten();
    let below = gains.iter().filter(|&&gain| gain <= 0.0).count();
    let split = |positive: bool| -> Vec<(f64, f64)> {
        pairs.iter().copied().filter(|(_, gain)| (*gain > 0.0) == positive).collect()
    };
    Panel {
        title: format!("({}) KL and gain, {}{}", letter(index), benchmark(run), of_run(runs, run)),
        x: Axis::new("local divergence D_t, nats"),
        y: Axis::new("future gain, nats per token"),
        right: None,
        marks: vec![
            Mark::Horizontal(0.0, String::new()),
            Mark::Dots(Style::new("gain ≤ 0", "#777777"), split(false)),
            Mark::Dots(Style::new("gain > 0", "#009e73"), split(true)),
            Mark::Note(vec![
                format!(
                    "n = {}, ρ = {}",
                    gains.len(),
                    rho.map_or("–".to_owned(), |rho| format!("{rho:.2}"))
                ),
                format!("{:.0} % not positive", 100.0 * below as f64 / gains.len() as f64),
            ]),
        ],
    }
}
