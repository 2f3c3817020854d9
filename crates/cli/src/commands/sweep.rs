//! `lens sweep`: methods x seeds x students, and the paper's table of them.

mod compare;
mod contender;
mod kept;
mod plan;
mod table;

use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lens_config::{Config, changes, render, resolve};
use lens_env::Benchmark;
use lens_opd::methods::MethodName;
use lens_records::metrics::SpentTokens;
use lens_train::evaluate::Evaluation;
use lens_train::files::write_atomically;
use lens_train::inputs;
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
use contender::Contender;
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
  lens sweep configs/laboratory.toml --methods opd,lens --ablations --against lens
  lens sweep configs/laboratory.toml --methods lens --variant long:validate.continuation_turns=8
  lens sweep configs/laboratory.toml --methods opd,lens --plan --difference 3")]
pub(crate) struct Sweep {
    #[command(flatten)]
    config: ConfigArgs,
    /// The methods; all of them by default.
    #[arg(long, value_delimiter = ',', value_name = "METHOD", value_parser = method())]
    methods: Vec<MethodName>,
    /// Also train the five ablations of LENS-OPD in the paper's table 3.
    #[arg(long)]
    ablations: bool,
    /// Also train the configuration's method with other settings, as a row of its own; may be given several times.
    #[arg(long = "variant", value_name = "NAME:KEY=VALUE,...")]
    variants: Vec<String>,
    /// The students' directories; the configuration's student by default.
    #[arg(long, value_delimiter = ',', value_name = "MODEL")]
    students: Vec<PathBuf>,
    /// Play only the first N tasks of each split in the final evaluation; official ones are always played in full.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    limit: Option<usize>,
    /// Also play the benchmark's official data in the final evaluation: a folder or an archive. It is never trained on.
    #[arg(long, value_name = "PATH")]
    official: Option<PathBuf>,
    /// Also keep every run's result in this folder, a few kB each, and take over those it has instead of training again.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
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
    /// `None` for the student before training.
    contender: Option<Contender>,
    seed: u64,
    config: Config,
}

/// How a student played before or after a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Final {
    evaluations: Vec<Evaluation>,
    /// What both models read and wrote in training; `None` until the run's records were asked.
    #[serde(skip)]
    spent: Option<SpentTokens>,
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
        let mut contenders: Vec<Contender> = methods.into_iter().map(Contender::method).collect();
        if self.ablations {
            contenders.extend(Contender::ablations());
        }
        for variant in &self.variants {
            contenders.push(Contender::variant(variant, &self.config)?);
        }
        distinct("students", students.iter().map(|(name, _)| name.clone()))?;
        distinct("rows", contenders.iter().map(ToString::to_string))?;
        let configs: Result<Vec<Config>, Failure> =
            contenders.iter().map(|contender| contender.config(&self.config)).collect();
        let configs = configs?;
        // Seed by seed, so that an interrupted sweep has pairs to compare.
        let mut jobs = VecDeque::new();
        for (name, path) in &students {
            for &seed in &config.seeds {
                jobs.push_back(job(&config, path, name, None, seed));
                for (contender, config) in contenders.iter().zip(&configs) {
                    jobs.push_back(job(config, path, name, Some(contender), seed));
                }
            }
        }
        if self.plan {
            return self.plan(&config, jobs.make_contiguous(), out);
        }
        let mut table = Table::new(&config, self.against);
        let official = match &self.official {
            Some(data) => Some(Official {
                benchmark: assemble::benchmark(&official(&config, data))?,
                name: format!("official-{:.8}", inputs::hash_path(data)?),
            }),
            None => None,
        };
        let total = jobs.len();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = usize::from(self.jobs).min(total);
        let threads = (cores / workers.max(1)).max(1);
        let runs = jobs.iter().filter(|job| job.contender.is_some()).count();
        let bar = SweepBar::new(runs, config.train.steps);
        let shared = Shared {
            jobs: Mutex::new(jobs),
            done: Mutex::default(),
            stop,
            limit: self.limit,
            results: self.results.clone().map(|folder| kept::Results {
                folder,
                limit: self.limit,
                official: official.is_some(),
            }),
            official,
            bar: bar.clone(),
        };
        let failure = std::thread::scope(|scope| {
            let handles: Vec<_> =
                (0..workers).map(|_| scope.spawn(|| shared.work(threads, total, runs))).collect();
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
        let mut done = shared.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Rows stand in the order of the jobs, whichever was done first.
        done.sort_by_key(|(number, ..)| *number);
        for (_, job, result) in done {
            table.add(&job.student, job.contender, job.seed, result);
        }
        table.print(self.format, out)
    }
}

/// The name of a model: its folder's.
fn model_name(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| Failure::user(format!("{} is not a model's folder", path.display())))
}

