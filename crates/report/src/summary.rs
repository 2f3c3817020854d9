//! Everything a run's page shows: curves, shares and the latest results, ready to draw.

use std::collections::{BTreeMap, BTreeSet};

use lens_opd::stats::bootstrap::Interval;
use lens_opd::stats::moving_average;
use lens_records::metrics::{BatchLine, RolloutStats};
use serde::Serialize;

use crate::run::Run;
use crate::stats::{mean, wilson};

/// Batches of a moving average; the paper's.
pub const WINDOW: usize = 7;

/// A curve: one value per place of its axis, gaps as `None`.
pub type Curve = Vec<Option<f64>>;

/// What the page of a run shows.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Name, method, models and state.
    pub head: Head,
    /// Evaluations per split.
    pub evals: Vec<SplitCurve>,
    /// Curves by explorer batch.
    pub batches: BatchCurves,
    /// Curves by optimizer step.
    pub steps: StepCurves,
    /// Seconds per stage and its share of the whole.
    pub stages: Vec<Stage>,
    /// Forks per reason the gate stayed closed, most frequent first.
    pub reasons: Vec<(String, u64)>,
    /// Turns without a row, by reason.
    pub dropped_turns: Vec<(String, u64)>,
    /// Gains of all complete pairs.
    pub gains: Vec<f64>,
    /// Lines and files that could not be read.
    pub problems: Vec<String>,
}

/// What a run is.
#[derive(Debug, Clone, Serialize)]
pub struct Head {
    /// The configuration's name.
    pub name: String,
    /// Name and seed.
    pub label: String,
    /// The seed.
    pub seed: Option<u64>,
    /// The method.
    pub method: String,
    /// The benchmark.
    pub benchmark: String,
    /// The student's short name.
    pub student: String,
    /// `running`, `finished`, `interrupted`, `killed` or `empty`.
    pub state: &'static str,
    /// Optimizer steps done.
    pub step: u64,
    /// Optimizer steps asked for.
    pub planned: Option<u64>,
    /// Explorer batches done.
    pub batch: u64,
    /// Episodes played.
    pub episodes: u64,
    /// Forks run, complete pairs and accepted ones.
    pub forks: (u64, u64, u64),
    /// When the first and the last stage ended, seconds since 1970.
    pub time: Option<(f64, f64)>,
}

/// A split's evaluations.
#[derive(Debug, Clone, Serialize)]
pub struct SplitCurve {
    /// The split.
    pub split: String,
    /// One entry per evaluation.
    pub points: Vec<EvalPoint>,
}

/// One evaluation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EvalPoint {
    /// Optimizer steps done.
    pub step: u64,
    /// Tasks played.
    pub tasks: u64,
    /// Success in percent, with Wilson's 95 % interval.
    pub success: Interval,
    /// Mean score of 100.
    pub score: Option<f64>,
    /// Mean rounds.
    pub rounds: f64,
}

/// Curves by explorer batch.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BatchCurves {
    /// The batches' numbers.
    pub batch: Vec<u64>,
    /// Optimizer steps the snapshot had seen.
    pub version: Vec<u64>,
    /// The horizon K.
    pub horizon: Curve,
    /// The clock's pace v, and its moving average.
    pub pace: Curve,
    /// The moving average of the pace.
    pub pace_smooth: Curve,
    /// Median competence C at the frontier.
    pub competence: Curve,
    /// Share of episodes per way of ending.
    pub terminations: BTreeMap<String, Curve>,
    /// Share of episodes that solved their task.
    pub success: Curve,
    /// Mean value of unguided continuations.
    pub base_value: Curve,
    /// Mean value of guided continuations.
    pub guided_value: Curve,
    /// Mean gain of complete pairs.
    pub gain: Curve,
    /// Share of forks whose gate opened.
    pub accepted: Curve,
    /// Share of forks whose two branches were valued.
    pub complete: Curve,
    /// Share of tokens that guidance wrote.
    pub guided_share: Curve,
    /// Mean internalization gap.
    pub gap: Curve,
    /// Share of content tokens that are disagreement tokens, in focused turns.
    pub target_tokens: Curve,
    /// Share of weight on them.
    pub target_mass: Curve,
    /// Mean KL.
    pub kl: Curve,
    /// Mean negative log-probability under the student.
    pub student_nll: Curve,
    /// Mean negative log-probability under the teacher.
    pub teacher_nll: Curve,
    /// Share of turns with an action.
    pub parsed: Curve,
    /// Mean tokens per response.
    pub response_tokens: Curve,
    /// Mean turns per episode.
    pub rounds: Curve,
    /// Rows dropped for age in this batch's time.
    pub stale: Curve,
    /// Rows waiting.
    pub waiting: Curve,
}

