//! Environments behind OpenEnv's protocol: a WebSocket per episode, tasks and schemas over HTTP.
//!
//! Written for version 0.10 of the `openenv` package and tolerant of older servers. What a server does not say
//! (which text the agent sees, which actions there are, what success is) the configuration section `[environment]` says;
//! `lens env init openenv URL` writes one by asking the server.

mod action;
pub(crate) mod http;
mod message;
mod session;
mod socket;

use std::borrow::Cow;
use std::sync::Arc;

use action::Builder;
use http::Http;
use message::Reader;
use serde_json::Value;
use session::{Server, Snapshots, Sockets};

use crate::benchmark::Benchmark;
use crate::error::EnvError;
use crate::names;
use crate::profile::{CommandStyle, Laboratory, Profile, PromptStyle, ScoreScale};
use crate::registry::BenchmarkOptions;
use crate::remote::options::ActionFormat;
use crate::remote::tasks::TaskList;
use crate::remote::{EnvironmentOptions, RemoteBenchmark};

/// The name of the protocol in messages.
const PROTOCOL: &str = "the OpenEnv server";

/// An OpenEnv server as an environment.
pub const PROFILE: Profile = Profile {
    name: Cow::Borrowed("openenv"),
    summary: Cow::Borrowed("Your own environment: an OpenEnv server"),
    turn_limit: 30,
    train_split: Cow::Borrowed("train"),
    eval_splits: names!["test"],
    pooled_splits: names![],
    history: 2,
    prompt: PromptStyle {
        template: Cow::Borrowed(include_str!("../remote/prompt.txt")),
        commands: CommandStyle::Quoted,
        hidden_commands: names![],
        fold_history: false,
    },
    score: ScoreScale::None,
    laboratory: Laboratory {
        expert: false,
        train_split: Cow::Borrowed("train"),
        held_out_split: Cow::Borrowed("test"),
        kinds: names![],
        numbered_names: false,
        generated: false,
    },
};

/// What a server says about itself, for `lens env init`.
#[derive(Debug, Clone, Default)]
pub struct ServerInfo {
    /// `/metadata`: name, description and capabilities.
    pub metadata: Value,
    /// `/schema`: what actions, observations and states look like.
    pub schema: Value,
    /// The tasks of its Task API, where it has one.
    pub tasks: Option<TaskList>,
}

/// Asks a server what it is.
pub fn inspect(options: &EnvironmentOptions) -> Result<ServerInfo, EnvError> {
    options.check_url()?;
    let http = Http::new(PROTOCOL, options, options.token()?);
    Ok(ServerInfo {
        metadata: http.get("/metadata")?.unwrap_or_default(),
        schema: http.get("/schema")?.unwrap_or_default(),
        tasks: http.tasks()?,
    })
}

/// Asks the server what it offers, and opens it as a benchmark.
pub fn open(options: &EnvironmentOptions) -> Result<Arc<RemoteBenchmark>, EnvError> {
    options.check_url()?;
    let token = options.token()?;
    let http = Http::new(PROTOCOL, options, token.clone());
    let metadata = http.get("/metadata")?.unwrap_or_default();
    let schema = http.get("/schema")?.unwrap_or_default();
    let tasks = match &options.tasks {
        Some(path) => TaskList::read(path)?,
        None => http.tasks()?.ok_or_else(|| EnvError::Setting {
            key: "environment.tasks".to_owned(),
            message:
                "the server lists no tasks; give a file with one JSON object per line, such as \
                      {\"id\": \"1\", \"split\": \"train\", \"reset\": {\"seed\": 1}}"
                    .to_owned(),
        })?,
    };
    let server = Server {
        options: options.clone(),
        address: http.socket_address(),
        token,
        reader: Reader::new(options)?,
        builder: None,
        snapshots: Snapshots::announced(&metadata),
    };
    let mut profile = options.profile(&PROFILE, &tasks);
    if let Some(limit) = metadata["turn_limit"].as_u64() {
        profile.turn_limit = limit as usize;
    }
    let server = server.with_builder(&schema["action"])?;
    let sockets = Sockets(Arc::new(server));
    Ok(Arc::new(RemoteBenchmark::new(profile, tasks, options.clone(), Box::new(sockets))))
}

impl Server {
    fn with_builder(mut self, schema: &Value) -> Result<Self, EnvError> {
        let tools = if self.options.action_format == ActionFormat::Tool {
            let server = Arc::new(self);
            let tools = server.open()?.list_tools()?;
            self = Arc::into_inner(server).ok_or(EnvError::NotReset)?;
            tools
        } else {
            Vec::new()
        };
        self.builder = Some(Builder::new(&self.options, schema, tools)?);
        Ok(self)
    }
}

pub(crate) fn from_options(options: &BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError> {
    options.without_goals(&PROFILE)?;
    options.without_seed(&PROFILE)?;
    Ok(open(&options.environment)?)
}
