//! A run: explore, learn, evaluate, save; and go on exactly where it stopped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lens_agent::{Context, Setup};
use lens_config::schema::ContextName;
use lens_config::{Config, method, render};
use lens_engine::{Deadline, LearnReport, Learner, Policy, Sampling, Teacher};
use lens_env::{Benchmark, Task};
use lens_opd::methods::state::MethodState;
use lens_opd::methods::{Method, Setting};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoints, Damaged};
use crate::error::TrainError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::files::{claim, free_megabytes, write_atomically, write_durably};
use crate::iteration::{Explored, Explorer};
use crate::queue::Queue;
use crate::run_log::RunLog;
use crate::tasks::TaskOrder;

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
    /// An explorer batch was played and turned into rows.
    fn explored(&mut self, _explored: &Explored) {}
    /// An optimiser step was taken.
    fn learned(&mut self, _step: u64, _report: &LearnReport) {}
    /// A split was evaluated after `step` optimiser steps.
    fn evaluated(&mut self, _step: u64, _evaluation: &Evaluation) {}
    /// A checkpoint was written.
    fn saved(&mut self, _path: &Path) {}
    /// Damaged checkpoints were passed over on resuming.
    fn damaged(&mut self, _damaged: &[Damaged]) {}
}

/// What a run is made of.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The seed, one of the configuration's.
    pub seed: u64,
    /// The benchmark.
    pub benchmark: Arc<dyn Benchmark>,
    /// The model that teaches.
    pub teacher: Arc<dyn Teacher>,
    /// The model that learns.
    pub learner: Box<dyn Learner>,
}

/// What a checkpoint remembers besides the learner and the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    batch: u64,
    step: u64,
    method: MethodState,
    metrics_length: u64,
    skipped_in_a_row: u32,
    skipped: u64,
}

/// One run of one seed.
pub struct Run {
    config: Config,
    seed: u64,
    folder: PathBuf,
    explorer: Explorer,
    evaluator: Evaluator,
    method: Box<dyn Method>,
    teacher: Arc<dyn Teacher>,
    learner: Box<dyn Learner>,
    student: Arc<dyn Policy>,
    order: TaskOrder,
    eval_sets: Vec<(String, Vec<Task>)>,
    queue: Queue,
    checkpoints: Checkpoints,
    log: RunLog,
    state: State,
    /// Keeps other processes out of the folder.
    _claim: File,
}

impl Run {
    /// The folder of a run.
    pub fn folder(config: &Config, seed: u64) -> PathBuf {
        config.output.join(&config.name).join(format!("seed-{seed}"))
    }

    /// Starts a run in a folder of its own, or goes on with the one that is there.
    pub fn open(
        parts: Parts,
        resume: bool,
        progress: &mut dyn Progress,
    ) -> Result<Self, TrainError> {
        let Parts { config, seed, benchmark, teacher, mut learner } = parts;
        let folder = Self::folder(&config, seed);
        let checkpoints = Checkpoints::new(folder.join("checkpoints"));
        let setup = setup(&config, &benchmark);
        let setting = Setting { seed, max_turns: config.task.turn_limit };
        let mut method = method::method_params(&config).build(setting)?;
        let mut state = State {
            batch: 0,
            step: 0,
            method: method.state(),
            metrics_length: 0,
            skipped_in_a_row: 0,
            skipped: 0,
        };
        let mut queue = Queue::default();
        let begun = folder.join("config.toml").exists();
        if begun && !resume {
            return Err(TrainError::Folder {
                path: folder,
                message: "a run is here already; resume it with --resume, or give another name with --set name=..."
                    .to_owned(),
            });
        }
        make_room(&config, &folder, &*learner)?;
        let claim = claim(&folder)?;
        if begun {
            let (latest, damaged) = checkpoints.latest();
            if !damaged.is_empty() {
                progress.damaged(&damaged);
            }
            if let Some((_, path)) = latest {
                state = read_state(&path.join("state"))?;
                method.restore(&state.method)?;
                queue = Queue::load(&path.join("state"))?;
                learner.load(&path.join("model"), &path.join("state"))?;
            }
        } else {
            write_atomically(&folder.join("config.toml"), render::to_toml(&config).as_bytes())?;
        }
        let log = RunLog::open(&folder, state.metrics_length, state.step, state.batch)?;
        let student = learner.snapshot()?;
        let eval_sets = eval_sets(&config, &*benchmark)?;
        let order = TaskOrder::new(benchmark.tasks(&config.task.train_split)?, seed);
        let evaluator = evaluator(&config, &setup);
        let explorer = explorer(&config, setup, seed);
        Ok(Self {
            config,
            seed,
            folder,
            explorer,
            evaluator,
            method,
            teacher,
            learner,
            student,
            order,
            eval_sets,
            queue,
            checkpoints,
            log,
            state,
            _claim: claim,
        })
    }

