//! Which environment a command works with: one of the list, with the options that reach it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use lens_env::remote::EnvironmentOptions;
use lens_env::webshop::GoalKind;
use lens_env::{Benchmark, BenchmarkOptions, registry};
use serde::Deserialize;

use crate::failure::Failure;

/// An environment from the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// The benchmark.
    #[arg(value_parser = PossibleValuesParser::new(registry::names()))]
    pub(crate) benchmark: String,
    /// The official data; what is built in by default.
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Use the goals that people wrote (webshop).
    #[arg(long)]
    pub(crate) human_goals: bool,
    /// Take the section [environment] of this TOML file (openenv, stdio).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The server's address (openenv).
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The program and its arguments, after everything else (stdio).
    #[arg(long, num_args = 1.., allow_hyphen_values = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<String>,
}

/// The part of a configuration that is read here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    environment: EnvironmentOptions,
}

impl Source {
    /// The options of the section and the command line together.
    pub(crate) fn options(&self) -> Result<BenchmarkOptions, Failure> {
        let mut environment = match &self.config {
            None => EnvironmentOptions::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Failure::user(format!("{}: {error}", path.display())))?;
                let part: Part = toml::from_str(&text)
                    .map_err(|error| Failure::user(format!("{}: {error}", path.display())))?;
                part.environment
            }
        };
        if let Some(url) = &self.url {
            environment.url.clone_from(url);
        }
        if !self.command.is_empty() {
            environment.command.clone_from(&self.command);
        }
        Ok(BenchmarkOptions {
            data: self.data.clone(),
            goals: self.human_goals.then_some(GoalKind::Human),
            environment,
            ..BenchmarkOptions::default()
        })
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn Benchmark>, Failure> {
        Ok(registry::open(&self.benchmark, &self.options()?)?)
    }
}
