//! `lens sweep`: methods x seeds x students, and the paper's table of them.

mod compare;
mod plan;
mod table;

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lens_config::{Config, changes, resolve};
use lens_opd::methods::MethodName;
use lens_train::evaluate::Evaluation;
use lens_train::files::write_atomically;
use lens_train::run::{evaluator, rollout_config};
use lens_train::{Finish, Opening, Run};
use serde::{Deserialize, Serialize};

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::{SweepBar, SweepRun};
use crate::results::{Results, newest_model, open_run};
use crate::run_seed::run_seed;
use crate::values::{at_least_one, method};
use table::Table;

/// Train every method on every student with every seed and print the paper's table
///
/// Run an interrupted sweep again to resume it: finished runs are not repeated, and a run under way is resumed from its
/// last checkpoint. All runs share the configuration; only method, student and seed differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens sweep configs/laboratory.toml --jobs 2
  lens sweep configs/laboratory.toml --methods opd,lens --set seeds=[1,2,3] --format markdown
  lens sweep configs/laboratory.toml --methods opd,lens --plan --difference 3")]
pub(crate) struct Sweep {
    #[command(flatten)]
    config: ConfigArgs,
    /// The methods; all of them by default.
    #[arg(long, value_delimiter = ',', value_name = "METHOD", value_parser = method())]
    methods: Vec<MethodName>,
    /// The students' directories; the configuration's student by default.
    #[arg(long, value_delimiter = ',', value_name = "MODEL")]
    students: Vec<PathBuf>,
    /// Play only the first N tasks of each split in the final evaluation.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    limit: Option<usize>,
    /// Also play the benchmark's official data in the final evaluation: a folder or an archive. It is never trained on.
    #[arg(long, value_name = "PATH")]
    official: Option<PathBuf>,
    /// Runs side by side, which share the cores. Results do not depend on it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// The method that the others are compared with, seed by seed and task by task.
    #[arg(long, value_name = "METHOD", value_parser = method(), default_value = "opd")]
    against: MethodName,
    /// Train nothing: say how many seeds and games a difference needs, from the runs that are done.
    #[arg(long)]
    plan: bool,
    /// The difference in points that --plan is for.
    #[arg(long, value_name = "POINTS", default_value_t = 3.0, requires = "plan")]
    difference: f64,
    /// How the table is printed.
    #[arg(long, value_enum, default_value = "table")]
    format: table::Format,
}

/// One run of a sweep.
#[derive(Debug, Clone)]
struct Job {
    student: String,
    method: MethodName,
    seed: u64,
    config: Config,
}

/// How a student played before or after a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Final {
    evaluations: Vec<Evaluation>,
}

impl Sweep {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let stop = interrupt::stop_flag();
        let config = self.config.resolve()?.config;
        let methods =
            if self.methods.is_empty() { MethodName::ALL.to_vec() } else { self.methods.clone() };
        let (named, key) = if self.students.is_empty() {
            (std::slice::from_ref(&config.student.path), "student.path")
        } else {
            (self.students.as_slice(), "--students")
        };
        let mut students = Vec::new();
        for path in named {
            students.push((model_name(path)?, assemble::model_folder(path, key)?));
        }
        let mut table = Table::new(&config, self.against);
        let mut jobs = VecDeque::new();
        for (name, path) in &students {
            for &method in &methods {
                for &seed in &config.seeds {
                    jobs.push_back(job(&config, path, name, method, seed));
                }
            }
        }
        if self.plan {
            return self.plan(&config, jobs.make_contiguous(), out);
        }
        let total = jobs.len();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = usize::from(self.jobs).min(total);
        let threads = (cores / workers.max(1)).max(1);
        let bar = SweepBar::new(total, config.train.steps);
        let shared = Shared {
            jobs: Mutex::new(jobs),
            done: Mutex::default(),
            stop,
            limit: self.limit,
            official: self.official.clone(),
            bar: bar.clone(),
        };
        let failure = std::thread::scope(|scope| {
            let handles: Vec<_> =
                (0..workers).map(|_| scope.spawn(|| shared.work(threads, total))).collect();
            let mut failure = None;
            for handle in handles {
                let result = handle.join().unwrap_or_else(|_| {
                    Err(Failure::Runtime(anyhow::anyhow!("a worker of the sweep panicked")))
                });
                failure = failure.or(result.err());
            }
            failure
        });
        bar.finish();
        if let Some(failure) = failure {
            return Err(failure);
        }
        for (name, path) in &students {
            let before = self.untrained(&config, path)?;
            table.untrained(name, &before);
        }
        let done = shared.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (job, result) in done {
            let spent = Results::read(&open_run(&Run::folder(&job.config, job.seed))?).spent();
            table.spent(&job.student, job.method, spent);
            table.add(&job.student, job.method, job.seed, result.evaluations);
        }
        table.print(self.format, out)
    }

    /// The student before any training, with every seed.
    fn untrained(&self, config: &Config, path: &Path) -> Result<Vec<Evaluation>, Failure> {
        let mut all = Vec::new();
        let official = self.official.as_deref().map(|data| official(config, data));
        for &seed in &config.seeds {
            all.extend(evaluate(config, path, seed, self.limit)?);
            if let Some(official) = &official {
                all.extend(official_evaluations(evaluate(official, path, seed, self.limit)?));
            }
        }
        Ok(all)
    }
}

/// The name of a model: its folder's.
fn model_name(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| Failure::user(format!("{} is not a model's folder", path.display())))
}

