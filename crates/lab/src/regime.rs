//! Whether the method can be judged with a student and its teacher: what a short run shows, beside what it should show.
//!
//! The aims are those of a pair of real models. Where a pair misses them, the mechanisms of the method have no room to
//! act: a gain that is noise cannot be filtered, a hint that changes nothing cannot be internalized.

use std::collections::HashMap;

use lens_records::ReadProblem;
use lens_records::metrics::{BatchLine, ForkSummary};
use lens_report::Run;
use lens_report::stats::{mean, mean_and_error, wilson};
use serde::Serialize;

use crate::critique::CritiqueReport;

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What is measured.
    pub quantity: &'static str,
    /// What was measured, to be read.
    pub measured: String,
    /// The numbers behind it.
    pub values: Vec<f64>,
    /// What it should be.
    pub aim: &'static str,
    /// Whether it is; `None` where nothing could be measured.
    pub reached: Option<bool>,
}

impl Row {
    fn new(
        quantity: &'static str,
        aim: &'static str,
        values: Option<Vec<f64>>,
        measured: impl FnOnce(&[f64]) -> String,
        reached: impl FnOnce(&[f64]) -> bool,
    ) -> Self {
        match values.filter(|values| values.iter().all(|value| value.is_finite())) {
            Some(values) => Self {
                quantity,
                measured: measured(&values),
                reached: Some(reached(&values)),
                values,
                aim,
            },
            None => Self {
                quantity,
                measured: "not measured".to_owned(),
                values: Vec::new(),
                aim,
                reached: None,
            },
        }
    }
}

/// Games that were played and solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// Games.
    pub games: u64,
    /// Those that were solved.
    pub solved: u64,
}

/// How well a student may play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudentSize {
    /// The paper's 1.7B student.
    Small,
    /// The paper's 4B student.
    Large,
}

/// The least share of games a teacher should solve.
const TEACHER_SUCCESS: f64 = 0.65;

/// The rows about how well the models play and what the teacher's hints are worth.
pub fn model_rows(
    size: StudentSize,
    student: Played,
    teacher: Played,
    critiques: CritiqueReport,
) -> Vec<Row> {
    let share = |played: Played| {
        let interval = wilson(played.solved as f64 / played.games.max(1) as f64, played.games)?;
        Some(vec![interval.estimate, interval.low, interval.high, played.games as f64])
    };
    let percent = |values: &[f64]| {
        let [share, low, high] = [values[0], values[1], values[2]].map(|value| 100.0 * value);
        format!("{share:.1} % [{low:.1}, {high:.1}] of {} games", values[3])
    };
    let (aim, range) = match size {
        StudentSize::Small => ("5 to 15 %", 0.05..=0.15),
        StudentSize::Large => ("30 to 40 %", 0.3..=0.4),
    };
    let plans = critiques.plans.max(1) as f64;
    let hints = vec![critiques.named as f64 / plans, critiques.approved as f64 / plans];
    vec![
        Row::new("student's success", aim, share(student), percent, |values| {
            range.contains(&values[0])
        }),
        Row::new("teacher's success", "65 % or more", share(teacher), percent, |values| {
            values[0] >= TEACHER_SUCCESS
        }),
        Row::new(
            "hints that name the right step of a wrong plan / approve of it",
            "above 70 % / under 8 %",
            (critiques.plans > 0).then_some(hints),
            |values| {
                format!(
                    "{:.1} % / {:.1} % of {}",
                    100.0 * values[0],
                    100.0 * values[1],
                    critiques.plans
                )
            },
            |values| values[0] > 0.7 && values[1] < 0.08,
        ),
    ]
}

/// The rows about a run of the method, from its records.
pub fn run_rows(run: &Run) -> Result<Vec<Row>, ReadProblem> {
    let forks: Vec<&ForkSummary> = run.batches.iter().flat_map(|batch| &batch.forks).collect();
    let gains: Vec<f64> = forks.iter().filter_map(|fork| fork.verdict.gain).collect();
    let same = same_branches(run)?;
    Ok(vec![
        gain_row(&gains),
        positive_row(&gains),
        noise_row(&same.gains),
        gap_row(&run.batches),
        unchanged_row(&same),
        focus_row(&forks),
        competence_row(&run.batches),
        horizon_row(run),
        tokens_row(&run.batches),
    ])
}

