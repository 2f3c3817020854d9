//! From a configuration to the engines it names, on this machine or on others.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lens_config::schema::{Config, EngineName, Learner, Model, TransferName};
use lens_engine::http::{Endpoint, Key, Retry};
use lens_engine::native::{NativeCodec, NativeEngine};
use lens_engine::remote::{
    Served, ServedOptions, ServedPolicy, ServedTeacherEngine, ServerKind, TeacherPlace,
    TorchEngine, TorchOptions, Transfer, Worker,
};
use lens_engine::{Engine, EngineError, Policy};
use lens_lm::checkpoint::{Checkpoint, ModelFiles};

use crate::assemble::{self, section_policy};
use crate::failure::Failure;
use crate::memory;

/// The engine of a configuration. `resuming`: a checkpoint will be loaded into it.
pub(crate) fn engine(
    config: &Config,
    seed: u64,
    resuming: bool,
) -> Result<Box<dyn Engine>, Failure> {
    missing(config)?;
    if config.learner.engine == EngineName::Torch {
        return Ok(Box::new(torch(config, seed, resuming)?));
    }
    let learner = assemble::learner(config)?;
    if config.teacher.engine.is_served() {
        let teacher = served("teacher", &config.teacher, true)?;
        return Ok(Box::new(ServedTeacherEngine::new(learner, teacher).map_err(user)?));
    }
    let teacher = section_policy(&config.teacher, "teacher.path")?;
    let files = Checkpoint::open(&config.teacher.path)?;
    let mut engine = NativeEngine::new(learner, Arc::new(teacher), &files).map_err(user)?;
    engine.limit_caches(memory::budget(config, engine.kv_bytes_per_token()));
    Ok(Box::new(engine))
}

fn user(error: EngineError) -> Failure {
    Failure::User(error.into())
}

/// Models named as a hub names them that are nowhere here: what to get and what to start.
pub(crate) fn missing_from_hub(config: &Config) -> Result<(), Failure> {
    let is_hub_name = |path: &Path| path.is_relative() && path.components().count() == 2;
    let named = [&config.student.path, &config.teacher.path];
    if named.iter().any(|path| !path.exists() && is_hub_name(path)) {
        return missing(config);
    }
    Ok(())
}

/// Models that are nowhere: what to get and what to start.
fn missing(config: &Config) -> Result<(), Failure> {
    let models = [("student", &config.student), ("teacher", &config.teacher)];
    let absent: Vec<_> = models.iter().filter(|(_, model)| !model.path.is_dir()).collect();
    let Some((role, model)) = absent.first() else { return Ok(()) };
    let path = model.path.display();
    let both: Vec<String> =
        absent.iter().map(|(_, model)| model.path.display().to_string()).collect();
    Err(Failure::user_with_hint(
        format!("there is no model in `{path}` ({role}.path)"),
        format!(
            "1. hf download {} (or set student.path and teacher.path)\n\
             2. say who runs them: student.engine and teacher.engine = \"vllm\" or \"sglang\" with urls, learner.engine = \"torch\" with url and key_file\n\
             3. lens engine launch CONFIG starts the servers and the worker here (--print shows the commands; see docs/guides/gpu.md)\n\
             4. lens engine check CONFIG tries everything out\n\
             5. lens train CONFIG",
            both.join(" && hf download "),
        ),
    ))
}

/// A model's policy for playing alone: evaluation, references.
pub(crate) fn player(role: &str, model: &Model) -> Result<Box<dyn Policy>, Failure> {
    if model.engine.is_served() {
        return Ok(Box::new(ServedPolicy::frozen(served(role, model, false)?)));
    }
    Ok(Box::new(section_policy(model, &format!("{role}.path"))?))
}

/// Connects the servers of a model.
pub(crate) fn served(role: &str, model: &Model, scores: bool) -> Result<Arc<Served>, Failure> {
    let Model { engine, urls, .. } = model;
    let Model { concurrency, timeout_seconds, .. } = model;
    let kind = if *engine == EngineName::Sglang { ServerKind::SgLang } else { ServerKind::Vllm };
    let key = model_key(model)?;
    let endpoints =
        urls.iter().map(|url| Endpoint::new(url, key.clone())).collect::<Result<_, _>>();
    let options = ServedOptions {
        concurrency: *concurrency,
        timeout: Duration::from_secs(*timeout_seconds),
        retry: Retry::PATIENT,
        scores,
    };
    let connected = Served::connect(kind, endpoints.map_err(user)?, codec(&model.path)?, options);
    let connected = connected.map_err(|error| {
        Failure::User(
            anyhow::Error::new(error).context(format!("the {role}'s {} server", kind.name())),
        )
    })?;
    Ok(Arc::new(connected))
}

fn model_key(model: &Model) -> Result<Option<Key>, Failure> {
    let Model { key_env, key_file, .. } = model;
    key(key_env, key_file)
}

/// A key from the environment or a file.
pub(crate) fn key(variable: &str, file: &Path) -> Result<Option<Key>, Failure> {
    if !variable.is_empty() {
        return Key::from_env(variable).map(Some).map_err(user);
    }
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    Key::from_file(file).map(Some).map_err(user)
}

fn codec(path: &Path) -> Result<Arc<NativeCodec>, Failure> {
    Ok(Arc::new(NativeCodec::new(&ModelFiles::read(path)?).map_err(user)?))
}

/// A client of the configuration's worker.
pub(crate) fn worker(config: &Config) -> Result<Worker, Failure> {
    let Learner { url, key_env, key_file, .. } = &config.learner;
    let key =
        key(key_env, key_file)?.ok_or_else(|| Failure::user("learner.key_file names no key"))?;
    let limit = Duration::from_secs(config.learner.timeout_seconds);
    Worker::new(url, key, limit, Retry::default()).map_err(user)
}

/// Where published weights lie.
pub(crate) fn weights(config: &Config, seed: u64) -> PathBuf {
    if config.learner.weights.as_os_str().is_empty() {
        return config.output.join(&config.name).join(format!("weights-{seed}"));
    }
    config.learner.weights.join(format!("{}-{seed}", config.name))
}

fn torch(config: &Config, seed: u64, resuming: bool) -> Result<TorchEngine, Failure> {
    let worker = worker(config)?;
    let students = served("student", &config.student, false)?;
    let teacher = match config.teacher.engine {
        EngineName::Torch => TeacherPlace::Worker(codec(&config.teacher.path)?),
        EngineName::Native => {
            let teacher = section_policy(&config.teacher, "teacher.path")?;
            TeacherPlace::Native(Arc::new(teacher))
        }
        EngineName::Vllm | EngineName::Sglang => {
            TeacherPlace::Served(served("teacher", &config.teacher, !config.learner.holds_teacher)?)
        }
    };
    let learner = assemble::learner_options(config);
    let options = TorchOptions {
        loss: learner.loss,
        optimizer: learner.optimizer,
        weights: weights(config, seed),
        reload_timeout: Duration::from_secs(config.student.timeout_seconds),
        resuming,
        overlap: config.train.overlap,
        transfer: match config.learner.transfer {
            TransferName::Disk => Transfer::Disk,
            TransferName::Nccl => Transfer::Nccl,
        },
    };
    TorchEngine::connect(worker, students, teacher, options).map_err(user)
}
