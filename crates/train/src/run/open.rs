//! Starting a run, and resuming one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lens_agent::parse::ActionParser;
use lens_agent::{Context, Prompting, RolloutConfig};
use lens_config::schema::{ContextName, ParserName};
use lens_config::{Config, changes, render};
use lens_engine::{Deadline, Engine, Sampling};
use lens_env::remote::options::ActionFormat;
use lens_env::{Benchmark, Task};
use lens_opd::methods::Driver;
use lens_records::metrics::SpentTokens;

use super::watch::Watchdog;
use super::{METRICS_COPY, Progress, Run, RunInputs, State};
use crate::checkpoint::Checkpoints;
use crate::error::TrainError;
use crate::evaluate::Evaluator;
use crate::files::{claim, free_megabytes, set_aside, write_atomically};
use crate::inputs::Inputs;
use crate::iteration::Rollout;
use crate::queue::Queue;
use crate::references::References;
use crate::run_log::RunLog;
use crate::tasks::TaskOrder;

/// What to do about a folder that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Refuse it, unless no step was taken in it.
    New,
    /// Resume it.
    Resume,
    /// Move it aside and start over.
    Replace,
}

impl Run {
    /// Starts a run in a folder of its own, or resumes the one that is there. Nothing is written before everything that
    /// can be checked has been.
    pub fn open(
        inputs: RunInputs,
        opening: Opening,
        progress: &mut dyn Progress,
    ) -> Result<Self, TrainError> {
        let RunInputs { config, seed, benchmark, mut engine } = inputs;
        let config = config.with_absolute_paths();
        let folder = Self::folder(&config, seed);
        let mut method = Driver::new(config.method, &config.methods, config.facts(seed))?;
        let references = Arc::new(References::open(&config.task.references)?);
        if method.needs().reference_actions && *references == References::None {
            return Err(TrainError::NoReferences { method: config.method });
        }
        if config.train.overlap {
            engine.check_overlap()?;
        }
        let eval_sets = eval_sets(&config, &*benchmark)?;
        let order = TaskOrder::new(benchmark.tasks(&config.task.train_split)?, seed);
        let rollout_config = rollout_config(&config, &benchmark)?;
        let hashes = Inputs::of(&config)?;

        let begun = prepare_folder(&folder, opening, progress)?;
        let mut checkpoints = Checkpoints::new(folder.join("checkpoints"));
        make_room(&config, &folder, &checkpoints, &*engine)?;
        let claim = claim(&folder)?;
        let mut state = State {
            batch: 0,
            step: 0,
            method: method.state(),
            metrics_length: 0,
            skipped_in_a_row: 0,
            skipped: 0,
            evaluated: None,
            best: None,
            spent: SpentTokens::default(),
        };
        let mut queue = Queue::default();
        if begun {
            hashes.check(&folder)?;
            if let Some((path, saved, rows)) =
                resume(&folder, &mut checkpoints, &mut *engine, progress)?
            {
                check_changes(&folder, &path, &config, progress)?;
                method.restore(&saved.method)?;
                mend_metrics(&folder, &path, saved.metrics_length, progress)?;
                (state, queue) = (saved, rows);
            } else {
                progress.note("no checkpoint was saved yet: the run starts again at step 0");
                mend_metrics(&folder, &folder, 0, progress)?;
            }
        }
        hashes.write(&folder)?;
        write_atomically(&folder.join("config.toml"), render::to_toml(&config).as_bytes())?;
        let log = RunLog::open(&folder, state.metrics_length, state.step, state.batch)?;
        Ok(Self {
            evaluator: evaluator(&config, &rollout_config),
            rollout: rollout(&config, rollout_config, seed, references),
            config,
            seed,
            folder,
            method,
            engine,
            order,
            eval_sets,
            queue,
            checkpoints,
            log,
            state,
            watchdog: Watchdog::default(),
            _claim: claim,
        })
    }
}

