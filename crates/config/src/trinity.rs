//! Reads a Trinity-RFT (TCOD) YAML file and maps what has a counterpart here.
//!
//! The paper's configuration tables keep that lineage's field names, so people who come from there bring such
//! files. Nothing is dropped silently: what has no counterpart is listed with the reason.

use std::path::Path;

use serde_json::Value as Yaml;
use toml::Value;

use crate::error::ConfigError;

/// A key that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapped {
    /// The key in the YAML file.
    pub from: String,
    /// The key here.
    pub to: &'static str,
    /// The value here.
    pub value: Value,
}

/// A key that was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmapped {
    /// The key in the YAML file.
    pub from: String,
    /// Why it has no counterpart.
    pub reason: String,
}

/// What became of a Trinity file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Import {
    /// Keys with a counterpart, in file order.
    pub mapped: Vec<Mapped>,
    /// Keys without.
    pub unmapped: Vec<Unmapped>,
    /// The algorithm the file names, where it is none of ours: the result then is not the same experiment.
    pub unknown_algorithm: Option<String>,
}

/// Why a key that no list has was not carried over.
const UNKNOWN: &str = "not known here";

impl Unmapped {
    /// Whether nothing at all is known of the key.
    pub fn is_unknown(&self) -> bool {
        self.reason == UNKNOWN
    }
}

/// The key that names the algorithm.
const ALGORITHM: &str = "algorithm.algorithm_type";
/// The one algorithm that is understood.
const DISTILLATION: &str = "on_policy_distill";

/// Keys whose value is carried over as it is.
const SAME_MEANING: &[(&str, &str)] = &[
    ("name", "name"),
    ("algorithm.repeat_times", "rollout.repeat_times"),
    ("algorithm.sample_strategy_args.max_staleness", "train.max_staleness"),
    ("algorithm.advantage_fn_args.kl_coef", "loss.kl_coef"),
    ("algorithm.optimizer.lr", "optimizer.lr"),
    ("algorithm.optimizer.betas.0", "optimizer.beta1"),
    ("algorithm.optimizer.betas.1", "optimizer.beta2"),
    ("algorithm.optimizer.weight_decay", "optimizer.weight_decay"),
    ("algorithm.policy_loss_fn_args.clip_range", "loss.clip"),
    ("model.model_path", "student.path"),
    ("model.max_prompt_tokens", "rollout.max_prompt_tokens"),
    ("model.max_response_tokens", "rollout.max_response_tokens"),
    ("buffer.total_steps", "train.steps"),
    ("buffer.batch_size", "rollout.batch_size"),
    ("buffer.train_batch_size", "train.batch_size"),
    ("buffer.explorer_input.taskset.split", "task.train_split"),
    ("buffer.explorer_input.taskset.rollout_args.temperature", "rollout.temperature"),
    ("buffer.explorer_input.taskset.workflow_args.max_env_steps", "task.turn_limit"),
    ("buffer.explorer_input.taskset.workflow_args.checkpoint_steps", "tcod.residence"),
    ("buffer.explorer_input.eval_tasksets.0.rollout_args.temperature", "eval.temperature"),
    ("explorer.eval_interval", "train.eval_interval"),
    ("explorer.runner_per_model", "eval.workers"),
    ("explorer.max_timeout", "eval.timeout_seconds"),
    ("explorer.auxiliary_models.0.model_path", "teacher.path"),
    ("trainer.total_steps", "train.steps"),
    ("trainer.save_interval", "train.save_interval"),
    ("trainer.grad_clip", "optimizer.grad_clip"),
];

/// Keys known to mean nothing here, with the reason. A trailing `*` stands for any ending.
const WITHOUT_COUNTERPART: &[(&str, &str)] = &[
    ("project", "runs are grouped by folder: see `output`"),
    ("checkpoint_root_dir", "use `output`"),
    ("continue_from_checkpoint", "resuming is a flag of the train command"),
    ("monitor.*", "metrics are written to the run folder whatever the monitor"),
    ("algorithm.advantage_fn", "implied by `loss.estimator` and `method`"),
    ("algorithm.sample_strategy", "rows are always bounded by `train.max_staleness`"),
    (
        "buffer.explorer_input.taskset.path",
        "task lists come with the benchmark: set `task.data` to its data",
    ),
    ("buffer.explorer_input.taskset.workflow_args.total_steps", "implied by `train.steps`"),
    (
        "buffer.explorer_input.taskset.workflow_args.checkpoint_strategy",
        "TCOD's clocks here are linear",
    ),
    (
        "buffer.explorer_input.taskset.rollout_args.logprobs",
        "log-probabilities are always collected",
    ),
    ("buffer.explorer_input.*", "the benchmark names its own tasks and splits"),
    ("buffer.trainer_input.*", "rows live in memory and in checkpoints, not in a database"),
    ("explorer.env_vars.*", "set environment variables in the shell"),
    ("explorer.*", "a setting of the serving engine itself: give it to that engine"),
    ("synchronizer.*", "a setting of the serving engine itself: give it to that engine"),
    ("trainer.use_dynamic_bsz", "rows are always packed without padding"),
    ("cluster.*", "servers and workers are sized where they are started"),
    ("trainer.max_token_len_per_gpu", "a setting of the training worker: give it to that worker"),
    (
        "trainer.ulysses_sequence_parallel_size",
        "a setting of the training worker: give it to that worker",
    ),
];

