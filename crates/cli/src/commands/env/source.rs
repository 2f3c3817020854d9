//! Which environment a command works with: one of the list, with the options that reach it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use lens_config::{Config, resolve};
use lens_env::webshop::GoalKind;
use lens_env::{Benchmark, BenchmarkOptions, registry};

use crate::failure::Failure;

/// How an environment in another process is reached.
#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// A configuration with the sections [environment] and [prompt], such as `lens env init` writes.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's address (openenv, agentgym).
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file of tasks, where the environment lists none.
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
    /// The program and its arguments, after everything else (stdio).
    #[arg(long, num_args = 1.., allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

impl Reach {
    /// The file and the command line together.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let mut config = resolve(self.config.as_slice(), &[])?.config;
        if let Some(url) = &self.url {
            config.environment.url.clone_from(url);
        }
        if self.tasks.is_some() {
            config.environment.tasks.clone_from(&self.tasks);
        }
        if !self.command.is_empty() {
            config.environment.command.clone_from(&self.command);
        }
        Ok(config)
    }

    /// The environment behind the protocol of that name.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<dyn Benchmark>, Failure> {
        let environment = self.config()?.environment;
        Ok(registry::open(name, &BenchmarkOptions { environment, ..BenchmarkOptions::default() })?)
    }
}

/// An environment from the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// The benchmark.
    #[arg(value_parser = PossibleValuesParser::new(registry::names()))]
    pub(crate) benchmark: String,
    /// The official data; what is built in by default.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Use the goals that people wrote (webshop).
    #[arg(long)]
    human_goals: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Source {
    pub(crate) fn open(&self) -> Result<Arc<dyn Benchmark>, Failure> {
        let options = BenchmarkOptions {
            data: self.data.clone(),
            goals: self.human_goals.then_some(GoalKind::Human),
            environment: self.reach.config()?.environment,
            ..BenchmarkOptions::default()
        };
        Ok(registry::open(&self.benchmark, &options)?)
    }
}