fn job(config: &Config, path: &Path, student: &str, method: MethodName, seed: u64) -> Job {
    let mut config = config.clone();
    config.name = format!("{}-{student}-{method}", config.name);
    config.method = method;
    path.clone_into(&mut config.student.path);
    // A run's folder names its own seed alone, so that a sweep can be repeated with more of them.
    config.seeds = vec![seed];
    Job { student: student.to_owned(), method, seed, config }
}

/// Plays the evaluation splits with a model.
fn evaluate(
    config: &Config,
    model: &Path,
    seed: u64,
    limit: Option<usize>,
) -> Result<Vec<Evaluation>, Failure> {
    let policy = assemble::policy(model, "student.path", config.student.weights)?;
    let benchmark = assemble::benchmark(config)?;
    let evaluator = evaluator(config, &rollout_config(config, &benchmark)?);
    let mut all = Vec::new();
    for split in &config.task.eval_splits {
        let mut tasks = benchmark.tasks(split)?;
        tasks.truncate(limit.unwrap_or(usize::MAX));
        all.push(evaluator.evaluate(&policy, split, &tasks, seed, 0, |_| {})?);
    }
    Ok(all)
}

/// What the names of official splits start with in a table.
pub(super) const OFFICIAL: &str = "official/";

/// The configuration with the official data, to evaluate with.
fn official(config: &Config, data: &Path) -> Config {
    let mut config = config.clone();
    data.clone_into(&mut config.task.data);
    config
}

fn official_evaluations(evaluations: Vec<Evaluation>) -> impl Iterator<Item = Evaluation> {
    evaluations.into_iter().map(|mut evaluation| {
        evaluation.split.insert_str(0, OFFICIAL);
        evaluation
    })
}

/// What the workers of a sweep share.
struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    done: Mutex<Vec<(Job, Final)>>,
    stop: Arc<AtomicBool>,
    limit: Option<usize>,
    official: Option<PathBuf>,
    bar: SweepBar,
}

impl Shared {
    /// Takes jobs until there are none.
    fn work(&self, threads: usize, total: usize) -> Result<(), Failure> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Failure::Runtime(error.into()))?;
        loop {
            let job = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(job) = job else { return Ok(()) };
            if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            let mut run = self.bar.run(&job.config.name, job.seed);
            let result = pool.install(|| self.run_job(&job, &mut run))?;
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((job.clone(), result));
            run.finished(job.config.train.steps, done.len(), total);
        }
    }

    /// Runs one job to its end, or takes over what an earlier sweep left.
    fn run_job(&self, job: &Job, progress: &mut SweepRun) -> Result<Final, Failure> {
        let config = &job.config;
        let folder = Run::folder(config, job.seed);
        let begun = begun(config, &folder)?;
        let file = result_file(&folder, "final", self.limit);
        let mut result = if let Some(result) = begun.then(|| finished(&file)).flatten() {
            result
        } else {
            let opening = if begun { Opening::Resume } else { Opening::New };
            let (_, finish) =
                run_seed(config, job.seed, opening, &self.stop, progress, |progress, run| {
                    progress.reached(run.step());
                })?;
            if finish == Finish::Interrupted {
                return Err(interrupted());
            }
            self.evaluated(config, job.seed, &folder, &file)?
        };
        if let Some(data) = &self.official {
            let file = result_file(&folder, "official", self.limit);
            let played = match finished(&file) {
                Some(played) => played,
                None => self.evaluated(&official(config, data), job.seed, &folder, &file)?,
            };
            result.evaluations.extend(official_evaluations(played.evaluations));
        }
        Ok(result)
    }

    /// Plays the evaluation splits with a finished run's model, and keeps the results in `file`.
    fn evaluated(
        &self,
        config: &Config,
        seed: u64,
        folder: &Path,
        file: &Path,
    ) -> Result<Final, Failure> {
        let model = newest_model(&open_run(folder)?)
            .ok_or_else(|| Failure::user(format!("{} has no model", folder.display())))?;
        let result = Final { evaluations: evaluate(config, &model, seed, self.limit)? };
        let json = serde_json::to_vec(&result).map_err(|error| Failure::Runtime(error.into()))?;
        write_atomically(file, &json)?;
        Ok(result)
    }
}

/// Where a run's final evaluation is kept.
fn result_file(folder: &Path, name: &str, limit: Option<usize>) -> PathBuf {
    folder.join(match limit {
        Some(limit) => format!("{name}-{limit}.json"),
        None => format!("{name}.json"),
    })
}

/// A run's final evaluation, if it has one.
fn finished(file: &Path) -> Option<Final> {
    let json = std::fs::read(file).ok()?;
    serde_json::from_slice(&json).ok()
}

fn interrupted() -> Failure {
    Failure::Interrupted(
        "stopped, everything is saved; run the same command again to resume".to_owned(),
    )
}

/// Whether a run is in the folder already; it must be a run of the same configuration. Keys that were added since do not
/// count, because their defaults are what was done before.
fn begun(config: &Config, folder: &Path) -> Result<bool, Failure> {
    let file = folder.join("config.toml");
    if !file.exists() {
        return Ok(false);
    }
    let began = resolve(std::slice::from_ref(&file), &[])?.config;
    let wanted = assemble::with_models(config)?.with_absolute_paths();
    match changes::between(&began, &wanted).into_iter().find(|change| change.key != "output") {
        None => Ok(true),
        Some(change) => Err(Failure::user_with_hint(
            format!(
                "{} belongs to a run with another configuration: `{}` was {} and is {}",
                file.display(),
                change.key,
                change.before,
                change.after
            ),
            "give this sweep another name with --set name=NAME",
        )),
    }
}