/// Refuses names that are there twice: their runs would share folders.
fn distinct(what: &str, names: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Failure::user(format!("two {what} of the sweep are named `{name}`")));
        }
        seen.insert(name);
    }
    Ok(())
}

fn job(
    config: &Config,
    path: &Path,
    student: &str,
    contender: Option<&Contender>,
    seed: u64,
) -> Job {
    let mut config = config.clone();
    let row = contender.map_or_else(|| BEFORE.to_owned(), ToString::to_string);
    config.name = format!("{}-{student}-{row}", config.name);
    if let Some(contender) = contender {
        config.method = contender.method;
    }
    path.clone_into(&mut config.student.path);
    // A run's folder names its own seed alone, so that a sweep can be repeated with more of them.
    config.seeds = vec![seed];
    Job { student: student.to_owned(), contender: contender.cloned(), seed, config }
}

/// Plays the first tasks of these splits with a model.
fn evaluate(
    config: &Config,
    benchmark: &Arc<dyn Benchmark>,
    splits: &[String],
    model: &Path,
    seed: u64,
    limit: Option<usize>,
) -> Result<Vec<Evaluation>, Failure> {
    let policy = assemble::policy(model, "student.path", config.student.weights)?;
    let evaluator = evaluator(config, &rollout_config(config, benchmark)?);
    let mut all = Vec::new();
    for split in splits {
        let mut tasks = benchmark.tasks(split)?;
        tasks.truncate(limit.unwrap_or(usize::MAX));
        all.push(evaluator.evaluate(&policy, split, &tasks, seed, 0, |_| {})?);
    }
    Ok(all)
}

/// What the folder of a student before training is named by.
const BEFORE: &str = "before";

/// What the names of official splits start with in a table.
pub(super) const OFFICIAL: &str = "official/";

/// The configuration with the official data, to evaluate with.
fn official(config: &Config, data: &Path) -> Config {
    let mut config = config.clone();
    data.clone_into(&mut config.task.data);
    config
}

/// The official splits to play: the configured ones, and the list of hard tasks where the data has one.
fn official_splits(config: &Config, benchmark: &dyn Benchmark) -> Vec<String> {
    let mut splits = config.task.eval_splits.clone();
    let hard = benchmark.splits().into_iter().map(|split| split.name).find(|name| name == HARD);
    splits.extend(hard.filter(|name| !config.task.eval_splits.contains(name)));
    splits
}

/// The split of tasks that TCOD's teacher failed on.
const HARD: &str = "hard";

/// The official data to evaluate with.
struct Official {
    benchmark: Arc<dyn Benchmark>,
    /// What its evaluations are called; other data has another name.
    name: String,
}

/// What the workers of a sweep share.
struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    /// Finished jobs with their numbers.
    done: Mutex<Vec<(usize, Job, Final)>>,
    stop: Arc<AtomicBool>,
    limit: Option<usize>,
    official: Option<Official>,
    results: Option<kept::Results>,
    bar: SweepBar,
}

