//! Environments behind OpenEnv's protocol: a WebSocket per episode, tasks and schemas over HTTP.
//!
//! Written for version 0.10 of the `openenv` package and tolerant of older servers. What a server does not say
//! (which text the agent sees, which actions there are, what success is) the configuration section `[environment]` says;
//! `lens env init openenv URL` writes one by asking the server.

mod action;
mod catalog;
mod message;
mod session;
mod socket;

use std::sync::Arc;

use action::Builder;
use serde_json::Value;
use session::{Server, Snapshots, Sockets};

use crate::benchmark::Benchmark;
use crate::error::EnvError;
use crate::profile::Profile;
use crate::registry::BenchmarkOptions;
use crate::remote::http::Http;
use crate::remote::options::ActionFormat;
use crate::remote::reader::Reader;
use crate::remote::tasks::TaskList;
use crate::remote::{self, EnvironmentOptions, RemoteBenchmark};

/// The name of the protocol in messages.
const PROTOCOL: &str = "the OpenEnv server";

/// An OpenEnv server as an environment.
pub const PROFILE: Profile = remote::profile("openenv", "Your own environment: an OpenEnv server");

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
        tasks: catalog::tasks(&http)?,
    })
}

/// Asks the server what it offers, and opens it as a benchmark.
pub fn open(options: &EnvironmentOptions) -> Result<Arc<RemoteBenchmark>, EnvError> {
    options.check_url()?;
    let token = options.token()?;
    let http = Http::new(PROTOCOL, options, token.clone());
    let metadata = http.get("/metadata")?.unwrap_or_default();
    let schema = http.get("/schema")?.unwrap_or_default();
    let tasks = remote::tasks(options, || catalog::tasks(&http))?;
    let server = Server {
        options: options.clone(),
        address: catalog::socket_address(&http),
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
    remote::open_listed(&PROFILE, options, open)
}