/// Makes the folder, or decides what to do with the one that is there; whether a run is resumed.
fn prepare_folder(
    folder: &Path,
    opening: Opening,
    progress: &mut dyn Progress,
) -> Result<bool, TrainError> {
    let begun = folder.join("config.toml").exists();
    match opening {
        Opening::Resume => return Ok(begun),
        Opening::Replace if begun => {
            let aside = set_aside(folder)?;
            progress.note(&format!("the run that was here is now in {}", aside.display()));
        }
        Opening::New if begun && has_steps(folder) => {
            return Err(TrainError::Folder {
                path: folder.to_owned(),
                message: "a run is here already".to_owned(),
            });
        }
        Opening::New | Opening::Replace => {}
    }
    std::fs::create_dir_all(folder).map_err(TrainError::file("make", folder))?;
    Ok(false)
}

/// Whether anything would be lost with a run's folder.
fn has_steps(folder: &Path) -> bool {
    let metrics = std::fs::metadata(folder.join("metrics.jsonl")).map_or(0, |data| data.len());
    metrics > 0 || !Checkpoints::new(folder.join("checkpoints")).steps().is_empty()
}

type Resumed = (PathBuf, State, Queue);

/// The newest usable checkpoint, loaded. Checkpoints of which none is usable are an error: starting over would lose them.
fn resume(
    folder: &Path,
    checkpoints: &mut Checkpoints,
    engine: &mut dyn Engine,
    progress: &mut dyn Progress,
) -> Result<Option<Resumed>, TrainError> {
    let (found, damaged) = checkpoints.resume(|path| {
        let state = read_state(path)?;
        let queue = Queue::load(engine, path)?;
        Ok((state, queue))
    })?;
    if !damaged.is_empty() {
        progress.damaged(&damaged);
    }
    match found {
        Some((step, (state, queue))) => Ok(Some((checkpoints.path(step), state, queue))),
        None if damaged.is_empty() => Ok(None),
        None => Err(TrainError::NoUsableCheckpoint { folder: folder.to_owned(), damaged }),
    }
}

fn read_state(checkpoint: &Path) -> Result<State, TrainError> {
    let path = checkpoint.join("state/state.json");
    let json = std::fs::read(&path).map_err(TrainError::file("read", &path))?;
    serde_json::from_slice(&json)
        .map_err(|error| TrainError::Checkpoint { path, message: error.to_string() })
}

/// Tells what differs from the configuration that wrote the checkpoint, and refuses what must not.
fn check_changes(
    folder: &Path,
    checkpoint: &Path,
    config: &Config,
    progress: &mut dyn Progress,
) -> Result<(), TrainError> {
    let path = checkpoint.join("config.toml");
    // Checkpoints of earlier releases have no copy; theirs is the run's own file.
    if !path.exists() {
        return Ok(());
    }
    let began = lens_config::resolve(std::slice::from_ref(&path), &[]).map_err(|error| {
        TrainError::Checkpoint { path: path.clone(), message: error.to_string() }
    })?;
    for change in changes::between(&began.config, config) {
        if !change.is_allowed() {
            return Err(TrainError::Changed {
                path: folder.to_owned(),
                what: format!("`{}`", change.key),
                difference: format!("it was {} and is {}", change.before, change.after),
            });
        }
        progress.note(&format!(
            "`{}` is {} from here on; it was {}",
            change.key, change.after, change.before
        ));
    }
    Ok(())
}