    /// Runs until all steps are done, or until `stop` is set: then the batch under way is finished and saved.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<Finish, TrainError> {
        if self.state.batch == 0 {
            self.evaluate(progress)?;
        }
        let mut saved_at = self.state.step;
        while self.state.step < self.config.train.steps {
            if stop.load(Ordering::Relaxed) {
                self.save(progress)?;
                return Ok(Finish::Interrupted);
            }
            self.explore(progress)?;
            self.learn(progress)?;
            let done = self.state.step >= self.config.train.steps;
            if done || self.state.batch.is_multiple_of(self.config.train.eval_interval) {
                self.evaluate(progress)?;
            }
            let interval = self.config.train.save_interval;
            if done || self.state.step / interval > saved_at / interval {
                saved_at = self.state.step;
                self.save(progress)?;
            }
        }
        Ok(Finish::Done)
    }

    /// Optimiser steps done.
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// Optimiser steps skipped because a number was not finite.
    pub fn skipped(&self) -> u64 {
        self.state.skipped
    }

    /// The newest checkpoint's model, a Hugging Face directory.
    pub fn model_folder(&self) -> PathBuf {
        self.checkpoints.path(self.state.step).join("model")
    }

    /// The student as it is now.
    pub fn student(&self) -> &Arc<dyn Policy> {
        &self.student
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    fn explore(&mut self, progress: &mut dyn Progress) -> Result<(), TrainError> {
        let started = Instant::now();
        let number = self.state.batch + 1;
        let tasks = self.order.batch(number, self.config.rollout.batch_size);
        let mut explored = self.explorer.explore(
            &mut *self.method,
            &self.student,
            &*self.teacher,
            number,
            tasks,
        )?;
        self.state.batch = number;
        self.queue.push(std::mem::take(&mut explored.rows));
        let stale = self.queue.dropped_stale();
        let (waiting, codec) = (self.queue.len(), self.student.codec());
        self.log.batch(&explored, self.state.step, waiting, stale, codec)?;
        self.log.timing("explore", number, started.elapsed().as_secs_f64())?;
        progress.explored(&explored);
        Ok(())
    }

    /// Optimiser steps while there are enough fresh rows, then a new snapshot.
    fn learn(&mut self, progress: &mut dyn Progress) -> Result<(), TrainError> {
        let started = Instant::now();
        let before = self.state.step;
        let (train, loss) = (&self.config.train, method::loss_params(&self.config));
        while self.state.step < train.steps {
            let step = self.state.step + 1;
            let terms = self.method.terms();
            let batch =
                self.queue.pop(step, train.batch_size, train.max_staleness, &loss, &terms)?;
            let Some(batch) = batch else { break };
            let report = self.learner.learn(&batch.rows)?;
            self.log.step(self.state.batch, step, &report, batch.counts, batch.oldest_version)?;
            if report.skipped {
                self.state.skipped += 1;
                self.state.skipped_in_a_row += 1;
                let dump = dump(&self.folder, step, self.state.skipped, &batch.rows)?;
                if self.state.skipped_in_a_row >= train.max_skipped_steps {
                    let steps = self.state.skipped_in_a_row;
                    return Err(TrainError::NotFinite { steps, dump });
                }
                continue;
            }
            self.state.skipped_in_a_row = 0;
            self.state.step = step;
            progress.learned(step, &report);
        }
        let oldest = self.queue.versions_needed().first().copied();
        self.learner.forget_before(oldest.unwrap_or(self.state.step).min(self.state.step));
        if self.state.step > before {
            self.student = self.learner.snapshot()?;
        }
        self.log.timing("learn", self.state.batch, started.elapsed().as_secs_f64())
    }

    fn evaluate(&mut self, progress: &mut dyn Progress) -> Result<(), TrainError> {
        let started = Instant::now();
        for (split, tasks) in &self.eval_sets {
            let step = self.state.step;
            let evaluation = self.evaluator.evaluate(
                self.student.as_ref(),
                split,
                tasks,
                self.seed,
                step,
                |_| {},
            )?;
            self.log.evaluation(step, self.state.batch, &evaluation)?;
            progress.evaluated(step, &evaluation);
        }
        self.log.timing("evaluate", self.state.batch, started.elapsed().as_secs_f64())
    }

    fn save(&mut self, progress: &mut dyn Progress) -> Result<(), TrainError> {
        self.state.method = self.method.state();
        self.state.metrics_length = self.log.sync()?;
        let (state, queue, learner) = (&self.state, &self.queue, &self.learner);
        let heads = queue.versions_needed();
        let path = self.checkpoints.write(state.step, |folder| {
            let inside = folder.join("state");
            std::fs::create_dir(&inside).map_err(TrainError::file("make", &inside))?;
            learner.save_model(&folder.join("model"))?;
            for (name, content) in learner.save_state(&heads)? {
                write_durably(&inside.join(name), &content)?;
            }
            queue.save(&inside)?;
            let path = inside.join("state.json");
            let json = serde_json::to_vec_pretty(state).map_err(|error| {
                TrainError::Checkpoint { path: path.clone(), message: error.to_string() }
            })?;
            write_durably(&path, &json)
        })?;
        self.checkpoints.prune(self.config.train.keep_checkpoints);
        progress.saved(&path);
        Ok(())
    }
}

