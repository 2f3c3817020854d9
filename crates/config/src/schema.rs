//! The configuration's shape and its defaults: the paper's tables 4 and 5.
//!
//! A section that belongs to a method or to the loss *is* that method's parameter struct and lives with it, in
//! `lens-opd`; the sections here belong to no method. Every section checks itself; `check` adds the rules that cross
//! sections.

use std::path::PathBuf;

use lens_env::remote::EnvironmentOptions;
use lens_env::webshop::GoalKind;
use lens_env::{BenchmarkOptions, EnvError, PromptTemplate, registry};
use lens_opd::OpdError;
use lens_opd::buffer::{MAX_STALENESS, Staleness, TRAIN_BATCH_ROWS};
use lens_opd::methods::{MethodName, MethodSections, RunFacts};
use lens_opd::objective::Loss;
use lens_opd::parameter::{MANY, count, number, positive, require};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Derives what every section has: serde with unknown keys refused, a schema, equality.
macro_rules! section {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty = $default:expr,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

/// Derives what every word list has.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// The words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    other => Err(format!("unknown value `{other}`, expected one of {}", Self::WORDS.join(", "))),
                }
            }
        }
    };
}

words! {
    /// What a turn's prompt contains of the past.
    ContextName {
        /// Each turn's prompt stands alone: the task, the latest steps, the present.
        Window = "window",
        /// Earlier turns also stay in the conversation.
        Chat = "chat",
    }
}

words! {
    /// How a response tells its action.
    ParserName {
        /// Between `<action>` and `</action>`.
        Tags = "tags",
        /// Under the key `action` of a JSON object.
        Json = "json",
        /// As a tool call: the call itself for tool environments, else the only text among its arguments.
        Tool = "tool",
    }
}

words! {
    /// How weights are held for generation and scoring.
    WeightsName {
        /// 32-bit floats.
        F32 = "f32",
        /// bfloat16 storage, f32 arithmetic.
        Bf16 = "bf16",
        /// bfloat16 storage, and what is multiplied with it is rounded to bfloat16 as well; f32 sums.
        Bf16Dot = "bf16-dot",
        /// 8-bit integers with a scale per row, f32 arithmetic.
        Int8 = "int8",
    }
}

words! {
    /// How the native engine keeps the keys and values of what a model has read.
    KvName {
        /// f32 with f32 weights, else bf16.
        Auto = "auto",
        /// 32-bit floats.
        F32 = "f32",
        /// bfloat16: half the memory, and half the traffic in decoding.
        Bf16 = "bf16",
    }
}

words! {
    /// How the optimizer's moments are kept.
    MomentsName {
        /// 32-bit floats.
        F32 = "f32",
        /// bfloat16, rounded at random so that the expected value is exact.
        Bf16 = "bf16",
        /// 8-bit codes with a scale per 256 values, rounded likewise.
        Int8 = "int8",
    }
}

words! {
    /// Whether activations are computed again in the backward pass instead of kept.
    RecomputeName {
        /// Kept, except those of a row too long for the room there is.
        Auto = "auto",
        /// Computed again: slower, with less memory.
        Always = "always",
        /// Kept, however long a row is.
        Never = "never",
    }
}

mod engines;

pub use engines::{EngineName, Learner, Lora, Model, ProjectionName, TransferName};

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// The run's name; also the name of its folder under `output`.
    pub name: String,
    /// Where run folders are made.
    pub output: PathBuf,
    /// Seeds; one run each.
    pub seeds: Vec<u64>,
    /// Worker threads; 0 means one per core. Results do not depend on it.
    pub threads: usize,
    /// Which method allocates supervision.
    pub method: MethodName,
    /// The benchmark and its data.
    pub task: Task,
    /// An environment in another process (`task.benchmark` "openenv", "agentgym" or "stdio").
    pub environment: EnvironmentOptions,
    /// What the model is told at every turn, and how its action is read.
    pub prompt: Prompt,
    /// The model that learns.
    pub student: Model,
    /// The model that teaches.
    pub teacher: Model,
    /// Who trains the student.
    pub learner: Learner,
    /// The methods' own sections.
    #[serde(flatten)]
    pub methods: MethodSections,
    /// The token loss.
    pub loss: Loss,
    /// AdamW.
    pub optimizer: Optimizer,
    /// How episodes are played in training.
    pub rollout: Rollout,
    /// The training loop.
    pub train: Train,
    /// How a student is evaluated.
    pub eval: Eval,
    /// Memory of models on this machine.
    pub memory: Memory,
}