/// Curves by optimizer step.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StepCurves {
    /// The steps.
    pub step: Vec<u64>,
    /// The loss.
    pub loss: Curve,
    /// Its focused part.
    pub focus_loss: Curve,
    /// Its internalization part.
    pub internalization_loss: Curve,
    /// The gradient's norm.
    pub grad_norm: Curve,
    /// Share of trained tokens in internalization rows.
    pub guided_tokens: Curve,
    /// Steps that were skipped.
    pub skipped: u64,
}

/// A stage's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// `explore`, `learn` or `evaluate`.
    pub stage: String,
    /// Seconds in all.
    pub seconds: f64,
    /// Share of all stages' time.
    pub share: f64,
}

impl Summary {
    /// The summary of a run as it is now.
    pub fn new(run: &Run) -> Self {
        let forks = run.batches.iter().flat_map(|batch| &batch.forks);
        Self {
            head: head(run),
            evals: evals(run),
            batches: batch_curves(run),
            steps: step_curves(run),
            stages: stages(run),
            reasons: sorted(run.batches.iter().map(|batch| &batch.reasons)),
            dropped_turns: sorted(run.batches.iter().map(|batch| &batch.dropped_turns)),
            gains: forks.filter_map(|fork| fork.verdict.gain).collect(),
            problems: run.problems.clone(),
        }
    }
}

/// What a run is.
pub fn head(run: &Run) -> Head {
    let sum = |value: fn(&BatchLine) -> u64| run.batches.iter().map(value).sum();
    let times = run.timings.iter().filter_map(|line| line.at);
    let (first, last) = (times.clone().reduce(f64::min), times.reduce(f64::max));
    Head {
        name: run.name(),
        label: run.label(),
        seed: run.seed(),
        method: run.word("method").to_owned(),
        benchmark: run.word("task.benchmark").to_owned(),
        student: run.student().to_owned(),
        state: run.state.word(),
        step: run.last_step(),
        planned: run.planned_steps(),
        batch: run.batches.last().map_or(0, |batch| batch.batch),
        episodes: sum(|batch| batch.terminations.values().sum()),
        forks: (
            sum(|batch| batch.forks.len() as u64),
            sum(|batch| batch.complete_pairs),
            sum(|batch| batch.accepted),
        ),
        time: first.zip(last),
    }
}

/// A run's evaluations per split.
pub fn evals(run: &Run) -> Vec<SplitCurve> {
    let curve = |split: &str| SplitCurve {
        split: split.to_owned(),
        points: run
            .evals
            .iter()
            .filter(|eval| eval.split == split)
            .filter_map(|eval| {
                let interval = wilson(eval.all.success_rate / 100.0, eval.all.tasks)?;
                Some(EvalPoint {
                    step: eval.step,
                    tasks: eval.all.tasks,
                    success: percent(interval),
                    score: eval.all.score,
                    rounds: eval.all.rounds,
                })
            })
            .collect(),
    };
    run.splits().into_iter().map(curve).collect()
}

/// An interval of shares in percent.
pub fn percent(interval: Interval) -> Interval {
    let Interval { estimate, low, high } = interval;
    Interval { estimate: 100.0 * estimate, low: 100.0 * low, high: 100.0 * high }
}

