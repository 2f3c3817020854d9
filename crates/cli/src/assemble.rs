//! From a configuration to the benchmark and the models it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_config::schema::{
    Config, EngineName, KvName, Model, MomentsName, ProjectionName, RecomputeName, WeightsName,
};
use lens_engine::EngineError;
use lens_engine::native::{LearnerOptions, NativeEngine, NativeLearner, NativePolicy};
use lens_env::{Benchmark, EnvError, registry};
use lens_lm::cache::KvFormat;
use lens_lm::checkpoint::Checkpoint;
use lens_lm::model::WeightFormat;
use lens_lm::train::{
    AdamWConfig, LoraOptions, MomentFormat, Projection, Recompute, TrainerOptions,
};

use crate::failure::Failure;
use crate::memory;

/// The benchmark a configuration names, narrowed to `task.kinds` if there are any.
pub(crate) fn benchmark(config: &Config) -> Result<Arc<dyn Benchmark>, Failure> {
    let task = &config.task;
    let options = config.benchmark_options().map_err(|error| Failure::User(error.into()))?;
    let benchmark = registry::open(&task.benchmark, &options).map_err(|error| {
        let context = match &error {
            EnvError::Unknown { what: "kind of task", .. } => {
                "`task.kinds` cannot be used".to_owned()
            }
            _ => format!("cannot open the benchmark `{}` of section [task]", task.benchmark),
        };
        Failure::User(anyhow::Error::new(error).context(context))
    })?;
    if !task.kinds.is_empty() {
        for split in task.eval_splits.iter().chain([&task.train_split]) {
            if benchmark.tasks(split)?.is_empty() {
                return Err(Failure::user_with_hint(
                    format!("task.kinds: the split `{split}` has no task of these kinds"),
                    "choose another split or other kinds",
                ));
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
        WeightsName::Bf16Dot => WeightFormat::Bf16Dot,
        WeightsName::Int8 => WeightFormat::Int8,
    }
}

/// How the optimizer's moments are kept.
pub(crate) fn moment_format(name: MomentsName) -> MomentFormat {
    match name {
        MomentsName::F32 => MomentFormat::F32,
        MomentsName::Bf16 => MomentFormat::Bf16,
        MomentsName::Int8 => MomentFormat::Int8,
    }
}

/// How keys and values are kept.
pub(crate) fn kv_format(name: KvName, weights: WeightFormat) -> KvFormat {
    match name {
        KvName::Auto => KvFormat::of(weights),
        KvName::F32 => KvFormat::F32,
        KvName::Bf16 => KvFormat::Bf16,
    }
}

/// Where a model lies that a configuration key or an option names: a directory, or a name such as `Qwen/Qwen3-1.7B` whose
/// snapshot is in the Hugging Face cache.
pub(crate) fn model_folder(path: &Path, key: &str) -> Result<PathBuf, Failure> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    let missing = format!("there is no model in `{}` ({key})", path.display());
    let Some((organization, name)) = hub_name(path) else {
        return Err(Failure::user_with_hint(
            missing,
            "give a Hugging Face directory; `lens model convert` makes one from a GGUF file",
        ));
    };
    hub_cache().and_then(|cache| cached_snapshot(&cache, organization, name)).ok_or_else(|| {
        let other = if key.contains('.') {
            format!("use another model with --set {key}=FOLDER")
        } else {
            "give a folder".to_owned()
        };
        Failure::user_with_hint(
            missing,
            format!("download it with `hf download {organization}/{name}`, or {other}"),
        )
    })
}

/// The two parts of a name on the Hugging Face hub.
fn hub_name(path: &Path) -> Option<(&str, &str)> {
    let (organization, name) = path.to_str()?.split_once('/')?;
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('/');
    (plain(organization) && plain(name)).then_some((organization, name))
}

/// The folder of the Hugging Face cache.
fn hub_cache() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(cache) = variable("HF_HUB_CACHE") {
        return Some(cache.into());
    }
    let home = variable("HF_HOME").map(PathBuf::from);
    let default = || Some(PathBuf::from(variable("HOME")?).join(".cache/huggingface"));
    Some(home.or_else(default)?.join("hub"))
}

/// The snapshot that a model's main branch points to.
fn cached_snapshot(cache: &Path, organization: &str, name: &str) -> Option<PathBuf> {
    let model = cache.join(format!("models--{organization}--{name}"));
    let commit = std::fs::read_to_string(model.join("refs/main")).ok()?;
    let snapshot = model.join("snapshots").join(commit.trim());
    snapshot.join("config.json").is_file().then_some(snapshot)
}

/// The configuration with its models found.
pub(crate) fn with_models(config: &Config) -> Result<Config, Failure> {
    let mut config = config.clone();
    config.student.path = model_folder(&config.student.path, "student.path")?;
    config.teacher.path = model_folder(&config.teacher.path, "teacher.path")?;
    Ok(config)
}

