//! An audit as figures: evaluator quality, proposal utility, learned utility.

use lens_opd::stats::bootstrap::Interval;

use super::{AuditReport, GateQuality};
use crate::plot::{Axis, Figure, Mark, Panel, Ranged, Style, color};

/// The figures an audit can draw; one without data is empty.
pub fn figures(report: &AuditReport) -> Vec<Figure> {
    vec![evaluators(report), proposals(report), learned(report)]
}

fn ranged(place: f64, interval: Option<&Interval>, count: usize, scale: f64) -> Option<Ranged> {
    let at = interval?;
    Some(Ranged {
        x: place,
        y: scale * at.estimate,
        low: scale * at.low,
        high: scale * at.high,
        count: count as u64,
    })
}

/// How each evaluator ranks forks and what it accepts, with the first gate and with the last one without a margin.
fn evaluators(report: &AuditReport) -> Figure {
    let mut gates: Vec<String> = Vec::new();
    for quality in report.gates.iter().filter(|quality| quality.variant.margin == 0.0) {
        if !gates.contains(&quality.variant.gate()) {
            gates.push(quality.variant.gate());
        }
    }
    let shown: Vec<&String> = gates.first().into_iter().chain(gates.last()).collect();
    let of_gate = |gate: &str| -> Vec<&GateQuality> {
        report.gates.iter().filter(|quality| quality.variant.gate() == gate).collect()
    };
    let categories: Vec<String> = shown
        .first()
        .map(|gate| of_gate(gate).iter().map(|quality| quality.variant.value()).collect())
        .unwrap_or_default();
    let marks = |value: fn(&GateQuality) -> Option<Interval>, scale: f64| -> Vec<Mark> {
        let series = shown.iter().enumerate().map(|(index, gate)| {
            let points = of_gate(gate).into_iter().enumerate().filter_map(|(place, quality)| {
                let place = place as f64 + 0.2 * index as f64 - 0.1;
                ranged(place, value(quality).as_ref(), quality.forks, scale)
            });
            Mark::Intervals(Style::new(gate.as_str(), color(index)), points.collect())
        });
        series.collect()
    };
    let panel = |title: &str, label: &str, marks: Vec<Mark>| Panel {
        title: title.to_owned(),
        x: Axis { categories: categories.clone(), ..Axis::default() },
        y: Axis::new(label),
        right: None,
        marks,
    };
    let zero = |mut marks: Vec<Mark>| {
        marks.push(Mark::Horizontal(0.0, String::new()));
        marks
    };
    Figure {
        name: "audit-evaluators".to_owned(),
        title: "What gates accept against what is true".to_owned(),
        caption: format!(
            "{} forks, {} continuations to the end from each branch. Lines: 95 % bootstrap intervals, whole episodes resampled.",
            report.forks, report.settings.continuations
        ),
        columns: 1,
        panels: vec![
            panel(
                "(a) Rank correlation of gain and change in success",
                "Spearman's correlation",
                zero(marks(|quality| quality.correlation, 1.0)),
            ),
            panel(
                "(b) Change in success at accepted forks",
                "points",
                zero(marks(|quality| quality.accepted_utility, 100.0)),
            ),
            panel("(c) Precision", "%", marks(|quality| quality.precision, 100.0)),
        ],
    }
}

fn proposals(report: &AuditReport) -> Figure {
    let points = report.proposals.iter().enumerate().filter_map(|(place, rule)| {
        ranged(place as f64, rule.utility.as_ref(), report.forks, 100.0)
    });
    Figure {
        name: "audit-proposals".to_owned(),
        title: "Change in success at the turns each rule proposes".to_owned(),
        caption: "Episodes audited turn by turn. The best turn is chosen on one half of the continuations and measured on the other. Lines: 95 % bootstrap intervals over episodes.".to_owned(),
        columns: 1,
        panels: vec![Panel {
            title: "Proposal rules".to_owned(),
            x: Axis {
                categories: report.proposals.iter().map(|rule| rule.rule.clone()).collect(),
                ..Axis::default()
            },
            y: Axis::new("points"),
            right: None,
            marks: vec![
                Mark::Intervals(Style::new("change by the hint", color(0)), points.collect()),
                Mark::Horizontal(0.0, String::new()),
            ],
        }],
    }
}

fn learned(report: &AuditReport) -> Figure {
    let series = [
        ("hint, before", -0.15, color(0)),
        ("gained without it", 0.0, color(1)),
        ("hint, after", 0.15, color(2)),
    ];
    let marks = series.iter().enumerate().map(|(index, &(name, shift, color))| {
        let points = report.learned.iter().enumerate().filter_map(|(place, group)| {
            let value = [&group.utility, &group.gained, &group.left][index];
            ranged(place as f64 + shift, value.as_ref(), group.forks, 100.0)
        });
        Mark::Intervals(Style::new(name, color), points.collect())
    });
    Figure {
        name: "audit-learned".to_owned(),
        title: "What hints are worth and what training gained in the same states".to_owned(),
        caption: "Forks by what the configured gate says of them. Lines: 95 % bootstrap intervals, whole episodes resampled.".to_owned(),
        columns: 1,
        panels: vec![Panel {
            title: "Before and after training".to_owned(),
            x: Axis {
                categories: report.learned.iter().map(|group| group.group.clone()).collect(),
                ..Axis::default()
            },
            y: Axis::new("points"),
            right: None,
            marks: marks.chain([Mark::Horizontal(0.0, String::new())]).collect(),
        }],
    }
}
