//! The commands that start what a configuration names: servers, and the training worker.

use std::path::Path;

use lens_config::schema::{Config, EngineName, Model, RecomputeName, TransferName};

use crate::failure::Failure;

/// One process to start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launch {
    /// What it is: "student-0", "teacher-0", "learner".
    pub(crate) name: String,
    /// Its address.
    pub(crate) url: String,
    /// The path that answers 200 once it is ready.
    pub(crate) ready: &'static str,
    /// Environment variables; a key is named, never written out.
    pub(crate) env: Vec<(String, Value)>,
    /// The program and its arguments.
    pub(crate) command: Vec<Value>,
    /// GPUs it takes.
    pub(crate) gpus: usize,
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// As it is.
    Plain(String),
    /// The content of an environment variable.
    Env(String),
    /// The content of a file.
    File(String),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

impl Value {
    /// As a shell writes it.
    pub(crate) fn shell(&self) -> String {
        match self {
            Self::Plain(text)
                if text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c))
                    && !text.is_empty() =>
            {
                text.clone()
            }
            Self::Plain(text) => format!("'{}'", text.replace('\'', "'\\''")),
            Self::Env(name) => format!("\"${name}\""),
            Self::File(path) => format!("\"$(cat {})\"", Self::Plain(path.clone()).shell()),
        }
    }

    /// Its content now.
    pub(crate) fn content(&self) -> Result<String, Failure> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Env(name) => std::env::var(name)
                .map_err(|_| Failure::user(format!("the environment variable {name} is not set"))),
            Self::File(path) => std::fs::read_to_string(path)
                .map(|text| text.trim().to_owned())
                .map_err(|error| Failure::user(format!("{path}: {error}"))),
        }
    }
}

/// The longest context any call needs.
pub(crate) fn context(config: &Config) -> usize {
    let hint = config.methods.validate.hint_tokens;
    let longest = config.rollout.max_response_tokens.max(config.eval.max_tokens).max(hint);
    config.rollout.max_prompt_tokens + longest + 1
}

/// Everything a configuration needs running, GPUs handed out in this order: student, teacher, learner.
pub(crate) fn launches(config: &Config) -> Result<Vec<Launch>, Failure> {
    let mut launches = Vec::new();
    let mut next_gpu = 0;
    for (role, model) in [("student", &config.student), ("teacher", &config.teacher)] {
        for (index, url) in model.urls.iter().enumerate() {
            let name = format!("{role}-{index}");
            let mut launch = match model.engine {
                EngineName::Sglang => sglang(config, role, model, url)?,
                _ => vllm(config, role, model, url)?,
            };
            launch.name = name;
            let Model { flags, .. } = model;
            launch.command.extend(flags.iter().map(|flag| Value::from(flag.as_str())));
            devices(&mut launch, &mut next_gpu);
            launches.push(launch);
        }
    }
    if config.learner.engine == EngineName::Torch {
        let mut launch = torchrun(config)?;
        devices(&mut launch, &mut next_gpu);
        launches.push(launch);
    }
    if launches.is_empty() {
        return Err(Failure::user_with_hint(
            "this configuration runs everything inside this program: there is nothing to start",
            "set student.engine, teacher.engine or learner.engine (see docs/guides/gpu.md)",
        ));
    }
    Ok(launches)
}

fn devices(launch: &mut Launch, next: &mut usize) {
    let ids: Vec<String> = (*next..*next + launch.gpus).map(|id| id.to_string()).collect();
    *next += launch.gpus;
    launch.env.insert(0, ("CUDA_VISIBLE_DEVICES".to_owned(), ids.join(",").into()));
}

/// Host and port of an address.
fn host_and_port(url: &str) -> Result<(String, String), Failure> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/');
    match rest.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok((host.to_owned(), port.to_owned()))
        }
        _ => {
            Err(Failure::user(format!("{url}: give host and port, such as http://127.0.0.1:8000")))
        }
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<Value> {
    words.into_iter().map(Value::from).collect()
}

