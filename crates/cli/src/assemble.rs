//! From a configuration to the benchmark and the models it names.

use std::path::Path;
use std::sync::Arc;

use lens_config::schema::{Config, WeightsName};
use lens_engine::EngineError;
use lens_engine::native::{LearnerOptions, NativeEngine, NativeLearner, NativePolicy};
use lens_env::{Benchmark, registry};
use lens_lm::checkpoint::Checkpoint;
use lens_lm::kernels::packed::WeightFormat;
use lens_lm::train::AdamWConfig;

use crate::failure::Failure;

/// The benchmark a configuration names, narrowed to `task.kinds` if there are any.
pub(crate) fn benchmark(config: &Config) -> Result<Arc<dyn Benchmark>, Failure> {
    let task = &config.task;
    let options = task.options().map_err(|error| Failure::User(error.into()))?;
    let benchmark = registry::open(&task.benchmark, &options)
        .map_err(|error| Failure::User(anyhow::Error::new(error).context("[task]")))?;
    if !task.kinds.is_empty() {
        for split in task.eval_splits.iter().chain([&task.train_split]) {
            if benchmark.tasks(split)?.is_empty() {
                return Err(Failure::user(format!(
                    "task.kinds: the split {split} has no task of these kinds; choose another split or other kinds"
                )));
            }
        }
    }
    Ok(benchmark)
}

/// How weights are held.
pub(crate) fn weight_format(name: WeightsName) -> WeightFormat {
    match name {
        WeightsName::F32 => WeightFormat::F32,
        WeightsName::Bf16 => WeightFormat::Bf16,
        WeightsName::Int8 => WeightFormat::Int8,
    }
}

/// A model from its directory, with a word on what to do when it is not there.
pub(crate) fn policy(path: &Path, weights: WeightsName) -> Result<NativePolicy, Failure> {
    if !path.is_dir() {
        return Err(Failure::user_with_hint(
            format!("there is no model in {}", path.display()),
            "give a Hugging Face directory (`lens model convert` makes one from a GGUF file)",
        ));
    }
    NativePolicy::load(path, weight_format(weights)).map_err(|error| Failure::User(error.into()))
}

/// How the student of a configuration learns.
pub(crate) fn learner_options(config: &Config) -> LearnerOptions {
    let optimizer = &config.optimizer;
    LearnerOptions {
        format: weight_format(config.student.weights),
        loss: config.loss,
        optimizer: AdamWConfig {
            lr: optimizer.lr,
            betas: (optimizer.beta1, optimizer.beta2),
            eps: optimizer.epsilon,
            weight_decay: optimizer.weight_decay,
            clip: optimizer.grad_clip,
        },
        recompute: config.train.recompute,
    }
}

/// The student of a configuration, its teacher, and the learner.
pub(crate) fn engine(config: &Config) -> Result<NativeEngine, Failure> {
    let teacher = policy(&config.teacher.path, config.teacher.weights)?;
    let student = &config.student.path;
    if !student.is_dir() {
        return Err(Failure::user_with_hint(
            format!("there is no model in {} (student.path)", student.display()),
            "give a Hugging Face directory",
        ));
    }
    let user = |error: EngineError| Failure::User(error.into());
    let learner = NativeLearner::load(student, learner_options(config)).map_err(user)?;
    let files = Checkpoint::open(&config.teacher.path)?;
    NativeEngine::new(learner, Arc::new(teacher), &files).map_err(user)
}

/// This program as it was called, for commands that the user is told to go on with: whoever came through cargo has no
/// `lens` among the shell's commands.
pub(crate) fn called_as() -> String {
    std::env::args().next().unwrap_or_else(|| "lens".to_owned())
}

/// Sets the number of worker threads; 0 leaves one per core. Results do not depend on it.
pub(crate) fn set_threads(threads: usize) -> Result<(), Failure> {
    if threads > 0 {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()
            .map_err(|error| Failure::Runtime(error.into()))?;
    }
    Ok(())
}
