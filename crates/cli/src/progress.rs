//! Progress on the terminal: bars where there is one, a line now and then where there is not.

use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lens_config::Config;
use lens_engine::LearnReport;
use lens_train::Progress;
use lens_train::checkpoint::Damaged;
use lens_train::evaluate::Evaluation;
use lens_train::iteration::Explored;

/// A bar over `length` things, hidden where standard error is not a terminal.
pub(crate) fn bar(length: u64, what: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let template =
        "{prefix:12} [{bar:30}] {pos}/{len} {elapsed_precise} (left {eta_precise}) {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what.to_owned());
    bar
}

/// Moves a bar of supervised learning on; where it is hidden, every twentieth of the way is a line.
pub(crate) fn note_step(bar: &ProgressBar, what: &str, step: u64, steps: u64, loss: f64) {
    bar.set_position(step);
    bar.set_message(format!("loss {loss:.4}"));
    if bar.is_hidden() && (step.is_multiple_of((steps / 20).max(1)) || step == steps) {
        say(&format!("{what}: step {step} of {steps}, loss {loss:.4}"));
    }
}

#[expect(clippy::print_stderr, reason = "progress goes to standard error where there is no bar")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// A hint that was validated, for showing people what the method does.
#[derive(Debug, Clone)]
pub(crate) struct HintExample {
    pub(crate) task: String,
    pub(crate) planned: String,
    pub(crate) hint: String,
    pub(crate) guided: String,
    pub(crate) gain: f64,
    pub(crate) accepted: bool,
}

/// What a run shows while it goes on, and what is left to tell at its end.
pub(crate) struct TrainingBars {
    bar: ProgressBar,
    lines: bool,
    /// Success rate by (step, split).
    pub(crate) evaluations: Vec<(u64, String, f64)>,
    /// Horizon by explorer batch.
    pub(crate) horizons: Vec<usize>,
    /// Forks asked for, complete pairs, accepted hints.
    pub(crate) forks: (usize, usize, usize),
    /// A few hints that were kept and a few that were not.
    pub(crate) examples: Vec<HintExample>,
}

/// Hints of either kind that are kept to be shown.
const EXAMPLES: usize = 2;

impl TrainingBars {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            bar: bar(config.train.steps, &config.method.to_string()),
            lines: !std::io::stderr().is_terminal(),
            evaluations: Vec::new(),
            horizons: Vec::new(),
            forks: (0, 0, 0),
            examples: Vec::new(),
        }
    }

    pub(crate) fn resumed_at(&self, step: u64) {
        self.bar.set_position(step);
        self.bar.reset_eta();
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, line: &str) {
        if self.lines {
            say(line);
        } else {
            self.bar.println(line);
        }
    }
}

impl Progress for TrainingBars {
    fn explored(&mut self, explored: &Explored) {
        let record = &explored.record;
        self.horizons.push(record.horizon);
        self.forks.0 += record.forks.len();
        self.forks.1 += record.complete_pairs();
        self.forks.2 += record.accepted();
        let gate = format!("{}/{} hints kept", self.forks.2, self.forks.1);
        self.bar.set_message(format!("batch {} horizon {} {gate}", record.batch, record.horizon));
        for fork in &record.forks {
            let Some(gain) = fork.verdict.gain else { continue };
            let accepted = fork.verdict.accepted;
            let kept = self.examples.iter().filter(|example| example.accepted == accepted).count();
            let run = explored.forks.iter().find(|run| {
                run.finished.episode == fork.request.episode
                    && run.finished.turn == fork.request.turn
            });
            let episode =
                explored.episodes.iter().find(|episode| episode.plan.key == fork.request.episode);
            if let (true, Some(run), Some(episode)) = (kept < EXAMPLES, run, episode) {
                let planned = episode
                    .turns
                    .iter()
                    .find(|turn| turn.number == fork.request.turn)
                    .and_then(|turn| turn.action.clone());
                let guided = run.guided.turns.first().and_then(|turn| turn.action.clone());
                self.examples.push(HintExample {
                    task: episode
                        .turns
                        .first()
                        .map(|turn| turn.view.task.clone())
                        .unwrap_or_default(),
                    planned: planned.unwrap_or_default(),
                    hint: run.hint.clone().unwrap_or_default(),
                    guided: guided.unwrap_or_default(),
                    gain,
                    accepted,
                });
            }
        }
    }

    fn learned(&mut self, step: u64, report: &LearnReport) {
        self.bar.set_position(step);
        if self.lines && step.is_multiple_of(10) {
            self.say(&format!(
                "step {step}: loss {:.4}, gradient norm {:.3}",
                report.loss, report.grad_norm
            ));
        }
    }

    fn evaluated(&mut self, step: u64, evaluation: &Evaluation) {
        let rate = evaluation.all.success_rate;
        self.evaluations.push((step, evaluation.split.clone(), rate));
        self.say(&format!(
            "after {step} steps: {} success {rate:.1} %, {:.1} rounds on {} tasks",
            evaluation.split, evaluation.all.rounds, evaluation.all.tasks
        ));
    }

    fn saved(&mut self, path: &Path) {
        self.bar.set_message(format!("saved {}", path.display()));
    }

    fn damaged(&mut self, damaged: &[Damaged]) {
        for checkpoint in damaged {
            self.say(&format!(
                "warning: checkpoint {} is damaged ({}); using the one before it",
                checkpoint.path.display(),
                checkpoint.message
            ));
        }
    }
}

/// Progress of one run among several, as lines: their bars would overwrite each other.
pub(crate) struct RunLines {
    name: String,
    seed: u64,
}

impl RunLines {
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        Self { name: name.to_owned(), seed }
    }

    /// Says that this run is the `done`th of `total` to be complete.
    pub(crate) fn finished(&self, done: usize, total: usize) {
        self.say(&format!("complete ({done} of {total} runs)"));
    }

    fn say(&self, line: &str) {
        say(&format!("{} seed {}: {line}", self.name, self.seed));
    }
}

impl Progress for RunLines {
    fn evaluated(&mut self, step: u64, evaluation: &Evaluation) {
        let (split, all) = (&evaluation.split, &evaluation.all);
        self.say(&format!(
            "after {step} steps: {split} success {:.1} % on {} tasks",
            all.success_rate, all.tasks
        ));
    }

    fn damaged(&mut self, damaged: &[Damaged]) {
        for checkpoint in damaged {
            let (path, why) = (checkpoint.path.display(), &checkpoint.message);
            self.say(&format!(
                "warning: checkpoint {path} is damaged ({why}); using the one before it"
            ));
        }
    }
}
