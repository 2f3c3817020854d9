//! A run: explore, learn, evaluate, save; and resume exactly where it stopped.

mod learn;
mod open;
mod watch;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lens_config::Config;
use lens_engine::{Engine, LearnReport, Models, Observed, Policy};
use lens_env::{Benchmark, Task};
use lens_opd::methods::Driver;
use lens_opd::methods::state::MethodState;
use lens_records::metrics::SpentTokens;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoints, Damaged};
use crate::error::TrainError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::files::write_durably;
use crate::iteration::{Explored, Rollout, Stage};
use crate::meter::Meter;
use crate::queue::Queue;
use crate::run_log::RunLog;
use crate::tasks::TaskOrder;
use watch::Watchdog;

pub use open::{Opening, evaluator, prompting, rollout, rollout_config};

/// How a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// All steps are done.
    Done,
    /// It was asked to stop, has saved, and can be resumed.
    Interrupted,
}

/// Someone who watches a run: progress bars, a test, nobody.
pub trait Progress {
    /// An explorer batch has come this far.
    fn exploring(&mut self, _batch: u64, _stage: Stage) {}
    /// An explorer batch was played and turned into rows.
    fn explored(&mut self, _explored: &Explored) {}
    /// An optimizer step was taken.
    fn learned(&mut self, _step: u64, _report: &LearnReport) {}
    /// Of `tasks` tasks of a split, `done` have been played.
    fn evaluating(&mut self, _split: &str, _done: usize, _tasks: usize) {}
    /// A split was evaluated after `step` optimizer steps.
    fn evaluated(&mut self, _step: u64, _evaluation: &Evaluation) {}
    /// A checkpoint was written.
    fn saved(&mut self, _path: &Path) {}
    /// Damaged checkpoints were passed over on resuming.
    fn damaged(&mut self, _damaged: &[Damaged]) {}
    /// Something worth knowing that stops nothing.
    fn note(&mut self, _text: &str) {}
}

/// What a run is made of.
pub struct RunInputs {
    /// The configuration.
    pub config: Config,
    /// The seed.
    pub seed: u64,
    /// The benchmark.
    pub benchmark: Arc<dyn Benchmark>,
    /// The student that learns, and its teacher.
    pub engine: Box<dyn Engine>,
}

/// What a checkpoint remembers besides the engine and the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    batch: u64,
    step: u64,
    method: MethodState,
    metrics_length: u64,
    skipped_in_a_row: u32,
    skipped: u64,
    /// Optimizer steps at the last evaluation.
    #[serde(default)]
    evaluated: Option<u64>,
    /// The best evaluation so far.
    #[serde(default)]
    best: Option<Best>,
    /// Tokens both models have read and written, evaluation left out.
    #[serde(default)]
    spent: SpentTokens,
}

/// The best evaluation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Optimizer steps when it was measured; a checkpoint of that step is kept.
    pub step: u64,
    /// Success in percent, over the tasks of all splits.
    pub success_rate: f64,
}

/// One run of one seed.
pub struct Run {
    config: Config,
    seed: u64,
    folder: PathBuf,
    rollout: Rollout,
    evaluator: Evaluator,
    method: Driver,
    engine: Box<dyn Engine>,
    order: TaskOrder,
    eval_sets: Vec<(String, Vec<Task>)>,
    queue: Queue,
    checkpoints: Checkpoints,
    log: RunLog,
    state: State,
    watchdog: Watchdog,
    /// Keeps other processes out of the folder.
    _claim: File,
}

impl Run {
    /// The folder of a run.
    pub fn folder(config: &Config, seed: u64) -> PathBuf {
        config.output.join(&config.name).join(format!("seed-{seed}"))
    }

