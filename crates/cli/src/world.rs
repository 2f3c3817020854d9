//! From a configuration to the benchmark and the models it names.

use std::path::Path;
use std::sync::Arc;

use lens_config::method::loss_params;
use lens_config::schema::{Config, WeightsName};
use lens_engine::native::{LearnerOptions, NativeLearner, NativePolicy};
use lens_env::{Benchmark, BenchmarkOptions, EnvError, TaskFilter, registry};
use lens_lm::kernels::packed::WeightFormat;
use lens_lm::train::AdamWConfig;

use crate::failure::Failure;

/// The benchmark a configuration names, narrowed to `task.kinds` if there are any.
pub(crate) fn benchmark(config: &Config) -> Result<Arc<dyn Benchmark>, Failure> {
    let task = &config.task;
    let user =
        |error: EnvError, key: &'static str| Failure::User(anyhow::Error::new(error).context(key));
    let options = BenchmarkOptions {
        data: (!task.data.as_os_str().is_empty()).then(|| task.data.clone()),
        ..BenchmarkOptions::default()
    };
    let whole = registry::open(&task.benchmark.to_string(), &options)
        .map_err(|error| user(error, "task"))?;
    if task.kinds.is_empty() {
        return Ok(whole);
    }
    let narrowed =
        TaskFilter::new(whole, &task.kinds).map_err(|error| user(error, "task.kinds"))?;
    for split in task.eval_splits.iter().chain([&task.train_split]) {
        if narrowed.tasks(split)?.is_empty() {
            return Err(Failure::user(format!(
                "task.kinds: the split {split} has no task of these kinds; choose another split or other kinds"
            )));
        }
    }
    Ok(Arc::new(narrowed))
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
        return Err(Failure::user(format!(
            "there is no model in {}; give a Hugging Face directory (`lens model convert` makes one from a GGUF file)",
            path.display()
        )));
    }
    NativePolicy::load(path, weight_format(weights)).map_err(|error| Failure::User(error.into()))
}

/// How the student of a configuration learns.
pub(crate) fn learner_options(config: &Config) -> LearnerOptions {
    let optimizer = &config.optimizer;
    LearnerOptions {
        format: weight_format(config.student.weights),
        loss: loss_params(config),
        top_k: config.loss.top_k,
        optimizer: AdamWConfig {
            lr: optimizer.lr,
            betas: (optimizer.beta1, optimizer.beta2),
            eps: optimizer.epsilon,
            weight_decay: optimizer.weight_decay,
            clip: optimizer.grad_clip,
        },
        recompute: false,
    }
}

/// Teacher and student of a configuration.
pub(crate) fn models(config: &Config) -> Result<(Arc<NativePolicy>, NativeLearner), Failure> {
    let teacher = Arc::new(policy(&config.teacher.path, config.teacher.weights)?);
    let student = &config.student.path;
    if !student.is_dir() {
        return Err(Failure::user(format!(
            "there is no model in {} (student.path); give a Hugging Face directory",
            student.display()
        )));
    }
    let learner = NativeLearner::load(
        student,
        Some((teacher.clone(), config.teacher.path.as_path())),
        learner_options(config),
    )
    .map_err(|error| Failure::User(error.into()))?;
    Ok((teacher, learner))
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
