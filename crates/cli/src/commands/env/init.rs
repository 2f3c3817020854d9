//! `lens env init`: ask an environment what it is and write a configuration that works.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use lens_env::openenv::{self, ServerInfo};
use lens_env::remote::EnvironmentOptions;
use lens_env::remote::options::ActionFormat;
use lens_env::{Actions, Benchmark, BenchmarkOptions, Status, registry};
use serde_json::Value;

use crate::failure::Failure;

/// Keys under which environments list their actions, the most telling first.
const ACTION_KEYS: [&str; 6] = [
    "admissible_actions",
    "legal_actions",
    "admissible",
    "available_actions",
    "valid_actions",
    "actions",
];
/// Keys under which they describe what is seen.
const TEXT_KEYS: [&str; 6] = ["text", "observation", "message", "content", "prompt", "state"];

/// Write a starting configuration for an environment and play one episode with it
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Init {
    /// An OpenEnv server.
    Openenv(OpenEnv),
    /// An AgentGym server.
    Agentgym(AgentGym),
    /// A program that speaks JSON lines.
    Stdio(Program),
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpenEnv {
    /// The server's address.
    url: String,
    /// A file of tasks, needed where the server lists none.
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "environment.toml")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AgentGym {
    /// The server's address.
    url: String,
    /// A file of tasks: AgentGym's servers list none.
    #[arg(long, value_name = "FILE")]
    tasks: PathBuf,
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "environment.toml")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Program {
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "environment.toml")]
    out: PathBuf,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Init {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Openenv(server) => {
                let asked =
                    EnvironmentOptions { url: server.url.clone(), ..EnvironmentOptions::default() };
                let info = openenv::inspect(&asked)?;
                let mut options = from_schema(asked, &info);
                options.tasks.clone_from(&server.tasks);
                finish(&openenv::PROFILE.name, &options, &server.out, out)
            }
            Self::Agentgym(server) => {
                let options = EnvironmentOptions {
                    url: server.url.clone(),
                    tasks: Some(server.tasks.clone()),
                    ..EnvironmentOptions::default()
                };
                finish(&lens_env::agentgym::PROFILE.name, &options, &server.out, out)
            }
            Self::Stdio(program) => {
                let command = program.command.clone();
                let options = EnvironmentOptions { command, ..EnvironmentOptions::default() };
                finish(&lens_env::stdio::PROFILE.name, &options, &program.out, out)
            }
        }
    }
}

/// Reads off the schema where texts, actions and tool calls are.
fn from_schema(mut options: EnvironmentOptions, info: &ServerInfo) -> EnvironmentOptions {
    let observation = info.schema["observation"]["properties"].as_object();
    let has = |key: &str| observation.is_some_and(|fields| fields.contains_key(key));
    if let Some(key) = ACTION_KEYS.into_iter().find(|key| has(key)) {
        options.actions = format!("/observation/{key}");
    }
    if let Some(key) = TEXT_KEYS.into_iter().find(|key| has(key)) {
        options.observation = format!("{{{{ observation.{key} }}}}");
    }
    let action = &info.schema["action"];
    let required: Vec<&str> =
        action["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    options.action_format = match required.as_slice() {
        required if required.contains(&"tool_name") => ActionFormat::Tool,
        [only] if action["properties"][*only]["type"] == "string" => ActionFormat::Text,
        _ => ActionFormat::Json,
    };
    if options.action_format == ActionFormat::Tool {
        // A tool's answer is read by its own rule.
        options.observation.clear();
    }
    options
}

/// Opens the environment, writes the configuration and plays one episode.
fn finish(
    name: &str,
    options: &EnvironmentOptions,
    path: &std::path::Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::user(format!(
            "{} already exists; choose another --out",
            path.display()
        )));
    }
    let all = BenchmarkOptions { environment: options.clone(), ..BenchmarkOptions::default() };
    let benchmark = registry::open(name, &all)?;
    let text =
        toml::to_string(&Written { task: Section::new(name, &*benchmark), environment: options })
            .map_err(|error| Failure::Runtime(error.into()))?;
    lens_train::files::write_atomically(path, text.as_bytes())?;
    writeln!(out, "wrote {}:\n\n{text}", path.display())?;
    play(&benchmark, out)
}

/// What is written.
#[derive(serde::Serialize)]
struct Written<'a> {
    task: Section,
    environment: &'a EnvironmentOptions,
}

#[derive(serde::Serialize)]
struct Section {
    benchmark: String,
    train_split: String,
    eval_splits: Vec<String>,
    turn_limit: usize,
}

impl Section {
    fn new(name: &str, benchmark: &dyn Benchmark) -> Self {
        let profile = benchmark.profile();
        Self {
            benchmark: name.to_owned(),
            train_split: profile.train_split.to_string(),
            eval_splits: profile.eval_splits.iter().map(ToString::to_string).collect(),
            turn_limit: profile.turn_limit,
        }
    }
}

/// Plays the first listed actions of the first task.
fn play(benchmark: &Arc<dyn Benchmark>, out: &mut dyn Write) -> Result<(), Failure> {
    let tasks = benchmark.tasks(&benchmark.profile().train_split)?;
    let task = tasks.first().ok_or_else(|| Failure::user("the environment has no tasks"))?;
    let mut environment = Arc::clone(benchmark).environment()?;
    let mut view = environment.reset(task)?;
    writeln!(out, "task {}: {}\n{}", task.id, view.task, view.observation)?;
    for turn in 0..benchmark.profile().turn_limit.min(5) {
        let action = match &view.actions {
            Actions::Commands(commands) if !commands.is_empty() => {
                commands[turn % commands.len()].clone()
            }
            _ => "look".to_owned(),
        };
        view = environment.step(&action)?;
        writeln!(out, "> {action}\n{}", view.observation)?;
        if view.status != Status::Running {
            break;
        }
    }
    writeln!(out, "it works: score {} after {} turns", view.score, view.turn)?;
    Ok(())
}
