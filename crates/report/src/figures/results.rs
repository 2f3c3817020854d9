//! Tables 1 to 3 as a figure: final success per method and split.

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
    let panels: Vec<Panel> = splits
        .iter()
        .enumerate()
        .map(|(index, split)| {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for (place, group) in groups.iter().enumerate() {
                let points = band(runs, group, split);
                let ranged = |at: &crate::compare::BandPoint, shift: f64| Ranged {
                    x: place as f64 + shift,
                    y: at.mean,
                    low: at.low,
                    high: at.high,
                    count: at.tasks * at.seeds as u64,
                };
                before.extend(points.first().map(|at| ranged(at, -0.1)));
                after.extend(points.last().map(|at| ranged(at, 0.1)));
            }
            Panel {
                title: format!("({}) {split}", letter(index)),
                x: Axis {
                    categories: groups.iter().map(|group| short(&group.label)).collect(),
                    ..Axis::default()
                },
                y: Axis::within("success, %", 0.0, 100.0),
                right: None,
                marks: vec![
                    Mark::Intervals(Style::new("before", "#777777"), before),
                    Mark::Intervals(Style::new("after", color(0)), after),
                ],
            }
        })
        .collect();
    Figure {
        name: "results".to_owned(),
        title: "Success before and after training".to_owned(),
        caption: "First and last evaluation of each group. Lines: one standard deviation over seeds, or Wilson's 95 % interval where there is one seed.".to_owned(),
        columns: panels.len().clamp(1, 2),
        panels,
    }
}

/// A label that fits under its place.
fn short(label: &str) -> String {
    if label.chars().count() <= 14 {
        return label.to_owned();
    }
    label.chars().take(13).chain(['…']).collect()
}