fn batch_curves(run: &Run) -> BatchCurves {
    let curve = |value: &dyn Fn(&BatchLine) -> Option<f64>| -> Curve {
        run.batches.iter().map(|batch| value(batch).filter(|x| x.is_finite())).collect()
    };
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let episodes = |batch: &BatchLine| batch.terminations.values().sum::<u64>();
    let forks = |batch: &BatchLine| batch.forks.len() as u64;
    let rollout = |value: fn(&RolloutStats) -> Option<f64>| {
        curve(&|batch| batch.rollout.as_ref().and_then(value))
    };
    let fork_mean = |value: fn(&lens_records::metrics::ForkSummary) -> Option<f64>| {
        curve(&|batch| mean(batch.forks.iter().filter_map(value)))
    };
    let focus = |part: fn(&lens_records::metrics::FocusMass) -> (f64, f64)| {
        curve(&|batch| {
            let masses = batch.forks.iter().filter_map(|fork| fork.focus.as_ref().map(part));
            let (some, all) = masses.fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
            (all > 0.0).then(|| some / all)
        })
    };
    let ends: BTreeSet<&String> =
        run.batches.iter().flat_map(|batch| batch.terminations.keys()).collect();
    let terminations = ends.into_iter().map(|end| {
        let of = |batch: &BatchLine| {
            share(batch.terminations.get(end).copied().unwrap_or(0), episodes(batch))
        };
        (end.clone(), curve(&of))
    });
    let pace = curve(&|batch| batch.tick.and_then(|tick| tick.pace));
    let mut before = 0;
    let stale = run.batches.iter().map(|batch| {
        let now = batch.stale_rows.saturating_sub(before);
        before = batch.stale_rows;
        Some(now as f64)
    });
    BatchCurves {
        batch: run.batches.iter().map(|batch| batch.batch).collect(),
        version: run.batches.iter().map(|batch| batch.version).collect(),
        horizon: curve(&|batch| Some(batch.horizon as f64)),
        pace_smooth: moving_average(&pace, WINDOW),
        pace,
        competence: curve(&|batch| batch.tick.and_then(|tick| tick.competence)),
        terminations: terminations.collect(),
        success: curve(&|batch| share(batch.successes, episodes(batch))),
        base_value: fork_mean(|fork| fork.verdict.gain.and(fork.verdict.base_value)),
        guided_value: fork_mean(|fork| fork.verdict.gain.and(fork.verdict.guided_value)),
        gain: fork_mean(|fork| fork.verdict.gain),
        accepted: curve(&|batch| share(batch.accepted, forks(batch))),
        complete: curve(&|batch| share(batch.complete_pairs, forks(batch))),
        guided_share: curve(&|batch| batch.guided_share),
        gap: fork_mean(|fork| fork.internalization_gap),
        target_tokens: focus(|mass| (mass.target_tokens as f64, mass.content_tokens as f64)),
        target_mass: focus(|mass| (mass.target_mass, mass.content_mass)),
        kl: rollout(|stats| stats.kl),
        student_nll: rollout(|stats| stats.student_nll),
        teacher_nll: rollout(|stats| stats.teacher_nll),
        parsed: rollout(|stats| {
            (stats.turns > 0).then(|| stats.parsed_turns as f64 / stats.turns as f64)
        }),
        response_tokens: rollout(|stats| {
            (stats.turns > 0).then(|| stats.response_tokens as f64 / stats.turns as f64)
        }),
        rounds: curve(&|batch| share(batch.rollout?.turns, episodes(batch))),
        stale: stale.collect(),
        waiting: curve(&|batch| Some(batch.waiting_rows as f64)),
    }
}

fn step_curves(run: &Run) -> StepCurves {
    let steps: Vec<_> = run.steps.iter().filter(|step| !step.skipped).collect();
    let guided = steps.iter().map(|step| {
        let all = step.gi_tokens + step.opd_tokens;
        (all > 0).then(|| step.gi_tokens as f64 / all as f64)
    });
    StepCurves {
        step: steps.iter().map(|step| step.step).collect(),
        loss: steps.iter().map(|step| step.loss).collect(),
        focus_loss: steps.iter().map(|step| step.focus_loss).collect(),
        internalization_loss: steps.iter().map(|step| step.internalization_loss).collect(),
        grad_norm: steps.iter().map(|step| step.grad_norm).collect(),
        guided_tokens: guided.collect(),
        skipped: (run.steps.len() - steps.len()) as u64,
    }
}

fn stages(run: &Run) -> Vec<Stage> {
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for line in run.timings.iter().filter(|line| line.seconds.is_finite()) {
        *seconds.entry(&line.stage).or_default() += line.seconds;
    }
    let all: f64 = seconds.values().sum();
    let mut stages: Vec<Stage> = seconds
        .into_iter()
        .map(|(stage, seconds)| Stage {
            stage: stage.to_owned(),
            seconds,
            share: if all > 0.0 { seconds / all } else { 0.0 },
        })
        .collect();
    stages.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    stages
}

fn sorted<'a>(counts: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (key, count) in counts.flatten() {
        *sums.entry(key.clone()).or_default() += count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sums
}