/// What episodes of a configuration have in common.
pub fn setup(config: &Config, benchmark: &Arc<dyn Benchmark>) -> Setup {
    Setup {
        benchmark: benchmark.clone(),
        context: match config.rollout.context {
            ContextName::Window => Context::Window,
            ContextName::Chat => Context::Chat,
        },
        history: config.rollout.history,
        turn_limit: config.task.turn_limit,
        max_prompt_tokens: config.rollout.max_prompt_tokens,
        max_response_tokens: config.rollout.max_response_tokens,
        deadline: Deadline::never(),
    }
}

/// How a configuration plays and audits explorer batches.
pub fn explorer(config: &Config, setup: Setup, seed: u64) -> Explorer {
    Explorer {
        setup,
        seed,
        sampling: Sampling::at(config.rollout.temperature as f32),
        repeat_times: config.rollout.repeat_times,
        hint_tokens: config.validate.hint_tokens,
        estimator: method::loss_params(config).estimator,
    }
}

/// How a configuration evaluates.
pub fn evaluator(config: &Config, setup: &Setup) -> Evaluator {
    let eval = &config.eval;
    Evaluator {
        setup: Setup {
            history: eval.history,
            max_response_tokens: eval.max_tokens,
            ..setup.clone()
        },
        sampling: Sampling {
            temperature: eval.temperature as f32,
            top_p: eval.top_p as f32,
            top_k: usize::try_from(eval.top_k).ok(),
            min_p: eval.min_p as f32,
        },
        workers: eval.workers,
    }
}

fn eval_sets(
    config: &Config,
    benchmark: &dyn Benchmark,
) -> Result<Vec<(String, Vec<Task>)>, TrainError> {
    let limit = config.eval.tasks_during_training;
    let mut sets = Vec::new();
    for split in &config.task.eval_splits {
        let mut tasks = benchmark.tasks(split)?;
        if limit > 0 {
            tasks.truncate(limit);
        }
        sets.push((split.clone(), tasks));
    }
    Ok(sets)
}

/// Makes the run's folder and refuses to start where the disk would fill up.
fn make_room(config: &Config, folder: &Path, learner: &dyn Learner) -> Result<(), TrainError> {
    std::fs::create_dir_all(folder).map_err(TrainError::file("make", folder))?;
    // One more than is kept: a new checkpoint is whole before an old one goes.
    let checkpoints = config.train.keep_checkpoints as u64 + 1;
    let needed = learner.checkpoint_bytes().saturating_mul(checkpoints) / 1_000_000 + 50;
    match free_megabytes(folder) {
        Some(free) if free < needed => {
            Err(TrainError::Disk { path: folder.to_owned(), free, needed })
        }
        _ => Ok(()),
    }
}

fn read_state(folder: &Path) -> Result<State, TrainError> {
    let path = folder.join("state.json");
    let json = std::fs::read(&path).map_err(TrainError::file("read", &path))?;
    serde_json::from_slice(&json)
        .map_err(|error| TrainError::Checkpoint { path, message: error.to_string() })
}

/// Writes the rows of a step that was not finite, for inspection.
fn dump(
    folder: &Path,
    step: u64,
    count: u64,
    rows: &[lens_engine::LearnRow],
) -> Result<PathBuf, TrainError> {
    let dumps = folder.join("dumps");
    std::fs::create_dir_all(&dumps).map_err(TrainError::file("make", &dumps))?;
    let path = dumps.join(format!("step-{step:06}-skip-{count}.json"));
    let rows: Vec<serde_json::Value> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "prompt": row.prompt,
                "response": row.response,
                "coefficients": row.coefficients,
            })
        })
        .collect();
    write_atomically(&path, serde_json::Value::Array(rows).to_string().as_bytes())?;
    Ok(path)
}