fn gain_row(gains: &[f64]) -> Row {
    let values =
        mean_and_error(gains).map(|(mean, error)| vec![mean, mean / error, gains.len() as f64]);
    Row::new(
        "mean future gain of complete pairs",
        "positive, t > 3",
        values,
        |values| format!("{:+.3} (t = {:.1}, {} pairs)", values[0], values[1], values[2]),
        |values| values[1] > 3.0,
    )
}

fn positive_row(gains: &[f64]) -> Row {
    let values = mean(gains.iter().map(|gain| f64::from(*gain > 0.0))).map(|share| vec![share]);
    Row::new(
        "forks with positive gain",
        "55 to 75 %",
        values,
        |values| format!("{:.0} %", 100.0 * values[0]),
        |values| (0.55..=0.75).contains(&values[0]),
    )
}

fn noise_row(gains: &[f64]) -> Row {
    let squares = mean(gains.iter().map(|gain| gain * gain));
    Row::new(
        "deviation of the gain where both branches wrote the same response",
        "0",
        squares.map(|square| vec![square.sqrt(), gains.len() as f64]),
        |values| format!("{:.2} ({} forks)", values[0], values[1]),
        |values| values[0] < 1e-6,
    )
}

/// Share of the batches at the start and at the end of a run over which the gap is averaged.
const ENDS: usize = 5;

fn gap_row(batches: &[BatchLine]) -> Row {
    let gap = |batches: &[BatchLine]| {
        mean(
            batches
                .iter()
                .flat_map(|batch| batch.forks.iter().filter_map(|fork| fork.internalization_gap)),
        )
    };
    let part = batches.len().div_ceil(ENDS);
    let ends = gap(&batches[..part]).zip(gap(&batches[batches.len() - part..]));
    Row::new(
        "internalization gap, first and last fifth of the batches",
        "starts at 0.3 or more, at least halves",
        ends.map(|(first, last)| vec![first, last]),
        |values| format!("{:.2} -> {:.2}", values[0], values[1]),
        |values| values[0] >= 0.3 && values[1] <= values[0] / 2.0,
    )
}

/// What branches and original turns have in common.
#[derive(Default)]
struct Same {
    /// Gains of complete pairs whose branches wrote the same response at the fork.
    gains: Vec<f64>,
    accepted: u64,
    /// Accepted forks whose guided action is the original one.
    unchanged: u64,
}

fn same_branches(run: &Run) -> Result<Same, ReadProblem> {
    let mut same = Same::default();
    for batch in &run.batches {
        let forks: HashMap<(u64, u64), &ForkSummary> = batch
            .forks
            .iter()
            .map(|fork| ((fork.request.episode, fork.request.turn), fork))
            .collect();
        for episode in run.folder.texts(batch.batch)? {
            let episode = episode?;
            for text in &episode.forks {
                let Some(fork) = forks.get(&(episode.episode, text.turn)) else { continue };
                let (Some(base), Some(guided)) = (text.base.first(), text.guided.first()) else {
                    continue;
                };
                if base.response == guided.response {
                    same.gains.extend(fork.verdict.gain);
                }
                if fork.verdict.accepted {
                    let original = episode.turns.iter().find(|turn| turn.turn == Some(text.turn));
                    same.accepted += 1;
                    same.unchanged +=
                        u64::from(original.is_some_and(|turn| turn.action == guided.action));
                }
            }
        }
    }
    Ok(same)
}

fn unchanged_row(same: &Same) -> Row {
    let values = (same.accepted > 0).then(|| vec![same.unchanged as f64, same.accepted as f64]);
    Row::new(
        "accepted forks whose guided action is the original one",
        "at most a quarter",
        values,
        |values| format!("{} of {}", values[0], values[1]),
        |values| 4.0 * values[0] <= values[1],
    )
}

fn focus_row(forks: &[&ForkSummary]) -> Row {
    let masses: Vec<_> = forks.iter().filter_map(|fork| fork.focus).collect();
    let sum = |value: fn(&lens_records::metrics::FocusMass) -> f64| -> f64 {
        masses.iter().map(value).sum()
    };
    let values = (!masses.is_empty()).then(|| {
        vec![
            sum(|mass| mass.target_tokens as f64) / sum(|mass| mass.content_tokens as f64),
            sum(|mass| mass.target_mass) / sum(|mass| mass.content_mass),
            sum(|mass| f64::from(mass.target_tokens == 0)) / masses.len() as f64,
        ]
    });
    Row::new(
        "target tokens: share of tokens / of mass in validated turns",
        "15 to 35 % / at least double",
        values,
        |values| {
            let [tokens, mass, none] = [values[0], values[1], values[2]].map(|value| 100.0 * value);
            format!("{tokens:.0} % / {mass:.0} %; {none:.0} % of validated turns have none")
        },
        |values| (0.15..=0.35).contains(&values[0]) && values[1] >= 2.0 * values[0],
    )
}

