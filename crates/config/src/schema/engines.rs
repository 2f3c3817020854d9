//! Where models are and who trains them.

use std::path::PathBuf;

use lens_opd::OpdError;
use lens_opd::methods::Driver;
use lens_opd::objective::Estimator;
use lens_opd::parameter::{count, number, positive, require};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, KvName, WeightsName};

words! {
    /// Who runs a model, or trains it.
    EngineName {
        /// This program, on this machine's CPU.
        Native = "native",
        /// vLLM servers.
        Vllm = "vllm",
        /// SGLang servers.
        Sglang = "sglang",
        /// The training worker, in PyTorch.
        Torch = "torch",
    }
}

words! {
    /// A linear layer of a model's blocks.
    ProjectionName {
        /// Queries.
        Q = "q_proj",
        /// Keys.
        K = "k_proj",
        /// Values.
        V = "v_proj",
        /// Attention's output.
        O = "o_proj",
        /// The feed-forward layer's gate.
        Gate = "gate_proj",
        /// The feed-forward layer's input.
        Up = "up_proj",
        /// The feed-forward layer's output.
        Down = "down_proj",
    }
}

section! {
    /// A model in a Hugging Face directory, and who runs it.
    Model {
        /// The directory; of a served model, its tokenizer and configuration are read here.
        path: PathBuf = PathBuf::new(),
        /// How the native engine holds its weights for generation and scoring; what is trained is
        /// always f32, and a model frozen under adapters (`learner.lora`) is kept in f32 or, with
        /// any other value, in bf16.
        weights: WeightsName = WeightsName::F32,
        /// How the native engine keeps keys and values: "f32", "bf16", or "auto", f32 with f32 weights and else bf16.
        kv_cache: KvName = KvName::Auto,
        /// Who runs it: "native", "vllm" or "sglang"; a teacher that only scores may be in the worker, "torch".
        engine: EngineName = EngineName::Native,
        /// The servers' addresses, such as "http://10.0.0.5:8000"; several share the load.
        urls: Vec<String> = Vec::new(),
        /// The environment variable that holds the servers' key.
        key_env: String = String::new(),
        /// The file that holds the servers' key.
        key_file: PathBuf = PathBuf::new(),
        /// Calls in flight at once, over all servers.
        concurrency: usize = 64,
        /// Seconds one call may take.
        timeout_seconds: u64 = 600,
        /// GPUs that one server splits the model over (`lens engine launch`).
        tensor_parallel: usize = 1,
        /// The share of each GPU's memory that a server takes (`lens engine launch`).
        memory_share: f64 = 0.9,
        /// Further arguments of the servers' command (`lens engine launch`).
        flags: Vec<String> = Vec::new(),
    }
}

words! {
    /// How new weights get to a served student.
    TransferName {
        /// The worker writes a folder, and the servers load it.
        Disk = "disk",
        /// The worker sends tensors over NCCL straight into the servers' memory.
        Nccl = "nccl",
    }
}

section! {
    /// Low-rank adapters, trained instead of the student's own weights. Published and saved students have them merged in.
    Lora {
        /// The rank of every adapter; 0 means that the whole student is trained.
        rank: usize = 0,
        /// The adapters' product is multiplied by `alpha / rank`.
        alpha: f64 = 32.0,
        /// The layers that have one.
        targets: Vec<ProjectionName> = vec![
            ProjectionName::Q,
            ProjectionName::K,
            ProjectionName::V,
            ProjectionName::O,
            ProjectionName::Gate,
            ProjectionName::Up,
            ProjectionName::Down,
        ],
        /// Names the adapters' initial values.
        seed: u64 = 0,
    }
}

section! {
    /// Who trains the student.
    Learner {
        /// "native" (this machine's CPU) or "torch" (the training worker).
        engine: EngineName = EngineName::Native,
        /// The worker's address, such as "http://127.0.0.1:7000".
        url: String = String::new(),
        /// The environment variable that holds the worker's token.
        key_env: String = String::new(),
        /// The file that holds the worker's token.
        key_file: PathBuf = PathBuf::new(),
        /// Where published weights lie, on storage that this machine, the worker and the servers share; empty means a
        /// folder beside the run.
        weights: PathBuf = PathBuf::new(),
        /// How new weights get to the student's servers: "disk", or "nccl" from GPU to GPU.
        transfer: TransferName = TransferName::Disk,
        /// Whether the worker holds the teacher too: then divergences are exact.
        holds_teacher: bool = false,
        /// GPUs it trains on (`lens engine launch`).
        gpus: usize = 1,
        /// Tokens in one micro-batch on one GPU (`lens engine launch`).
        tokens_per_gpu: u64 = 16_384,
        /// Further arguments of the worker's command (`lens engine launch`).
        flags: Vec<String> = Vec::new(),
        /// Seconds one command may take.
        timeout_seconds: u64 = 3600,
        /// Low-rank adapters, trained instead of the student's own weights.
        lora: Lora = Lora::default(),
    }
}

impl EngineName {
    /// Whether it is a server.
    pub fn is_served(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }
}

/// The keys of a model's section, for messages.
struct ModelKeys {
    urls: &'static str,
    key_file: &'static str,
    concurrency: &'static str,
    timeout: &'static str,
    tensor_parallel: &'static str,
    memory_share: &'static str,
}

const STUDENT: ModelKeys = ModelKeys {
    urls: "student.urls",
    key_file: "student.key_file",
    concurrency: "student.concurrency",
    timeout: "student.timeout_seconds",
    tensor_parallel: "student.tensor_parallel",
    memory_share: "student.memory_share",
};