fn path_word(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// A server's key, if it has one.
fn key_word(model: &Model) -> Option<Value> {
    let Model { key_env, key_file, .. } = model;
    if !key_env.is_empty() {
        return Some(Value::Env(key_env.clone()));
    }
    (!key_file.as_os_str().is_empty()).then(|| Value::File(key_file.display().to_string()))
}

fn served(url: &str, model: &Model, ready: &'static str) -> Launch {
    let Model { tensor_parallel, .. } = model;
    Launch {
        name: String::new(),
        url: url.to_owned(),
        ready,
        env: Vec::new(),
        command: Vec::new(),
        gpus: *tensor_parallel,
    }
}

fn vllm(config: &Config, role: &str, model: &Model, url: &str) -> Result<Launch, Failure> {
    let (host, port) = host_and_port(url)?;
    let Model { tensor_parallel, memory_share, .. } = model;
    let mut launch = served(url, model, "/health");
    let trained = role == "student" && config.learner.engine == EngineName::Torch;
    if trained {
        launch.env.push(("VLLM_SERVER_DEV_MODE".to_owned(), "1".into()));
    }
    if let Some(key) = key_word(model) {
        launch.env.push(("VLLM_API_KEY".to_owned(), key));
    }
    let (path, length) = (path_word(&model.path), context(config).to_string());
    launch.command = words(["vllm", "serve", &path, "--host", &host, "--port", &port]);
    launch.command.extend(words(["--served-model-name", role, "--enable-scale-out"]));
    launch.command.extend(words(["--logprobs-mode", "processed_logprobs"]));
    launch.command.extend(words(["--max-logprobs", &config.loss.top_k.max(20).to_string()]));
    launch.command.extend(words(["--generation-config", "vllm", "--max-model-len", &length]));
    launch.command.extend(words(["--tensor-parallel-size", &tensor_parallel.to_string()]));
    launch.command.extend(words(["--gpu-memory-utilization", &memory_share.to_string()]));
    if trained && config.learner.transfer == TransferName::Nccl {
        launch.command.extend(words(["--weight-transfer-config", r#"{"backend": "nccl"}"#]));
    }
    Ok(launch)
}

fn sglang(config: &Config, role: &str, model: &Model, url: &str) -> Result<Launch, Failure> {
    let (host, port) = host_and_port(url)?;
    let Model { tensor_parallel, memory_share, .. } = model;
    let mut launch = served(url, model, "/ready");
    let (path, length) = (path_word(&model.path), context(config).to_string());
    launch.command = words(["python", "-m", "sglang.launch_server", "--model-path", &path]);
    launch.command.extend(words(["--host", &host, "--port", &port, "--served-model-name", role]));
    launch.command.extend(words(["--enable-deterministic-inference", "--random-seed", "1"]));
    launch.command.extend(words(["--skip-tokenizer-init", "--context-length", &length]));
    launch.command.extend(words(["--tp-size", &tensor_parallel.to_string()]));
    launch.command.extend(words(["--mem-fraction-static", &memory_share.to_string()]));
    if let Some(key) = key_word(model) {
        launch.command.extend([Value::from("--api-key"), key]);
    }
    Ok(launch)
}

fn torchrun(config: &Config) -> Result<Launch, Failure> {
    let learner = &config.learner;
    let (host, port) = host_and_port(&learner.url)?;
    if learner.key_file.as_os_str().is_empty() {
        return Err(Failure::user_with_hint(
            "the worker reads its token from a file, and learner.key_file names none",
            "write one, for instance with: openssl rand -hex 32 > token",
        ));
    }
    let gpus = learner.gpus.to_string();
    let mut command = words(["torchrun", "--standalone", "--nproc-per-node", &gpus]);
    command.extend(words(["-m", "lens_worker", "--student", &path_word(&config.student.path)]));
    if learner.holds_teacher || config.teacher.engine == EngineName::Torch {
        command.extend(words(["--teacher", &path_word(&config.teacher.path)]));
    }
    command.extend(words(["--host", &host, "--port", &port]));
    command.extend(words(["--token-file", &path_word(&learner.key_file)]));
    command.extend(words(["--token-budget", &learner.tokens_per_gpu.to_string()]));
    match config.train.recompute {
        RecomputeName::Auto => {}
        RecomputeName::Always => command.push("--recompute".into()),
        RecomputeName::Never => command.push("--no-recompute".into()),
    }
    if learner.lora.rank > 0 {
        let lora = &learner.lora;
        let targets: Vec<String> = lora.targets.iter().map(ToString::to_string).collect();
        command.extend(words(["--lora-rank", &lora.rank.to_string()]));
        command.extend(words(["--lora-alpha", &lora.alpha.to_string()]));
        command.extend(words(["--lora-targets", &targets.join(",")]));
        command.extend(words(["--lora-seed", &lora.seed.to_string()]));
    }
    command.extend(learner.flags.iter().map(|flag| Value::from(flag.as_str())));
    let env = vec![("OMP_NUM_THREADS".to_owned(), "1".into())];
    let (name, url) = ("learner".to_owned(), learner.url.clone());
    Ok(Launch { name, url, ready: "/v1/health", env, command, gpus: learner.gpus })
}

/// The commands as a shell script.
pub(crate) fn shell(launches: &[Launch]) -> String {
    let mut text = "#!/usr/bin/env bash\n# One command per process; each runs until it is stopped.\nset -euo pipefail\n".to_owned();
    for launch in launches {
        text.push_str(&format!("\n# {}, {} GPUs\n{} &\n", launch.name, launch.gpus, line(launch)));
    }
    text.push_str("\nwait -n\n");
    text
}

fn line(launch: &Launch) -> String {
    let env = launch.env.iter().map(|(name, value)| format!("{name}={}", value.shell()));
    let words = launch.command.iter().map(Value::shell);
    env.chain(words).collect::<Vec<_>>().join(" ")
}

/// The commands as a compose file for one node. Secrets come from the environment of `docker compose`.
pub(crate) fn compose(launches: &[Launch], folders: &[String]) -> String {
    let mut text = "# One node. The images must hold vLLM or SGLang for servers, and torch with lens_worker for the learner.\nservices:\n".to_owned();
    for launch in launches {
        let image = if launch.name == "learner" {
            "${LENS_WORKER_IMAGE:?}"
        } else {
            "${LENS_SERVER_IMAGE:?}"
        };
        text.push_str(&format!(
            "  {}:\n    image: {image}\n    network_mode: host\n    ipc: host\n",
            launch.name
        ));
        text.push_str("    environment:\n");
        for (name, value) in launch.env.iter().filter(|(name, _)| name != "CUDA_VISIBLE_DEVICES") {
            text.push_str(&format!("      {name}: {}\n", compose_word(value)));
        }
        text.push_str("      LENS_ROLE: ");
        text.push_str(&format!("{}\n    entrypoint: []\n    command:\n", launch.name));
        for word in &launch.command {
            text.push_str(&format!("      - {}\n", compose_word(word)));
        }
        text.push_str("    volumes:\n");
        for folder in folders {
            text.push_str(&format!("      - {folder}:{folder}\n"));
        }
        let ids = launch.env.iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES");
        let ids = ids.map(|(_, value)| value.shell()).unwrap_or_default();
        let quoted: Vec<String> = ids.split(',').map(|id| format!("\"{id}\"")).collect();
        text.push_str("    deploy:\n      resources:\n        reservations:\n          devices:\n");
        text.push_str(&format!(
            "            - driver: nvidia\n              device_ids: [{}]\n              capabilities: [gpu]\n",
            quoted.join(", ")
        ));
    }
    text
}

fn compose_word(value: &Value) -> String {
    match value {
        Value::Plain(text) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "$$"))
        }
        Value::Env(name) => format!("\"${{{name}:?}}\""),
        // Compose reads no files into words; the variable is to hold the file's content.
        Value::File(_) => "\"${LENS_SERVER_KEY:?}\"".to_owned(),
    }
}

/// The commands as a Slurm job: servers on the first node, the worker on the second, and `lens` itself at the end.
pub(crate) fn slurm(launches: &[Launch], lens: &str) -> String {
    let on =
        |learner: bool| launches.iter().filter(move |launch| (launch.name == "learner") == learner);
    let gpus = |learner: bool| on(learner).map(|launch| launch.gpus).sum::<usize>();
    let most = gpus(false).max(gpus(true)).max(1);
    let mut text = format!(
        "#!/usr/bin/env bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={most}\n#SBATCH --job-name=lens\n\
         # The addresses in the configuration must name the two nodes: servers on the first, the worker on the second.\n\
         set -euo pipefail\nmapfile -t nodes < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n"
    );
    for launch in launches {
        let learner = launch.name == "learner";
        let mut launch = launch.clone();
        if learner {
            // On a node of its own the worker's GPUs are counted from 0.
            let ids: Vec<String> = (0..launch.gpus).map(|id| id.to_string()).collect();
            launch.env[0].1 = ids.join(",").into();
        }
        let node = usize::from(learner);
        text.push_str(&format!(
            "\n# {}, {} GPUs\nsrun --overlap --nodes=1 --ntasks=1 --nodelist=\"${{nodes[{node}]}}\" env {} &\n",
            launch.name, launch.gpus, line(&launch)
        ));
    }
    text.push_str(&format!("\nuntil {lens} engine check \"$1\"; do sleep 20; done\n{lens} train \"$1\"\nkill $(jobs -p)\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Config {
        let mut config = Config::default();
        config.student.engine = EngineName::Vllm;
        config.student.urls =
            vec!["http://127.0.0.1:8000".to_owned(), "http://127.0.0.1:8001".to_owned()];
        config.student.key_env = "STUDENT_KEY".to_owned();
        config.teacher.engine = EngineName::Sglang;
        config.teacher.urls = vec!["http://127.0.0.1:30000".to_owned()];
        config.teacher.tensor_parallel = 2;
        config.teacher.memory_share = 0.8;
        config.learner.engine = EngineName::Torch;
        config.learner.url = "http://127.0.0.1:7000".to_owned();
        config.learner.key_file = "token".into();
        config.learner.gpus = 4;
        config.learner.tokens_per_gpu = 8192;
        config.student.flags = vec!["--dtype".to_owned(), "float32".to_owned()];
        config.learner.flags = vec!["--compute=bfloat16".to_owned()];
        config.learner.lora.rank = 8;
        config
    }

    #[test]
    fn only_a_trained_student_is_set_up_for_weights_over_nccl() {
        let mut config = served();
        config.teacher.engine = EngineName::Vllm;
        let flag = "--weight-transfer-config '{\"backend\": \"nccl\"}'";
        assert!(!shell(&launches(&config).expect("it can be started")).contains(flag));
        config.learner.transfer = TransferName::Nccl;
        let launches = launches(&config).expect("it can be started");
        let with: Vec<bool> = launches.iter().map(|launch| line(launch).contains(flag)).collect();
        assert_eq!(with, [true, true, false, false]);
    }

    #[test]
    fn every_setting_of_parallelism_is_in_a_command() {
        let launches = launches(&served()).expect("it can be started");
        let names: Vec<&str> = launches.iter().map(|launch| launch.name.as_str()).collect();
        assert_eq!(names, ["student-0", "student-1", "teacher-0", "learner"]);
        let text = shell(&launches);
        for part in [
            "CUDA_VISIBLE_DEVICES=0 VLLM_SERVER_DEV_MODE=1 VLLM_API_KEY=\"$STUDENT_KEY\" vllm serve",
            "CUDA_VISIBLE_DEVICES=1 ",
            "CUDA_VISIBLE_DEVICES=2,3 python -m sglang.launch_server",
            "--tp-size 2",
            "--mem-fraction-static 0.8",
            "--enable-scale-out",
            "--max-logprobs 64",
            "CUDA_VISIBLE_DEVICES=4,5,6,7 OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 4",
            "--token-budget 8192",
            "--dtype float32",
            "--compute=bfloat16",
            "--lora-rank 8 --lora-alpha 32 --lora-targets q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --lora-seed 0",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("--teacher "), "the worker does not hold the teacher");
        let mut both = served();
        both.learner.holds_teacher = true;
        assert!(shell(&super::launches(&both).expect("good")).contains("--teacher "));
    }

    #[test]
    fn nothing_to_start_is_said() {
        assert!(launches(&Config::default()).is_err());
        let mut config = served();
        config.student.urls = vec!["http://nowhere".to_owned()];
        assert!(launches(&config).is_err());
    }
}