impl Default for Config {
    fn default() -> Self {
        let model =
            |path: &str, weights| Model { path: PathBuf::from(path), weights, ..Model::default() };
        Self {
            name: "run".to_owned(),
            output: PathBuf::from("runs"),
            seeds: vec![42, 43, 44, 45, 46],
            threads: 0,
            method: MethodName::Lens,
            task: Task::default(),
            environment: EnvironmentOptions::default(),
            prompt: Prompt::default(),
            student: model("Qwen/Qwen3-1.7B", WeightsName::F32),
            teacher: model("Qwen/Qwen3-32B", WeightsName::Bf16),
            learner: Learner::default(),
            methods: MethodSections::default(),
            loss: Loss::default(),
            optimizer: Optimizer::default(),
            rollout: Rollout::default(),
            train: Train::default(),
            eval: Eval::default(),
            memory: Memory::default(),
        }
    }
}

impl Config {
    /// The same configuration with paths that mean the same in every folder.
    #[must_use]
    pub fn with_absolute_paths(mut self) -> Self {
        let absolute = |path: &mut PathBuf| {
            if !path.as_os_str().is_empty()
                && let Ok(full) = std::path::absolute(&path)
            {
                *path = full;
            }
        };
        absolute(&mut self.output);
        absolute(&mut self.task.data);
        if let Some(tasks) = &mut self.environment.tasks {
            absolute(tasks);
        }
        // A program's script is started from wherever the run is resumed.
        for word in &mut self.environment.command {
            let mut path = PathBuf::from(&*word);
            if path.is_file() {
                absolute(&mut path);
                *word = path.to_string_lossy().into_owned();
            }
        }
        absolute(&mut self.prompt.template);
        absolute(&mut self.student.key_file);
        absolute(&mut self.teacher.key_file);
        absolute(&mut self.learner.key_file);
        absolute(&mut self.learner.weights);
        // A model that is not here is named as its hub names it.
        for path in [&mut self.student.path, &mut self.teacher.path] {
            if path.exists() {
                absolute(path);
            }
        }
        let mut references = PathBuf::from(&self.task.references);
        if references.is_file() {
            absolute(&mut references);
            self.task.references = references.to_string_lossy().into_owned();
        }
        self
    }

    /// What the benchmark is opened with.
    pub fn benchmark_options(&self) -> Result<BenchmarkOptions, OpdError> {
        Ok(BenchmarkOptions { environment: self.environment.clone(), ..self.task.options()? })
    }

    /// The facts of the run of `seed` that methods depend on.
    pub fn facts(&self, seed: u64) -> RunFacts {
        RunFacts { seed, max_turns: self.task.turn_limit, steps: self.train.steps }
    }
}

section! {
    /// The benchmark and its data.
    Task {
        /// Which benchmark; splits, turn limit and history follow it unless they are set.
        benchmark: String = "alfworld".to_owned(),
        /// The official data (a folder or archive); empty means the games or catalog that are built in.
        data: PathBuf = PathBuf::new(),
        /// Which goals WebShop's sessions have: "synthetic" (default) or "human", the paper's.
        goals: String = String::new(),
        /// Only tasks of these kinds, in every split; empty means all.
        kinds: Vec<String> = Vec::new(),
        /// Successful episodes for methods that replay them: a file that `lens references collect` wrote, or "expert-plans"
        /// for the benchmark's own shortest solutions.
        references: String = String::new(),
        /// The split to train on.
        train_split: String = "train".to_owned(),
        /// The splits to evaluate on.
        eval_splits: Vec<String> = vec!["valid_seen".to_owned(), "valid_unseen".to_owned()],
        /// The longest episode in turns (ALFWorld and ScienceWorld 30, WebShop 15).
        turn_limit: usize = 30,
    }
}

section! {
    /// What the model is told at every turn, and how its action is read.
    Prompt {
        /// A file with the template of a turn's message; empty means the benchmark's own prompt.
        template: PathBuf = PathBuf::new(),
        /// What every conversation begins with, as the system's words; empty means nothing.
        system: String = String::new(),
        /// How a response tells its action.
        parser: ParserName = ParserName::Tags,
    }
}

section! {
    /// AdamW with FP32 master weights and a constant schedule.
    Optimizer {
        /// Learning rate.
        lr: f64 = 1e-6,
        /// Decay of the first moment.
        beta1: f64 = 0.9,
        /// Decay of the second moment.
        beta2: f64 = 0.999,
        /// Epsilon of the update.
        epsilon: f64 = 1e-8,
        /// Decoupled weight decay.
        weight_decay: f64 = 0.01,
        /// Global-norm gradient clipping.
        grad_clip: f64 = 1.0,
        /// How the native engine keeps both moments: "f32", "bf16" or "int8". Fewer bits take less memory and change the
        /// results a little; a resumed run continues with the same bits.
        moments: MomentsName = MomentsName::F32,
    }
}