const TEACHER: ModelKeys = ModelKeys {
    urls: "teacher.urls",
    key_file: "teacher.key_file",
    concurrency: "teacher.concurrency",
    timeout: "teacher.timeout_seconds",
    tensor_parallel: "teacher.tensor_parallel",
    memory_share: "teacher.memory_share",
};

impl Model {
    fn check(&self, keys: &ModelKeys) -> Result<(), OpdError> {
        let found = format!("{} addresses", self.urls.len());
        require(keys.urls, found, self.engine.is_served() != self.urls.is_empty(), || {
            if self.engine.is_served() {
                format!("one address or more with engine = \"{}\"", self.engine)
            } else {
                format!("left out with engine = \"{}\"", self.engine)
            }
        })?;
        one_key(keys.key_file, &self.key_env, &self.key_file)?;
        count(keys.concurrency, self.concurrency as u64, 1..=4096)?;
        count(keys.timeout, self.timeout_seconds, 1..=86_400)?;
        count(keys.tensor_parallel, self.tensor_parallel as u64, 1..=64)?;
        share(keys.memory_share, self.memory_share)
    }
}

fn one_key(key: &'static str, variable: &str, file: &std::path::Path) -> Result<(), OpdError> {
    let both = !variable.is_empty() && !file.as_os_str().is_empty();
    require(key, file.display(), !both, || "left out where key_env is given".to_owned())
}

fn share(key: &'static str, value: f64) -> Result<(), OpdError> {
    number(key, value, 0.05..=1.0)
}

impl Lora {
    fn check(&self) -> Result<(), OpdError> {
        count("learner.lora.rank", self.rank as u64, 0..=65_536)?;
        positive("learner.lora.alpha", self.alpha, 1e6)?;
        let listed: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        let mut distinct = listed.clone();
        distinct.sort_unstable();
        distinct.dedup();
        require(
            "learner.lora.targets",
            format!("[{}]", listed.join(", ")),
            !listed.is_empty() && distinct.len() == listed.len(),
            || format!("one or more of {}, each once", ProjectionName::WORDS.join(", ")),
        )
    }
}

impl Learner {
    fn check(&self) -> Result<(), OpdError> {
        let torch = self.engine == EngineName::Torch;
        require("learner.engine", self.engine, torch || self.engine == EngineName::Native, || {
            "\"native\" or \"torch\"".to_owned()
        })?;
        require("learner.url", &self.url, torch != self.url.is_empty(), || {
            let rule = if torch { "the worker's address" } else { "left out" };
            format!("{rule} with learner.engine = \"{}\"", self.engine)
        })?;
        one_key("learner.key_file", &self.key_env, &self.key_file)?;
        let key = !self.key_env.is_empty() || !self.key_file.as_os_str().is_empty();
        require("learner.key_file", "empty", key || !torch, || {
            "the file with the worker's token (or learner.key_env its variable)".to_owned()
        })?;
        require("learner.holds_teacher", self.holds_teacher, torch || !self.holds_teacher, || {
            "false with learner.engine = \"native\"".to_owned()
        })?;
        let nccl = self.transfer == TransferName::Nccl;
        require("learner.transfer", self.transfer, torch || !nccl, || {
            "\"disk\" with learner.engine = \"native\"".to_owned()
        })?;
        self.lora.check()?;
        count("learner.gpus", self.gpus as u64, 1..=4096)?;
        count("learner.tokens_per_gpu", self.tokens_per_gpu, 1..=100_000_000)?;
        count("learner.timeout_seconds", self.timeout_seconds, 1..=86_400)
    }
}

impl Config {
    /// Whether the learner can compare with the teacher's whole distribution.
    pub fn teacher_is_exact(&self) -> bool {
        match self.learner.engine {
            EngineName::Torch => {
                self.learner.holds_teacher || self.teacher.engine == EngineName::Torch
            }
            _ => self.teacher.engine == EngineName::Native,
        }
    }

    /// Refuses engines that do not work together.
    pub(super) fn check_engines(&self) -> Result<(), OpdError> {
        let (student, teacher, learner) = (&self.student, &self.teacher, &self.learner);
        learner.check()?;
        let torch = learner.engine == EngineName::Torch;
        let fits =
            if torch { student.engine.is_served() } else { student.engine == EngineName::Native };
        require("student.engine", student.engine, fits, || {
            if torch {
                "\"vllm\" or \"sglang\" with learner.engine = \"torch\"".to_owned()
            } else {
                "\"native\" with learner.engine = \"native\"".to_owned()
            }
        })?;
        require(
            "teacher.engine",
            teacher.engine,
            torch || teacher.engine != EngineName::Torch,
            || "\"native\", \"vllm\" or \"sglang\" with learner.engine = \"native\"".to_owned(),
        )?;
        student.check(&STUDENT)?;
        teacher.check(&TEACHER)?;
        if teacher.engine == EngineName::Torch {
            let needs = Driver::new(self.method, &self.methods, self.facts(0))?.needs();
            require(
                "teacher.engine",
                teacher.engine,
                !(needs.hints || needs.teacher_acts),
                || {
                    format!(
                        "\"vllm\", \"sglang\" or \"native\" with method = \"{}\", whose teacher writes (learner.holds_teacher keeps scores exact)",
                        self.method
                    )
                },
            )?;
        }
        if self.teacher_is_exact() {
            return Ok(());
        }
        require(
            "loss.estimator",
            "\"rkl_full\"",
            self.loss.estimator != Estimator::RklFull,
            || {
                "\"rkl_topk\" or \"k1_pg\" with a teacher that is not beside the learner (or learner.holds_teacher = true)"
                .to_owned()
            },
        )?;
        let temperature = self.methods.validate.temperature;
        require("validate.temperature", temperature, temperature == 1.0, || {
            "1 with a served teacher, which scores at no other temperature".to_owned()
        })
    }
}
