//! Progress on standard error: a bar where it is a terminal, lines with totals and the time left where it is not.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use lens_config::Config;
use lens_engine::LearnReport;
use lens_train::Progress;
use lens_train::checkpoint::Damaged;
use lens_train::evaluate::Evaluation;
use lens_train::iteration::{Explored, Stage};

use crate::terminal::{error_columns, say};
use crate::wording::{counted, duration, rate};

/// Without a terminal, work that takes longer than this says where it is.
const QUIET: Duration = Duration::from_secs(30);
/// Below this many columns a bar is left out; its numbers stay.
const BAR_COLUMNS: usize = 72;

/// Work of a known length.
pub(crate) struct Tracker {
    what: String,
    bar: ProgressBar,
    /// Whether lines stand in for the bar.
    lines: bool,
    total: u64,
    position: u64,
    /// Where this process began, and when; what came before took no time here.
    begun: (u64, Instant),
    said: Instant,
}

impl Tracker {
    /// Tracks `total` things that are called `what`.
    pub(crate) fn new(total: u64, what: &str) -> Self {
        let lines = !std::io::stderr().is_terminal();
        let target =
            if lines { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        bar.set_prefix(what.to_owned());
        bar.set_style(style(0));
        if !lines {
            // The elapsed time moves even where nothing else does.
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        let now = Instant::now();
        Self { what: what.to_owned(), bar, lines, total, position: 0, begun: (0, now), said: now }
    }

    /// Starts at `position`, which an earlier process reached.
    pub(crate) fn start_at(&mut self, position: u64) {
        self.begun = (position, Instant::now());
        self.position = position;
        self.bar.set_style(style(position));
        self.bar.set_position(position);
        self.bar.reset_eta();
    }

    /// Moves to `position`.
    pub(crate) fn move_to(&mut self, position: u64) {
        self.position = position;
        self.bar.set_position(position);
    }

    /// Says what is going on right now.
    pub(crate) fn doing(&mut self, message: &str) {
        self.bar.set_message(message.to_owned());
        if self.lines && self.said.elapsed() >= QUIET {
            self.line(&self.status(message));
        }
    }

    /// A message with the position, the total and the time left.
    fn status(&self, message: &str) -> String {
        let (what, left) = (&self.what, self.left());
        format!("{what} {} of {}, {left} left: {message}", self.position, self.total)
    }

    /// The time left; "--" while it is not known.
    fn left(&self) -> String {
        let done = self.position.saturating_sub(self.begun.0);
        if done == 0 {
            return "--".to_owned();
        }
        let rest = self.total.saturating_sub(self.position) as f64;
        duration(self.begun.1.elapsed().as_secs_f64() / done as f64 * rest)
    }

    /// Without a terminal, says a message at every twentieth of the way.
    pub(crate) fn milestone(&mut self, message: &str) {
        let stride = (self.total / 20).max(1);
        if self.lines && (self.position.is_multiple_of(stride) || self.position == self.total) {
            self.line(&self.status(message));
        }
    }

    /// Prints a line that stays.
    pub(crate) fn line(&mut self, line: &str) {
        self.said = Instant::now();
        if self.lines {
            say(line);
        } else {
            self.bar.println(line);
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The bar's layout, cut to the terminal. The time left is known once the position has left `begun`.
fn style(begun: u64) -> ProgressStyle {
    let wide = error_columns().is_none_or(|columns| columns >= BAR_COLUMNS);
    let bar = if wide { "[{bar:16}] " } else { "" };
    let template =
        format!("{{prefix}} {bar}{{pos}}/{{len}} {{elapsed}} left {{left}} {{wide_msg}}");
    let left = move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let left = if state.pos() <= begun { None } else { Some(state.eta().as_secs_f64()) };
        let _ = text.write_str(&left.map_or_else(|| "--".to_owned(), duration));
    };
    match ProgressStyle::with_template(&template) {
        Ok(style) => style.progress_chars("=> ").with_key("left", left),
        Err(_) => ProgressStyle::default_bar(),
    }
}

/// How far episodes played side by side have come: every call is one more turn of all of them.
#[derive(Debug, Default)]
struct Turns {
    what: String,
    turn: usize,
}

impl Turns {
    fn next(&mut self, what: &str, ended: usize, episodes: usize) -> String {
        if self.what != what {
            *self = Self { what: what.to_owned(), turn: 0 };
        }
        self.turn += 1;
        format!("{what}: turn {}, {ended} of {episodes} ended", self.turn)
    }
}

/// Progress of playing tasks: `eval`, and everything else that only plays.
pub(crate) struct PlayingBar {
    tracker: Tracker,
    turns: Turns,
    tasks: usize,
}

impl PlayingBar {
    pub(crate) fn new(tasks: usize, what: &str) -> Self {
        Self { tracker: Tracker::new(tasks as u64, what), turns: Turns::default(), tasks }
    }

    /// One more turn was taken; `ended` tasks have ended.
    pub(crate) fn turn(&mut self, what: &str, ended: usize) {
        self.tracker.move_to(ended as u64);
        let message = self.turns.next(what, ended, self.tasks);
        self.tracker.doing(&message);
    }

    pub(crate) fn finish(&self) {
        self.tracker.finish();
    }
}

/// Advances the progress of supervised learning.
pub(crate) fn note_step(tracker: &mut Tracker, step: u64, loss: f64) {
    tracker.move_to(step);
    let message = format!("loss {loss:.4}");
    tracker.doing(&message);
    tracker.milestone(&message);
}

/// What a run shows while it goes on.
pub(crate) struct TrainingBar {
    tracker: Tracker,
    turns: Turns,
    /// Complete pairs and accepted forks.
    forks: (usize, usize),
    /// Whether steps are under way: the evaluation before the first one says nothing of how long a step takes.
    training: bool,
}

impl TrainingBar {
    pub(crate) fn new(config: &Config) -> Self {
        let tracker = Tracker::new(config.train.steps, &format!("{} step", config.method));
        Self { tracker, turns: Turns::default(), forks: (0, 0), training: false }
    }

    pub(crate) fn start_at(&mut self, step: u64) {
        self.tracker.start_at(step);
    }

    pub(crate) fn finish(&self) {
        self.tracker.finish();
    }
}

/// How an evaluation went, in one line.
fn evaluation_line(step: u64, evaluation: &Evaluation) -> String {
    let all = &evaluation.all;
    format!(
        "after {}: {} success {}, {:.1} rounds, {}",
        counted(step, "step"),
        evaluation.split,
        rate(all.success_rate, all.tasks as u64),
        all.rounds,
        counted(all.tasks as u64, "task")
    )
}

fn damage_line(checkpoint: &Damaged) -> String {
    format!(
        "warning: checkpoint {} is damaged ({}); using the one before it",
        checkpoint.path.display(),
        checkpoint.message
    )
}

impl Progress for TrainingBar {
    fn exploring(&mut self, batch: u64, stage: Stage) {
        if !std::mem::replace(&mut self.training, true) {
            self.tracker.start_at(self.tracker.position);
        }
        let message = match stage {
            Stage::Playing { ended, episodes } => {
                self.turns.next(&format!("batch {batch}"), ended, episodes)
            }
            Stage::Scoring => format!("batch {batch}: scoring"),
            Stage::Forking(0) => return,
            Stage::Forking(forks) => format!("batch {batch}: {}", counted(forks as u64, "fork")),
        };
        self.tracker.doing(&message);
    }

    fn explored(&mut self, explored: &Explored) {
        let record = &explored.record;
        self.forks.0 += record.complete_pairs();
        self.forks.1 += record.accepted();
        let mut message = format!("batch {} horizon {}", record.batch, record.horizon);
        if self.forks.0 > 0 {
            message.push_str(&format!(", {} of {} forks kept", self.forks.1, self.forks.0));
        }
        self.tracker.doing(&message);
    }

    fn learned(&mut self, step: u64, report: &LearnReport) {
        self.tracker.move_to(step);
        let message = format!("loss {:.4}, gradient norm {:.3}", report.loss, report.grad_norm);
        self.tracker.milestone(&message);
    }

    fn evaluating(&mut self, split: &str, done: usize, tasks: usize) {
        let message = self.turns.next(&format!("evaluating {split}"), done, tasks);
        self.tracker.doing(&message);
    }

    fn evaluated(&mut self, step: u64, evaluation: &Evaluation) {
        self.tracker.line(&evaluation_line(step, evaluation));
    }

    fn saved(&mut self, path: &Path) {
        self.tracker.doing(&format!("saved {}", path.display()));
    }

    fn damaged(&mut self, damaged: &[Damaged]) {
        for checkpoint in damaged {
            self.tracker.line(&damage_line(checkpoint));
        }
    }

    fn note(&mut self, text: &str) {
        self.tracker.line(&format!("note: {text}"));
    }
}

/// One bar for all the runs of a sweep.
#[derive(Clone)]
pub(crate) struct SweepBar(Arc<Mutex<Tracker>>);

impl SweepBar {
    /// A sweep of `runs` runs of `steps` steps each.
    pub(crate) fn new(runs: usize, steps: u64) -> Self {
        let total = runs as u64 * steps;
        Self(Arc::new(Mutex::new(Tracker::new(total, "sweep step"))))
    }

    /// The part of a run in it.
    pub(crate) fn run(&self, name: &str, seed: u64) -> SweepRun {
        SweepRun { all: self.clone(), name: format!("{name} seed {seed}"), step: 0 }
    }

    pub(crate) fn finish(&self) {
        self.with(|tracker| tracker.finish());
    }

    fn with(&self, act: impl FnOnce(&mut Tracker)) {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// One run among several.
pub(crate) struct SweepRun {
    all: SweepBar,
    name: String,
    /// Steps of this run that the bar knows of.
    step: u64,
}

impl SweepRun {
    /// Steps up to `step` are done, by this process or by an earlier one.
    pub(crate) fn reached(&mut self, step: u64) {
        let more = step.saturating_sub(self.step);
        self.step = step;
        self.all.with(|tracker| tracker.move_to(tracker.position + more));
    }

    /// The run is the `done`th of `total` to be complete.
    pub(crate) fn finished(&mut self, steps: u64, done: usize, total: usize) {
        self.reached(steps);
        self.line(&format!("complete ({done} of {total} runs)"));
    }

    fn line(&self, line: &str) {
        self.all.with(|tracker| tracker.line(&format!("{}: {line}", self.name)));
    }
}

impl Progress for SweepRun {
    fn learned(&mut self, step: u64, _report: &LearnReport) {
        self.reached(step);
        let message = format!("{} step {step}", self.name);
        self.all.with(|tracker| tracker.doing(&message));
    }

    fn evaluating(&mut self, split: &str, done: usize, tasks: usize) {
        let message = format!("{} evaluating {split}, {done} of {tasks} ended", self.name);
        self.all.with(|tracker| tracker.doing(&message));
    }

    fn evaluated(&mut self, step: u64, evaluation: &Evaluation) {
        self.line(&evaluation_line(step, evaluation));
    }

    fn damaged(&mut self, damaged: &[Damaged]) {
        for checkpoint in damaged {
            self.line(&damage_line(checkpoint));
        }
    }

    fn note(&mut self, text: &str) {
        self.line(&format!("note: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_unknown_until_something_is_done() {
        let mut tracker = Tracker::new(10, "lens step");
        assert_eq!(tracker.status("x"), "lens step 0 of 10, -- left: x");
        tracker.start_at(4);
        assert_eq!(tracker.left(), "--", "an earlier process did these");
        tracker.begun.1 -= Duration::from_secs(20);
        tracker.move_to(6);
        assert_eq!(tracker.status("x"), "lens step 6 of 10, 40 s left: x");
    }

    #[test]
    fn every_turn_shows_even_where_no_episode_ends() {
        let mut turns = Turns::default();
        assert_eq!(turns.next("batch 1", 0, 16), "batch 1: turn 1, 0 of 16 ended");
        assert_eq!(turns.next("batch 1", 0, 16), "batch 1: turn 2, 0 of 16 ended");
        assert_eq!(turns.next("batch 2", 3, 16), "batch 2: turn 1, 3 of 16 ended");
    }
}