section! {
    /// How episodes are played in training.
    Rollout {
        /// Tasks in one explorer batch ("batch size").
        batch_size: usize = 16,
        /// Episodes per task.
        repeat_times: usize = 1,
        /// Sampling temperature.
        temperature: f64 = 1.0,
        /// Longest prompt; longer ones drop the turn with a reason.
        max_prompt_tokens: usize = 10_240,
        /// Longest response.
        max_response_tokens: usize = 512,
        /// Past steps shown in every prompt.
        history: usize = 2,
        /// What a turn's prompt contains of the past.
        context: ContextName = ContextName::Window,
        /// Seconds before an explorer batch is cut off, its open turns counted as timeouts; 0 means never.
        timeout_seconds: u64 = 0,
    }
}

section! {
    /// The training loop.
    Train {
        /// Optimizer steps.
        steps: u64 = 250,
        /// Rows in one optimizer step ("train batch size").
        batch_size: usize = TRAIN_BATCH_ROWS,
        /// Rows of a version older than the step's index minus this are dropped.
        max_staleness: u64 = MAX_STALENESS,
        /// Whether rows are dropped for their age: "paper" drops them by `max_staleness`, "consume" trains on every
        /// explored row once.
        staleness: Staleness = Staleness::Paper,
        /// Tokens of student and teacher together, prompts included, after which the run ends; 0 means as many as
        /// `steps` need. Evaluation does not count.
        budget_tokens: u64 = 0,
        /// Optimizer steps between checkpoints.
        save_interval: u64 = 250,
        /// Optimizer steps between evaluations.
        eval_interval: u64 = 5,
        /// Checkpoints kept.
        keep_checkpoints: usize = 3,
        /// Non-finite steps in a row that stop the run.
        max_skipped_steps: u32 = 3,
        /// Whether activations are computed again in the backward pass instead of kept: "auto", "always" or "never".
        #[serde(deserialize_with = "recompute")]
        recompute: RecomputeName = RecomputeName::Auto,
        /// Whether the next explorer batch is played while the optimizer steps on the rows of the last one; rows are then
        /// one publication older, so `max_staleness` must allow for the steps of two batches, or they are dropped.
        overlap: bool = false,
    }
}

section! {
    /// Memory of models on this machine. Results do not depend on it.
    Memory {
        /// Megabytes for the keys and values of the native models: sequences under way, and prompts kept because others
        /// may begin alike. 0 means what a batch needs, at most a quarter of the machine.
        budget: u64 = 0,
    }
}

section! {
    /// How a student is evaluated.
    Eval {
        /// Longest response.
        max_tokens: usize = 4096,
        /// Sampling temperature.
        temperature: f64 = 0.4,
        /// Nucleus sampling.
        top_p: f64 = 1.0,
        /// Top-k sampling; -1 is off.
        top_k: i64 = -1,
        /// Min-p sampling.
        min_p: f64 = 0.0,
        /// Past steps shown in every prompt.
        history: usize = 2,
        /// Episodes played side by side.
        workers: usize = 8,
        /// Seconds before the evaluation of a split is cut off, its open episodes counted as failed; 0 means never.
        timeout_seconds: u64 = 3600,
        /// Tasks per split during training; 0 means all of them.
        tasks_during_training: usize = 0,
    }
}

impl Prompt {
    /// The template, read and checked; `None` where there is none.
    pub fn read_template(&self) -> Result<Option<PromptTemplate>, EnvError> {
        if self.template.as_os_str().is_empty() {
            return Ok(None);
        }
        PromptTemplate::read(&self.template).map(Some)
    }
}

/// Reads `train.recompute`; older files have true or false.
fn recompute<'de, D: serde::Deserializer<'de>>(value: D) -> Result<RecomputeName, D::Error> {
    struct Word;

    impl serde::de::Visitor<'_> for Word {
        type Value = RecomputeName;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "one of {}", RecomputeName::WORDS.join(", "))
        }

        fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<RecomputeName, E> {
            Ok(if value { RecomputeName::Always } else { RecomputeName::Auto })
        }

        fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<RecomputeName, E> {
            value.parse().map_err(E::custom)
        }
    }
    value.deserialize_any(Word)
}

fn counted(key: &'static str, value: usize, most: u64) -> Result<(), OpdError> {
    count(key, value as u64, 1..=most)
}

impl Task {
    fn check(&self) -> Result<(), OpdError> {
        let names: Vec<&str> = registry::names().collect();
        require(
            "task.benchmark",
            &self.benchmark,
            names.contains(&self.benchmark.as_str()),
            || format!("one of {}", names.join(", ")),
        )?;
        self.goal_kind()?;
        counted("task.turn_limit", self.turn_limit, 100_000)
    }

