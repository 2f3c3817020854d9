//! Figure 2c: which disagreement tokens of beneficial turns one update moves.

use serde::Deserialize;

use super::letter;
use crate::plot::{Axis, Figure, Mark, Panel, Ranged, Style};
use crate::run::Run;

/// What `lens diagnose --json` writes, as far as the figure needs it.
#[derive(Deserialize)]
struct Diagnosis {
    students: Vec<Student>,
}

#[derive(Deserialize)]
struct Student {
    student: String,
    findings: Findings,
}

#[derive(Deserialize)]
struct Findings {
    responses: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    high_support: bool,
    high_confidence: bool,
    tokens: u64,
    response: Option<lens_opd::stats::bootstrap::Interval>,
}

/// The largest file that is read.
const LIMIT: u64 = 64 << 20;

pub(super) fn draw(runs: &[Run]) -> Figure {
    let students = runs.iter().filter_map(read).flat_map(|diagnosis| diagnosis.students);
    let panels: Vec<Panel> = students.enumerate().map(panel).collect();
    Figure {
        name: "figure-2c-response".to_owned(),
        title: "Response of tokens to one update".to_owned(),
        caption: "Rise of the student's log-probability of the teacher's token after one OPD update, at disagreement tokens of turns with positive future gain, split at the medians of support and confidence. Bars: 95 % bootstrap intervals, forks resampled.".to_owned(),
        columns: panels.len().clamp(1, 2),
        panels,
    }
}

fn read(run: &Run) -> Option<Diagnosis> {
    let path = run.folder.path().join("diagnose.json");
    let small = std::fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() < LIMIT);
    small.then(|| serde_json::from_slice(&std::fs::read(path).ok()?).ok()).flatten()
}

fn panel((index, student): (usize, Student)) -> Panel {
    let side = |high_support: bool| {
        let groups = student.findings.responses.iter();
        let points =
            groups.filter(|group| group.high_support == high_support).filter_map(|group| {
                let interval = group.response?;
                let shift = if high_support { 0.08 } else { -0.08 };
                Some(Ranged {
                    x: f64::from(u8::from(group.high_confidence)) + shift,
                    y: interval.estimate,
                    low: interval.low,
                    high: interval.high,
                    count: group.tokens,
                })
            });
        points.collect::<Vec<_>>()
    };
    let name = student.student.rsplit('/').next().unwrap_or_default();
    Panel {
        title: format!("({}) Response, {name}", letter(index)),
        x: Axis {
            categories: vec!["low confidence".to_owned(), "high confidence".to_owned()],
            ..Axis::new("the teacher's confidence")
        },
        y: Axis::new("rise of log p_S(v_T), nats"),
        right: None,
        marks: vec![
            Mark::Horizontal(0.0, String::new()),
            Mark::Intervals(Style::new("low support", "#d55e00"), side(false)),
            Mark::Intervals(Style::new("high support", "#0072b2"), side(true)),
        ],
    }
}