fn competence_row(batches: &[BatchLine]) -> Row {
    let mut ticks: Vec<f64> = batches.iter().filter_map(|batch| batch.tick?.competence).collect();
    ticks.sort_by(f64::total_cmp);
    let values = (!ticks.is_empty()).then(|| {
        let full = ticks.iter().filter(|&&tick| tick >= 1.0).count();
        vec![ticks[0], ticks[ticks.len() - 1], full as f64, ticks.len() as f64]
    });
    Row::new(
        "frontier competence",
        "0.6 to 0.97, at 1.0 in under 5 %",
        values,
        |values| {
            let [low, high, full, ticks] = [values[0], values[1], values[2], values[3]];
            format!("{low:.2} to {high:.2}, at 1.0 in {full} of {ticks} ticks")
        },
        |values| values[0] >= 0.6 && values[2] < 0.05 * values[3],
    )
}

fn horizon_row(run: &Run) -> Row {
    let steps = run.planned_steps().unwrap_or_else(|| run.last_step());
    // A limit of 0 means the turn limit.
    let setting = |key: &str| {
        let value = run.setting(key).and_then(toml::Value::as_integer)?;
        u64::try_from(value).ok().filter(|&value| value > 0)
    };
    let deepest = setting("locate.max_horizon").or_else(|| setting("task.turn_limit"));
    let last = run.batches.iter().map(|batch| batch.horizon).max();
    let reached = deepest.and_then(|deepest| {
        run.batches.iter().find(|batch| batch.horizon >= deepest).map(|batch| batch.version)
    });
    let values = last.zip(deepest).map(|(last, deepest)| {
        let share = reached.map_or(f64::MAX, |step| step as f64 / steps.max(1) as f64);
        vec![last as f64, deepest as f64, share]
    });
    Row::new(
        "full horizon reached",
        "before 70 % of the steps",
        values,
        |values| match reached {
            Some(step) => format!("at step {step} of {steps}"),
            None => format!("{} of {} at the end of {steps} steps", values[0], values[1]),
        },
        |values| values[2] < 0.7,
    )
}

fn tokens_row(batches: &[BatchLine]) -> Row {
    let stats = || batches.iter().filter_map(|batch| batch.rollout);
    let (tokens, turns) = stats()
        .fold((0, 0), |(tokens, turns), next| (tokens + next.scored_tokens, turns + next.turns));
    Row::new(
        "content tokens of a response",
        "25 or more",
        (turns > 0).then(|| vec![tokens as f64 / turns as f64]),
        |values| format!("{:.1}", values[0]),
        |values| values[0] >= 25.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_counts_only_if_it_stands_out_from_its_error() {
        let clear: Vec<f64> = (0..100).map(|n| 0.1 + 0.1 * f64::from(n % 3 - 1)).collect();
        assert_eq!(gain_row(&clear).reached, Some(true));
        let noise: Vec<f64> = (0..100).map(|n| 0.01 + f64::from(n % 3 - 1)).collect();
        assert_eq!(gain_row(&noise).reached, Some(false));
        assert_eq!(gain_row(&[]).reached, None);
    }

    #[test]
    fn identical_branches_must_have_no_gain() {
        assert_eq!(noise_row(&[0.0, 0.0]).reached, Some(true));
        let row = noise_row(&[0.3, -0.3]);
        assert_eq!((row.reached, row.measured.as_str()), (Some(false), "0.30 (2 forks)"));
    }

    #[test]
    fn a_student_can_be_too_good_and_a_teacher_too_bad() {
        let played = |solved| Played { games: 100, solved };
        let critiques = CritiqueReport { plans: 50, named: 40, approved: 2 };
        let reached = |size, student, teacher| -> Vec<Option<bool>> {
            let rows = model_rows(size, played(student), played(teacher), critiques);
            rows.iter().map(|row| row.reached).collect()
        };
        assert_eq!(reached(StudentSize::Small, 10, 70), [Some(true); 3]);
        assert_eq!(reached(StudentSize::Small, 30, 60), [Some(false), Some(false), Some(true)]);
        assert_eq!(reached(StudentSize::Large, 30, 70), [Some(true); 3]);
    }
}