impl Shared {
    /// Takes jobs until there are none; `runs` of the `total` train.
    fn work(&self, threads: usize, total: usize, runs: usize) -> Result<(), Failure> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Failure::Runtime(error.into()))?;
        loop {
            let (number, job) = {
                let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
                let number = total - jobs.len();
                let Some(job) = jobs.pop_front() else { return Ok(()) };
                (number, job)
            };
            if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            let mut run = self.bar.run(&job.config.name, job.seed);
            let result = pool.install(|| self.run_job(&job, &mut run))?;
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            let (steps, trains) = (job.config.train.steps, job.contender.is_some());
            done.push((number, job, result));
            if trains {
                let complete = done.iter().filter(|(_, job, _)| job.contender.is_some()).count();
                run.finished(steps, complete, runs);
            }
        }
    }

    /// The result of a job: kept, left by an earlier sweep, or made now.
    fn run_job(&self, job: &Job, progress: &mut SweepRun) -> Result<Final, Failure> {
        if let Some(results) = &self.results
            && let Some(result) = results.read(job)?
        {
            return Ok(result);
        }
        let folder = Run::folder(&job.config, job.seed);
        let mut result = if job.contender.is_some() {
            self.trained(job, &folder, progress)?
        } else {
            same_student(&job.config, &folder)?;
            self.evaluated(&job.config, job.seed, &folder, &job.config.student.path)?
        };
        for evaluation in &mut result.evaluations {
            *evaluation = kept::by_place(evaluation);
        }
        if let Some(results) = &self.results {
            results.write(job, &result)?;
        }
        Ok(result)
    }

    /// Runs one job to its end, or takes over what an earlier sweep left, and plays with its model.
    fn trained(&self, job: &Job, folder: &Path, progress: &mut SweepRun) -> Result<Final, Failure> {
        let config = &job.config;
        let begun = begun(config, folder)?;
        if begun {
            // A finished run is not opened again, so nothing else would notice.
            inputs::check(&assemble::with_models(config)?, folder)?;
        }
        if !begun || finished(&result_file(folder, "final", self.limit)).is_none() {
            let opening = if begun { Opening::Resume } else { Opening::New };
            let (_, finish) =
                run_seed(config, job.seed, opening, &self.stop, progress, |progress, run| {
                    progress.reached(run.step());
                })?;
            if finish == Finish::Interrupted {
                return Err(interrupted());
            }
        }
        let run = open_run(folder)?;
        let model = newest_model(&run)
            .ok_or_else(|| Failure::user(format!("{} has no model", folder.display())))?;
        let mut result = self.evaluated(config, job.seed, folder, &model)?;
        result.spent = Some(Results::read(&run).spent());
        Ok(result)
    }

    /// Plays the evaluation splits, and the official ones if they are wanted, and keeps the results in `folder`.
    fn evaluated(
        &self,
        config: &Config,
        seed: u64,
        folder: &Path,
        model: &Path,
    ) -> Result<Final, Failure> {
        let play = |name: &str, benchmark: &Arc<dyn Benchmark>, splits: &[String], limit| {
            let file = result_file(folder, name, limit);
            if let Some(result) = finished(&file) {
                return Ok(result.evaluations);
            }
            let evaluations = evaluate(config, benchmark, splits, model, seed, limit)?;
            let result = Final { evaluations, spent: None };
            let json =
                serde_json::to_vec(&result).map_err(|error| Failure::Runtime(error.into()))?;
            write_atomically(&file, &json)?;
            Ok::<_, Failure>(result.evaluations)
        };
        let benchmark = assemble::benchmark(config)?;
        let mut evaluations = play("final", &benchmark, &config.task.eval_splits, self.limit)?;
        if let Some(official) = &self.official {
            let splits = official_splits(config, &*official.benchmark);
            for mut evaluation in play(&official.name, &official.benchmark, &splits, None)? {
                evaluation.split.insert_str(0, OFFICIAL);
                evaluations.push(evaluation);
            }
        }
        Ok(Final { evaluations, spent: None })
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
    Ok(file.exists() && same_settings(config, &file)?)
}

/// Marks the folder of a student before training with its settings and its files, or refuses one that has others.
fn same_student(config: &Config, folder: &Path) -> Result<(), Failure> {
    let config = assemble::with_models(config)?;
    let file = folder.join("settings.toml");
    if file.exists() {
        same_settings(&config, &file)?;
        return Ok(inputs::check(&config, folder)?);
    }
    std::fs::create_dir_all(folder)?;
    let evaluated = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("final"))
    };
    if std::fs::read_dir(folder)?.any(evaluated) {
        return Err(Failure::user_with_hint(
            format!("{} holds evaluations of unknown settings", folder.display()),
            "delete it, and the student is evaluated again",
        ));
    }
    inputs::record(&config, folder)?;
    Ok(write_atomically(&file, render::to_toml(&config.with_absolute_paths()).as_bytes())?)
}

/// Refuses a file of another configuration; true otherwise.
fn same_settings(config: &Config, file: &Path) -> Result<bool, Failure> {
    let began = resolve(&[file.to_owned()], &[])?.config;
    let wanted = assemble::with_models(config)?.with_absolute_paths();
    match changes::between(&began, &wanted).into_iter().find(kept::decides) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_before_training_belong_to_one_student_and_its_settings() {
        let models = tempfile::tempdir().expect("a temporary folder");
        let weights = models.path().join("model.safetensors");
        std::fs::write(&weights, b"weights").expect("written");
        let mut config = Config::default();
        config.student.path = models.path().to_owned();
        config.teacher.path = models.path().to_owned();
        let runs = tempfile::tempdir().expect("a temporary folder");
        let folder = runs.path().join("before");
        same_student(&config, &folder).expect("it is new");
        std::fs::write(folder.join("final.json"), b"{}").expect("written");
        same_student(&config, &folder).expect("it is the same");
        config.threads = 3;
        same_student(&config, &folder).expect("threads change no result");
        config.task.turn_limit = 7;
        assert!(same_student(&config, &folder).is_err(), "another limit of turns");
        config.task.turn_limit = 30;
        std::fs::write(&weights, b"others").expect("written");
        assert!(same_student(&config, &folder).is_err(), "another student");
        std::fs::remove_file(folder.join("settings.toml")).expect("removed");
        assert!(same_student(&config, &folder).is_err(), "nothing says whose it is");
    }
}
