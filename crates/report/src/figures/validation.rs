//! Figures 4ab, 6 and 8: future scores of both branches, and the gains of all complete pairs.

use super::{benchmark, letter, of_run};
use crate::plot::{Axis, Figure, Mark, Panel, Style};
use crate::run::Run;
use crate::stats::{mean, mean_and_error};
use crate::summary::WINDOW;

/// Bars of the histogram.
const BINS: usize = 30;

/// A complete pair: student version, V_B, V_H.
struct Pair {
    version: u64,
    base: f64,
    guided: f64,
    gain: f64,
}

pub(super) fn draw(runs: &[Run]) -> Figure {
    let number = match runs.first().map(|run| run.word("task.benchmark")) {
        Some("webshop") => "6",
        Some("scienceworld") => "8",
        _ => "4ab",
    };
    let mut panels = Vec::new();
    for run in runs {
        let batches = pairs(run);
        if batches.iter().all(Vec::is_empty) {
            continue;
        }
        panels.push(scores(runs, run, &batches, panels.len()));
        panels.push(gains(runs, run, &batches, panels.len()));
    }
    Figure {
        name: format!("figure-{number}-validation"),
        title: "Future validation".to_owned(),
        caption: format!(
            "Left: mean value of guided and unguided continuations over the same complete pairs, pooled over {WINDOW} batches. Right: gains V_H − V_B, unsmoothed, as shares of the complete pairs. Incomplete pairs are left out, not counted as zero."
        ),
        columns: 2,
        panels,
    }
}

fn pairs(run: &Run) -> Vec<Vec<Pair>> {
    let of_batch = |batch: &lens_records::metrics::BatchLine| {
        let complete = batch.forks.iter().filter_map(|fork| {
            let verdict = &fork.verdict;
            let (base, guided, gain) = (verdict.base_value?, verdict.guided_value?, verdict.gain?);
            Some(Pair { version: batch.version, base, guided, gain })
        });
        complete.collect()
    };
    run.batches.iter().map(of_batch).collect()
}

fn scores(runs: &[Run], run: &Run, batches: &[Vec<Pair>], index: usize) -> Panel {
    let pooled = |value: fn(&Pair) -> f64| -> Vec<(f64, f64)> {
        let reach = WINDOW / 2;
        let at = |center: usize| {
            let version = batches[center].first()?.version;
            let window =
                &batches[center.saturating_sub(reach)..batches.len().min(center + reach + 1)];
            Some((version as f64, mean(window.iter().flatten().map(value))?))
        };
        (0..batches.len()).filter_map(at).collect()
    };
    let count: usize = batches.iter().map(Vec::len).sum();
    let what = match run.word("method") {
        "futurebridge" => "share of preferred tokens",
        _ => "log-likelihood, nats per token",
    };
    Panel {
        title: format!(
            "({}) Future scores, {}{}",
            letter(index),
            benchmark(run),
            of_run(runs, run)
        ),
        x: Axis::new("optimizer steps of the student"),
        y: Axis::new(what),
        right: None,
        marks: vec![
            Mark::Line(Style::new("guided", "#009e73"), pooled(|pair| pair.guided)),
            Mark::Line(Style::new("unguided", "#777777").dashed(), pooled(|pair| pair.base)),
            Mark::Note(vec![format!("{count} complete pairs")]),
        ],
    }
}

fn gains(runs: &[Run], run: &Run, batches: &[Vec<Pair>], index: usize) -> Panel {
    let gains: Vec<f64> = batches.iter().flatten().map(|pair| pair.gain).collect();
    let widest = gains.iter().map(|gain| gain.abs()).fold(0.0, f64::max).max(1e-6);
    let width = 2.0 * widest / BINS as f64;
    let mut counts = [0_usize; BINS];
    for gain in &gains {
        // The middle edge is 0, which belongs to the closed side as in the gate.
        let place = ((gain + widest) / width).ceil() as isize - 1;
        counts[place.clamp(0, BINS as isize - 1) as usize] += 1;
    }
    let bar = |bin: usize| {
        let from = -widest + bin as f64 * width;
        (from, from + width, counts[bin] as f64 / gains.len() as f64)
    };
    let half = BINS / 2;
    let positive = gains.iter().filter(|&&gain| gain > 0.0).count();
    let (mean, error) = mean_and_error(&gains).unwrap_or((0.0, f64::NAN));
    Panel {
        title: format!("({}) Turn-level gains{}", letter(index), of_run(runs, run)),
        x: Axis::within("gain V_H − V_B", -widest, widest),
        y: Axis::new("share of complete pairs"),
        right: None,
        marks: vec![
            Mark::Bars(Style::new("closed", "#777777"), (0..half).map(bar).collect()),
            Mark::Bars(Style::new("open", "#009e73"), (half..BINS).map(bar).collect()),
            Mark::Vertical(0.0, String::new()),
            Mark::Note(vec![
                format!("n = {}", gains.len()),
                format!("mean {mean:+.3} ± {error:.3}"),
                format!("{:.0} % positive", 100.0 * positive as f64 / gains.len() as f64),
            ]),
        ],
    }
}