/// A model from its directory; `key` is where its name came from.
pub(crate) fn policy(
    path: &Path,
    key: &str,
    weights: WeightsName,
) -> Result<NativePolicy, Failure> {
    let folder = model_folder(path, key)?;
    NativePolicy::load(&folder, weight_format(weights)).map_err(|error| Failure::User(error.into()))
}

/// A model of a configuration's section.
pub(crate) fn section_policy(model: &Model, key: &str) -> Result<NativePolicy, Failure> {
    policy(&model.path, key, model.weights)?
        .with_kv_format(kv_format(model.kv_cache, weight_format(model.weights)))
        .map_err(|error| Failure::User(error.into()))
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
        training: trainer_options(config),
    }
}

/// Whether activations are kept.
pub(crate) fn recompute(name: RecomputeName) -> Recompute {
    match name {
        RecomputeName::Auto => Recompute::Auto,
        RecomputeName::Always => Recompute::Always,
        RecomputeName::Never => Recompute::Never,
    }
}

/// What of the student is trained, and how memory is used.
pub(crate) fn trainer_options(config: &Config) -> TrainerOptions {
    let learner = &config.learner;
    TrainerOptions {
        recompute: recompute(config.train.recompute),
        moments: moment_format(config.optimizer.moments),
        lora: (learner.lora.rank > 0).then(|| LoraOptions {
            rank: learner.lora.rank,
            alpha: learner.lora.alpha,
            targets: learner.lora.targets.iter().copied().map(projection).collect(),
            seed: learner.lora.seed,
            bf16_base: config.student.weights != WeightsName::F32,
        }),
        ..TrainerOptions::default()
    }
}

fn projection(name: ProjectionName) -> Projection {
    match name {
        ProjectionName::Q => Projection::Q,
        ProjectionName::K => Projection::K,
        ProjectionName::V => Projection::V,
        ProjectionName::O => Projection::O,
        ProjectionName::Gate => Projection::Gate,
        ProjectionName::Up => Projection::Up,
        ProjectionName::Down => Projection::Down,
    }
}

/// The student of a configuration, ready to learn.
pub(crate) fn learner(config: &Config) -> Result<NativeLearner, Failure> {
    let options = learner_options(config);
    let mut learner = NativeLearner::load(&config.student.path, options)
        .map_err(|error| Failure::User(error.into()))?;
    learner.set_kv_format(kv_format(config.student.kv_cache, options.format));
    Ok(learner)
}

/// The student of a configuration, its teacher, and the learner, all on this machine.
pub(crate) fn engine(config: &Config) -> Result<NativeEngine, Failure> {
    let engines = [config.student.engine, config.teacher.engine, config.learner.engine];
    if engines.iter().any(|&engine| engine != EngineName::Native) {
        return Err(Failure::user_with_hint(
            "this command measures models on this machine, and the configuration names servers",
            "pass --set student.engine=native, and the same for teacher and learner",
        ));
    }
    let config = with_models(config)?;
    let teacher = section_policy(&config.teacher, "teacher.path")?;
    let user = |error: EngineError| Failure::User(error.into());
    let learner = learner(&config)?;
    let files = Checkpoint::open(&config.teacher.path)?;
    let mut engine = NativeEngine::new(learner, Arc::new(teacher), &files).map_err(user)?;
    engine.limit_caches(memory::budget(&config, engine.kv_bytes_per_token()));
    Ok(engine)
}

/// This program as it was called, for commands that the user is told to run next: with cargo, `lens` is not among the
/// shell's commands.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_name_is_found_in_the_cache_by_its_main_branch() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let model = cache.path().join("models--Qwen--Qwen3-1.7B");
        let snapshot = model.join("snapshots/abc");
        std::fs::create_dir_all(&snapshot).expect("a folder");
        std::fs::create_dir_all(model.join("refs")).expect("a folder");
        std::fs::write(model.join("refs/main"), "abc\n").expect("a file");
        assert_eq!(cached_snapshot(cache.path(), "Qwen", "Qwen3-1.7B"), None, "no config.json");
        std::fs::write(snapshot.join("config.json"), "{}").expect("a file");
        assert_eq!(cached_snapshot(cache.path(), "Qwen", "Qwen3-1.7B"), Some(snapshot));
        assert_eq!(cached_snapshot(cache.path(), "Qwen", "Qwen3-4B"), None);
    }

    #[test]
    fn only_two_plain_parts_are_a_hub_name() {
        assert_eq!(hub_name(Path::new("Qwen/Qwen3-1.7B")), Some(("Qwen", "Qwen3-1.7B")));
        for path in ["model", "./model", "/a/b", "a/b/c", "../b", "a/"] {
            assert_eq!(hub_name(Path::new(path)), None, "{path}");
        }
    }
}
