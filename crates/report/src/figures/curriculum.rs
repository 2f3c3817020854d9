//! Figures 3, 5 and 7: the clock's pace, and how episodes end as the horizon grows.

use std::collections::BTreeMap;

use super::{benchmark, letter, of_run};
use crate::plot::{Axis, Figure, Mark, Panel, Style, color};
use crate::run::Run;
use crate::summary::{Summary, WINDOW};

/// Ways of ending, bottom to top, with their names.
const ENDS: [(&str, &str, usize); 5] = [
    ("completed", "completed", 2),
    ("turn_limit", "turn limit", 1),
    ("curriculum_cutoff", "curriculum cutoff", 5),
    ("prompt_too_long", "prompt too long", 3),
    ("failed", "failed", 6),
];

pub(super) fn draw(runs: &[Run]) -> Figure {
    let number = match runs.first().map(|run| run.word("task.benchmark")) {
        Some("webshop") => "5",
        Some("scienceworld") => "7",
        _ => "3",
    };
    let mut panels = Vec::new();
    for run in runs.iter().filter(|run| !run.batches.is_empty()) {
        let summary = Summary::new(run);
        panels.push(pace(runs, run, &summary, panels.len()));
        panels.push(terminations(runs, run, &summary, panels.len()));
    }
    Figure {
        name: format!("figure-{number}-curriculum"),
        title: "Gap-adaptive trajectory curriculum".to_owned(),
        caption: format!(
            "Left: recorded clock pace (dots) and its centered {WINDOW}-batch moving average, relative to the fixed clock (v = 1); the shaded region is the completed curriculum, where no pace is imputed. Right: shares of episodes by the way they ended, unsmoothed. Steps are those of the student that played the batch."
        ),
        columns: 2,
        panels,
    }
}

fn pace(runs: &[Run], run: &Run, summary: &Summary, index: usize) -> Panel {
    let batches = &summary.batches;
    let points = |curve: &[Option<f64>]| -> Vec<(f64, f64)> {
        let values = batches.version.iter().zip(curve);
        values.filter_map(|(&step, value)| Some((step as f64, (*value)?))).collect()
    };
    let dots = points(&batches.pace);
    let last = batches.version.last().copied().unwrap_or(0) as f64;
    let mut marks = Vec::new();
    if let Some(done) = full_horizon(run) {
        marks.push(Mark::Shade(done, last, "full horizon".to_owned()));
    }
    if dots.is_empty() {
        marks.push(Mark::Note(vec!["this method has no adaptive clock".to_owned()]));
    } else {
        marks.push(Mark::Horizontal(1.0, "fixed clock".to_owned()));
        marks.push(Mark::Dots(Style::new("recorded", "#56b4e9"), dots));
        let smooth = Style::new(format!("{WINDOW}-batch mean"), "#0072b2");
        marks.push(Mark::Line(smooth, points(&batches.pace_smooth)));
    }
    Panel {
        title: format!("({}) Clock pace, {}{}", letter(index), benchmark(run), of_run(runs, run)),
        x: Axis::within("optimizer steps of the student", 0.0, last.max(1.0)),
        y: Axis::new("pace v"),
        right: None,
        marks,
    }
}

/// The step of the first batch played with the full horizon.
fn full_horizon(run: &Run) -> Option<f64> {
    let limit = run.number("locate.max_horizon").filter(|&depth| depth > 0);
    let limit = limit.or(run.number("task.turn_limit"))?;
    let full = run.batches.iter().find(|batch| batch.tick.is_some() && batch.horizon >= limit)?;
    Some(full.version as f64)
}

fn terminations(runs: &[Run], run: &Run, summary: &Summary, index: usize) -> Panel {
    let batches = &summary.batches;
    let known = |end: &str| ENDS.iter().any(|(code, ..)| *code == end);
    // A way of ending this build does not know is drawn on top under its own name.
    let others = batches.terminations.keys().filter(|end| !known(end));
    let mut ends: Vec<(&str, String, usize)> =
        ENDS.iter().map(|&(code, name, color)| (code, name.to_owned(), color)).collect();
    ends.extend(others.map(|end| (end.as_str(), end.replace('_', " "), 7)));
    let mut floor: BTreeMap<usize, f64> = BTreeMap::new();
    let mut marks = Vec::new();
    for (code, name, shade) in ends {
        let Some(curve) = batches.terminations.get(code) else { continue };
        let mut area = Vec::new();
        for (place, (step, share)) in batches.version.iter().zip(curve).enumerate() {
            let low = floor.get(&place).copied().unwrap_or(0.0);
            let high = low + share.unwrap_or(0.0);
            floor.insert(place, high);
            area.push((*step as f64, low, high));
        }
        marks.push(Mark::Area(Style::new(name, color(shade)), area));
    }
    if let Some(done) = full_horizon(run) {
        marks.push(Mark::Vertical(done, "full horizon".to_owned()));
    }
    let last = batches.version.last().copied().unwrap_or(0) as f64;
    Panel {
        title: format!("({}) Termination modes{}", letter(index), of_run(runs, run)),
        x: Axis::within("optimizer steps of the student", 0.0, last.max(1.0)),
        y: Axis::within("share of episodes", 0.0, 1.0),
        right: None,
        marks,
    }
}
