//! Success over training, one panel per split, one band per group of seeds.

use super::letter;
use crate::compare::{band, groups};
use crate::plot::{Axis, Figure, Mark, Panel, Ranged, Style, color};
use crate::run::Run;

pub(super) fn draw(runs: &[Run]) -> Figure {
    let groups = groups(runs);
    let mut splits: Vec<&str> = Vec::new();
    for split in runs.iter().flat_map(Run::splits) {
        if !splits.contains(&split) {
            splits.push(split);
        }
    }
    let (mut most_seeds, mut tasks) = (0, 0);
    let mut panels = Vec::new();
    for (index, split) in splits.iter().enumerate() {
        let mut marks = Vec::new();
        for (place, group) in groups.iter().enumerate() {
            let points = band(runs, group, split);
            most_seeds = points.iter().map(|point| point.seeds).max().unwrap_or(0).max(most_seeds);
            tasks = points.iter().map(|point| point.tasks).max().unwrap_or(0).max(tasks);
            let style = Style::new(group.label.clone(), color(place));
            let ranged = points.iter().map(|point| Ranged {
                x: point.step as f64,
                y: point.mean,
                low: point.low,
                high: point.high,
                count: point.tasks * point.seeds as u64,
            });
            let hidden = Style { name: format!("_{}", style.name), ..style.clone() };
            marks.push(Mark::Band(hidden, ranged.collect()));
            let line = points.iter().map(|point| (point.step as f64, point.mean)).collect();
            marks.push(Mark::Line(style, line));
        }
        panels.push(Panel {
            title: format!("({}) {split}", letter(index)),
            x: Axis::new("optimizer steps"),
            y: Axis::within("success, %", 0.0, 100.0),
            right: None,
            marks,
        });
    }
    Figure {
        name: "learning-curves".to_owned(),
        title: "Success over training".to_owned(),
        caption: format!(
            "Bands: one standard deviation over seeds, or Wilson's 95 % interval where there is one seed. Up to {most_seeds} seeds, {tasks} tasks per evaluation."
        ),
        columns: panels.len().clamp(1, 2),
        panels,
    }
}