    fn goal_kind(&self) -> Result<Option<GoalKind>, OpdError> {
        match self.goals.as_str() {
            "" => Ok(None),
            "synthetic" => Ok(Some(GoalKind::Synthetic)),
            "human" => Ok(Some(GoalKind::Human)),
            other => Err(OpdError::Parameter {
                key: "task.goals",
                value: format!("\"{other}\""),
                expected: "\"synthetic\" or \"human\"".to_owned(),
            }),
        }
    }

    fn options(&self) -> Result<BenchmarkOptions, OpdError> {
        Ok(BenchmarkOptions {
            data: (!self.data.as_os_str().is_empty()).then(|| self.data.clone()),
            goals: self.goal_kind()?,
            kinds: self.kinds.clone(),
            ..BenchmarkOptions::default()
        })
    }
}

impl Optimizer {
    fn check(&self) -> Result<(), OpdError> {
        positive("optimizer.lr", self.lr, 1e3)?;
        let below_one = |value: f64| (0.0..1.0).contains(&value);
        for (key, beta) in [("optimizer.beta1", self.beta1), ("optimizer.beta2", self.beta2)] {
            require(key, beta, below_one(beta), || "at least 0 and below 1".to_owned())?;
        }
        positive("optimizer.epsilon", self.epsilon, 1.0)?;
        number("optimizer.weight_decay", self.weight_decay, 0.0..=1e3)?;
        positive("optimizer.grad_clip", self.grad_clip, 1e9)
    }
}

impl Rollout {
    fn check(&self) -> Result<(), OpdError> {
        counted("rollout.batch_size", self.batch_size, 100_000)?;
        counted("rollout.repeat_times", self.repeat_times, 10_000)?;
        positive("rollout.temperature", self.temperature, 100.0)?;
        counted("rollout.max_prompt_tokens", self.max_prompt_tokens, 10_000_000)?;
        counted("rollout.max_response_tokens", self.max_response_tokens, 10_000_000)?;
        count("rollout.history", self.history as u64, 0..=100_000)?;
        count("rollout.timeout_seconds", self.timeout_seconds, 0..=MANY * 1000)
    }
}

impl Train {
    fn check(&self) -> Result<(), OpdError> {
        count("train.steps", self.steps, 1..=1_000_000_000)?;
        counted("train.batch_size", self.batch_size, 1_000_000)?;
        count("train.max_staleness", self.max_staleness, 0..=1_000_000_000)?;
        count("train.save_interval", self.save_interval, 1..=1_000_000_000)?;
        count("train.eval_interval", self.eval_interval, 1..=1_000_000_000)?;
        counted("train.keep_checkpoints", self.keep_checkpoints, 100_000)?;
        count("train.max_skipped_steps", self.max_skipped_steps.into(), 1..=MANY)
    }
}

impl Eval {
    fn check(&self) -> Result<(), OpdError> {
        counted("eval.max_tokens", self.max_tokens, 10_000_000)?;
        number("eval.temperature", self.temperature, 0.0..=100.0)?;
        positive("eval.top_p", self.top_p, 1.0)?;
        let k = self.top_k;
        require("eval.top_k", k, k == -1 || (1..=10_000_000).contains(&k), || {
            "-1 (off) or at least 1".to_owned()
        })?;
        number("eval.min_p", self.min_p, 0.0..=1.0)?;
        count("eval.history", self.history as u64, 0..=100_000)?;
        counted("eval.workers", self.workers, 100_000)?;
        count("eval.timeout_seconds", self.timeout_seconds, 0..=MANY * 1000)?;
        count("eval.tasks_during_training", self.tasks_during_training as u64, 0..=1_000_000_000)
    }
}

impl Memory {
    fn check(&self) -> Result<(), OpdError> {
        count("memory.budget", self.budget, 0..=1_000_000_000)
    }
}

impl Config {
    /// Refuses values out of range, section by section.
    pub(crate) fn check_sections(&self) -> Result<(), OpdError> {
        count("threads", self.threads as u64, 0..=4096)?;
        self.task.check()?;
        self.train.check()?;
        self.methods.check(&self.facts(0))?;
        self.loss.check()?;
        self.optimizer.check()?;
        self.rollout.check()?;
        self.eval.check()?;
        self.memory.check()?;
        self.check_engines()
    }
}

/// The JSON schema of [`Config`], every section written out in place.
pub(crate) fn section_schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
}

/// The JSON schema of a configuration file, for editors: [`Config`] and `include`, which is read before it.
pub fn json_schema() -> serde_json::Value {
    let mut schema = section_schema();
    if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
        properties.insert(
            "include".to_owned(),
            serde_json::json!({
                "type": "array",
                "items": { "type": "string" },
                "description": "Files read before this one, relative to it."
            }),
        );
    }
    schema
}