/// Puts `metrics.jsonl` into the state the checkpoint recorded: what was written after it is kept aside, and a file that
/// is damaged, short or gone is rebuilt from the checkpoint's copy.
fn mend_metrics(
    folder: &Path,
    checkpoint: &Path,
    length: u64,
    progress: &mut dyn Progress,
) -> Result<(), TrainError> {
    let path = folder.join("metrics.jsonl");
    let found = match std::fs::read(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(TrainError::file("read", &path)(error)),
    };
    let copy = checkpoint.join("state").join(METRICS_COPY);
    let wanted = match std::fs::read(&copy) {
        Ok(packed) => {
            Some(zstd::decode_all(packed.as_slice()).map_err(TrainError::file("read", &copy))?)
        }
        Err(_) => None,
    };
    let kept = found.get(..length as usize);
    match wanted {
        Some(wanted) if kept != Some(wanted.as_slice()) => {
            if !found.is_empty() {
                write_atomically(&folder.join("metrics.damaged.jsonl"), &found)?;
            }
            write_atomically(&path, &wanted)?;
            progress.note(
                "metrics.jsonl did not hold what the checkpoint recorded; it was rebuilt from the checkpoint, and the \
                 file that was there is metrics.damaged.jsonl",
            );
        }
        None if kept.is_none() => {
            return Err(TrainError::Checkpoint {
                path,
                message: format!("it is shorter than the {length} bytes the checkpoint recorded"),
            });
        }
        _ => {}
    }
    // A resumed run writes these lines again; the copy is for a run that someone continues differently.
    match found.get(length as usize..) {
        Some(tail) if !tail.is_empty() => {
            write_atomically(&folder.join("metrics.discarded.jsonl"), tail)
        }
        _ => Ok(()),
    }
}

/// Refuses to start where the disk would fill up.
fn make_room(
    config: &Config,
    folder: &Path,
    checkpoints: &Checkpoints,
    engine: &dyn Engine,
) -> Result<(), TrainError> {
    // One more than is kept, because a new checkpoint is whole before an old one goes, and one for the best.
    let most = config.train.keep_checkpoints as u64 + 2;
    let more = most.saturating_sub(checkpoints.steps().len() as u64).max(1);
    let needed = engine.checkpoint_bytes().saturating_mul(more) / 1_000_000 + 50;
    match free_megabytes(folder) {
        Some(free) if free < needed => {
            Err(TrainError::Disk { path: folder.to_owned(), free, needed })
        }
        _ => Ok(()),
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

fn timeout(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// What training episodes of a configuration have in common.
pub fn rollout_config(
    config: &Config,
    benchmark: &Arc<dyn Benchmark>,
) -> Result<RolloutConfig, TrainError> {
    Ok(RolloutConfig {
        benchmark: benchmark.clone(),
        prompting: prompting(config)?,
        context: match config.rollout.context {
            ContextName::Window => Context::Window,
            ContextName::Chat => Context::Chat,
        },
        history: config.rollout.history,
        turn_limit: config.task.turn_limit,
        max_prompt_tokens: config.rollout.max_prompt_tokens,
        max_response_tokens: config.rollout.max_response_tokens,
        timeout: timeout(config.rollout.timeout_seconds),
        deadline: Deadline::never(),
    })
}

/// What a configuration says about messages and actions.
pub fn prompting(config: &Config) -> Result<Prompting, TrainError> {
    let system = &config.prompt.system;
    let takes_calls = config.environment.action_format == ActionFormat::Tool;
    Ok(Prompting {
        template: config.prompt.read_template()?,
        system: (!system.is_empty()).then(|| system.clone()),
        parser: match config.prompt.parser {
            ParserName::Tags => ActionParser::Tags,
            ParserName::Json => ActionParser::Json,
            ParserName::Tool if takes_calls => ActionParser::ToolCall,
            ParserName::Tool => ActionParser::ToolText,
        },
    })
}

/// How a configuration plays and audits explorer batches.
pub fn rollout(
    config: &Config,
    rollout_config: RolloutConfig,
    seed: u64,
    references: Arc<References>,
) -> Rollout {
    Rollout {
        config: rollout_config,
        seed,
        sampling: Sampling::at(config.rollout.temperature as f32),
        repeat_times: config.rollout.repeat_times,
        references,
    }
}

/// How a configuration evaluates.
pub fn evaluator(config: &Config, rollout_config: &RolloutConfig) -> Evaluator {
    let eval = &config.eval;
    Evaluator {
        config: RolloutConfig {
            history: eval.history,
            max_response_tokens: eval.max_tokens,
            timeout: timeout(eval.timeout_seconds),
            ..rollout_config.clone()
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