    /// Runs until all steps are done, or until `stop` is set: then the batch under way is finished and saved.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<Finish, TrainError> {
        let (method, step) = (self.config.method, self.state.step);
        let begun = if step == 0 { "begins" } else { "goes on" };
        self.log.note(&format!("{method}, seed {}: {begun} at step {step}", self.seed))?;
        let ended = self.run_to_end(stop, progress);
        // A log that cannot be written must not hide how the run ended.
        let _ = self.log.note(&match &ended {
            Ok(Finish::Done) => {
                let (step, spent) = (self.state.step, self.state.spent);
                format!(
                    "done at step {step}; {} student tokens and {} teacher tokens",
                    spent.student, spent.teacher
                )
            }
            Ok(Finish::Interrupted) => format!("asked to stop; saved at step {}", self.state.step),
            Err(error) => format!("stopped by an error at step {}: {error}", self.state.step),
        });
        ended
    }

    fn run_to_end(
        &mut self,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<Finish, TrainError> {
        let mut saved_at = self.state.step;
        if self.state.evaluated.is_none() {
            self.evaluate(progress)?;
        }
        while !self.is_over() {
            if stop.load(Ordering::Relaxed) {
                self.save(progress)?;
                return Ok(Finish::Interrupted);
            }
            if self.config.train.overlap {
                self.explore_while_learning(progress)?;
            } else {
                self.explore(progress)?;
                self.learn(progress)?;
            }
            let step = self.state.step;
            let done = self.is_over();
            let passed = |interval: u64, since: u64| step / interval > since / interval;
            let evaluated = self.state.evaluated.unwrap_or(0);
            let mut improved = false;
            if done || passed(self.config.train.eval_interval, evaluated) {
                improved = self.evaluate(progress)?;
            }
            if done || improved || passed(self.config.train.save_interval, saved_at) {
                saved_at = step;
                self.save(progress)?;
            }
        }
        Ok(Finish::Done)
    }

    /// Whether all steps are done, or the budget of tokens is spent.
    fn is_over(&self) -> bool {
        let train = &self.config.train;
        let spent = train.budget_tokens > 0 && self.state.spent.total() >= train.budget_tokens;
        spent || self.state.step >= train.steps
    }

    /// Tokens both models have read and written, evaluation left out.
    pub fn spent(&self) -> SpentTokens {
        self.state.spent
    }

    /// Optimizer steps done.
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// Optimizer steps skipped because a number was not finite.
    pub fn skipped(&self) -> u64 {
        self.state.skipped
    }

    /// The newest checkpoint's model, a Hugging Face directory.
    pub fn model_folder(&self) -> PathBuf {
        self.checkpoints.path(self.state.step).join("model")
    }

    /// The best evaluation so far, and the folder of its model.
    pub fn best(&self) -> Option<(Best, PathBuf)> {
        let best = self.state.best?;
        Some((best, self.checkpoints.path(best.step).join("model")))
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    fn explore(&mut self, progress: &mut dyn Progress) -> Result<(), TrainError> {
        let started = Instant::now();
        let number = self.state.batch + 1;
        let tasks = self.order.batch(number, self.config.rollout.batch_size);
        let meter = Arc::new(Meter::default());
        let models = Observed::new(self.engine.models(), meter.clone());
        let explored =
            self.rollout.explore(&mut self.method, &models, number, tasks, &mut |stage| {
                progress.exploring(number, stage);
            })?;
        self.take(explored, self.state.step, &models, meter.spent(), started, progress)
    }

    /// Queues and logs a batch that was explored with the weights of `version`.
    fn take(
        &mut self,
        mut explored: Explored,
        version: u64,
        models: &dyn Models,
        spent: SpentTokens,
        started: Instant,
        progress: &mut dyn Progress,
    ) -> Result<(), TrainError> {
        let number = explored.record.batch;
        self.state.batch = number;
        self.state.spent += spent;
        self.queue.push(std::mem::take(&mut explored.rows));
        let stale = self.queue.dropped_stale();
        let codec = models.student().codec();
        self.log.batch(&explored, version, self.queue.len(), stale, spent, codec)?;
        for (stage, seconds) in explored.seconds {
            self.log.timing(stage, number, seconds)?;
        }
        self.log.timing("explore", number, started.elapsed().as_secs_f64())?;
        progress.explored(&explored);
        Ok(())
    }

    /// Evaluates every split; whether it is the best evaluation so far.
    fn evaluate(&mut self, progress: &mut dyn Progress) -> Result<bool, TrainError> {
        let started = Instant::now();
        let models = self.engine.models();
        let (step, student): (u64, &dyn Policy) = (self.state.step, models.student());
        let (mut solved, mut played) = (0.0, 0.0);
        for (split, tasks) in &self.eval_sets {
            let evaluation =
                self.evaluator.evaluate(student, split, tasks, self.seed, step, |done| {
                    progress.evaluating(split, done, tasks.len());
                })?;
            solved += evaluation.all.success_rate * evaluation.all.tasks as f64;
            played += evaluation.all.tasks as f64;
            self.log.evaluation(step, self.state.batch, &evaluation)?;
            progress.evaluated(step, &evaluation);
        }
        self.state.evaluated = Some(step);
        let success_rate = if played > 0.0 { solved / played } else { 0.0 };
        let improved = self.state.best.is_none_or(|best| success_rate > best.success_rate);
        if improved {
            self.state.best = Some(Best { step, success_rate });
        }
        self.log.timing("evaluate", self.state.batch, started.elapsed().as_secs_f64())?;
        Ok(improved)
    }

    fn save(&mut self, progress: &mut dyn Progress) -> Result<(), TrainError> {
        self.state.method = self.method.state();
        self.state.metrics_length = self.log.sync()?;
        let (state, queue, engine) = (&self.state, &self.queue, &*self.engine);
        let (config, metrics) = (&self.config, self.log.packed_metrics()?);
        let path = self.checkpoints.write(state.step, |folder| {
            queue.save(engine, folder)?;
            let inside = folder.join("state");
            write_durably(&inside.join(METRICS_COPY), &metrics)?;
            let path = inside.join("state.json");
            let json = serde_json::to_vec_pretty(state).map_err(|error| {
                TrainError::Checkpoint { path: path.clone(), message: error.to_string() }
            })?;
            write_durably(&path, &json)?;
            let text = lens_config::render::to_toml(config);
            write_durably(&folder.join("config.toml"), text.as_bytes())
        })?;
        let best = self.state.best.map(|best| best.step);
        self.checkpoints.prune(self.config.train.keep_checkpoints, best);
        let name = path.file_name().unwrap_or_default().display();
        self.log.note(&format!("saved {name}"))?;
        progress.saved(&path);
        Ok(())
    }
}

/// The metrics as a checkpoint keeps them, to mend a file that was damaged or lost.
const METRICS_COPY: &str = "metrics.jsonl.zst";