/// Reads a Trinity-RFT file.
pub fn import(path: &Path) -> Result<Import, ConfigError> {
    let text = crate::read::text(path)?;
    let syntax =
        |line: usize, message: String| ConfigError::Syntax { path: path.to_owned(), line, message };
    let yaml: Yaml = serde_saphyr::from_str(&text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line() as usize);
        let message = error.to_string();
        syntax(line, message.lines().next().unwrap_or("not valid YAML").to_owned())
    })?;
    if !yaml.is_object() {
        return Err(syntax(
            1,
            "expected a YAML mapping with sections such as `algorithm` and `buffer`".to_owned(),
        ));
    }
    let mut leaves = Vec::new();
    flatten(&yaml, String::new(), &mut leaves);
    let mut import = Import::default();
    for (key, value) in leaves {
        import.take(&key, value);
    }
    Ok(import)
}

impl Import {
    fn take(&mut self, key: &str, value: &Yaml) {
        if let (ALGORITHM, Yaml::String(kind)) = (key, value)
            && kind != DISTILLATION
        {
            self.unknown_algorithm = Some(kind.clone());
            let reason = format!("\"{kind}\" is not on-policy distillation (\"{DISTILLATION}\")");
            self.unmapped.push(Unmapped { from: key.to_owned(), reason });
            return;
        }
        if let Some(pairs) = translate(key, value) {
            for (to, value) in pairs {
                self.map(key, to, value);
            }
            return;
        }
        let same = SAME_MEANING.iter().find(|(from, _)| *from == key);
        if let (Some((_, to)), Some(value)) = (same, to_toml(value)) {
            self.map(key, to, value);
            return;
        }
        let reason = WITHOUT_COUNTERPART
            .iter()
            .find(|(pattern, _)| match pattern.strip_suffix('*') {
                Some(prefix) => key.starts_with(prefix),
                None => *pattern == key,
            })
            .map_or(UNKNOWN, |(_, reason)| *reason);
        self.unmapped.push(Unmapped { from: key.to_owned(), reason: reason.to_owned() });
    }

    /// Maps a key; a second, different value for the same key is listed, not silently preferred.
    fn map(&mut self, from: &str, to: &'static str, value: Value) {
        match self.mapped.iter().find(|mapped| mapped.to == to) {
            Some(earlier) if earlier.value != value => {
                let reason = format!("differs from `{}`, which was used for `{to}`", earlier.from);
                self.unmapped.push(Unmapped { from: from.to_owned(), reason });
            }
            Some(_) => {}
            None => self.mapped.push(Mapped { from: from.to_owned(), to, value }),
        }
    }

    /// The mapped keys as a configuration file.
    pub fn to_toml(&self) -> String {
        let mut top = String::new();
        let mut sections: Vec<(&str, String)> = Vec::new();
        for Mapped { to, value, .. } in &self.mapped {
            match to.split_once('.') {
                None => top.push_str(&format!("{to} = {value}\n")),
                Some((section, key)) => {
                    let line = format!("{key} = {value}\n");
                    match sections.iter_mut().find(|(name, _)| *name == section) {
                        Some((_, body)) => body.push_str(&line),
                        None => sections.push((section, line)),
                    }
                }
            }
        }
        for (section, body) in sections {
            top.push_str(&format!("\n[{section}]\n{body}"));
        }
        top
    }
}

/// Keys whose value means something else here.
fn translate(key: &str, value: &Yaml) -> Option<Vec<(&'static str, Value)>> {
    let word = |text: &str| Value::String(text.to_owned());
    match (key, value) {
        (ALGORITHM, Yaml::String(kind)) if kind == DISTILLATION => {
            Some(vec![("loss.estimator", word("k1_pg"))])
        }
        ("explorer.rollout_model.seed", Yaml::Number(seed)) => {
            let seed = seed.as_i64()?;
            Some(vec![("seeds", Value::Array(vec![Value::Integer(seed)]))])
        }
        ("algorithm.loss_agg_mode", Yaml::String(mode)) => match mode.as_str() {
            "token-mean" => Some(vec![("loss.aggregation", word("token-mean"))]),
            "seq-mean-token-mean" => Some(vec![("loss.aggregation", word("row-mean"))]),
            _ => None,
        },
        ("buffer.explorer_input.default_workflow_type", Yaml::String(workflow)) => {
            let workflow = workflow.to_lowercase();
            let find = |names: &[(&str, &str)]| {
                names.iter().find(|(part, _)| workflow.contains(part)).map(|(_, name)| word(name))
            };
            let method = find(&[
                ("f2b", "tcod-f2b"),
                ("b2f", "tcod-b2f"),
                ("guided", "guided-opd"),
                ("ftb", "futurebridge-opd"),
                ("opd", "opd"),
            ])?;
            let benchmark = find(&[
                ("alfworld", "alfworld"),
                ("webshop", "webshop"),
                ("scienceworld", "scienceworld"),
                ("sciworld", "scienceworld"),
            ])?;
            Some(vec![("method", method), ("task.benchmark", benchmark)])
        }
        _ => None,
    }
}

fn flatten<'y>(value: &'y Yaml, path: String, leaves: &mut Vec<(String, &'y Yaml)>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Yaml::Object(map) => map.iter().for_each(|(key, inner)| flatten(inner, join(key), leaves)),
        Yaml::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, inner)| flatten(inner, join(&index.to_string()), leaves)),
        leaf => leaves.push((path, leaf)),
    }
}

fn to_toml(value: &Yaml) -> Option<Value> {
    match value {
        Yaml::Bool(flag) => Some(Value::Boolean(*flag)),
        Yaml::Number(number) => match number.as_i64() {
            Some(integer) => Some(Value::Integer(integer)),
            None => number.as_f64().map(Value::Float),
        },
        // YAML 1.1 readers take `1e-6` for a number; a strict 1.2 reader may hand it over as text.
        Yaml::String(text) => Some(
            text.parse::<f64>()
                .ok()
                .filter(|_| text.contains('e'))
                .map_or_else(|| Value::String(text.clone()), Value::Float),
        ),
        _ => None,
    }
}
